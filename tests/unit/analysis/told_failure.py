"""The one failure that a text tells, judged and advised, for tests."""

from bfcviz.analysis.message_answer import StatedAnswer
from bfcviz.importers.message_reader import read_messages


def told(text):
    """The one failure of a text, judged and advised."""
    found = read_messages([text.encode()])
    (failure,) = StatedAnswer.of(found.failures, found.soft).failures
    return failure


def words(failure):
    """All its advice, as text."""
    return " ".join(each.text for each in failure.advice)


def kinds(failure):
    """The words of its advice."""
    return [str(each.kind) for each in failure.advice]

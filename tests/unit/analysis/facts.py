"""Checks of sentences by their facts: numbers, names and verdicts, in order."""


def has_facts(text, *facts):
    """Whether `text` contains every fact, in this order."""
    at = 0
    for fact in facts:
        found = text.find(fact, at)
        assert found >= 0, f"{fact!r} is not in {text[at:]!r}"
        at = found + len(fact)
    return True

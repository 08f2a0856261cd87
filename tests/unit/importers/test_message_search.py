"""The search for messages by the words of a text finds what a search for every message of the tables finds."""

import random

import pytest
from shared import SHARED

from bfcviz.formats.message_tables import TABLES
from bfcviz.importers import messages

VALUES = {
    "{bytes}": "2.00 GiB", "{size}": "3.00 GiB", "{number}": "1234", "{skip}": "abc", "{word}": "wOrd", "{sep}": ": ",
    "{count}": "3", "{start}": "", "{end}": "",
}  # fmt: skip


def told(text):
    """Where each beginning of the tables stands, and the clients and programs that the words name."""
    places = [
        (each.start, each.stop, each.order, each.variant) for each in messages._message_beginnings(text, 0)
    ]
    return places, messages.hints_of(text)


def instance(begins):
    for place, value in VALUES.items():
        begins = begins.replace(place, value)
    return begins


def assert_nothing_is_missed(monkeypatch, text):
    found = told(text)
    with monkeypatch.context() as patch:
        patch.setattr(messages._WordSearch, "possible", lambda self, small: list(range(len(self._needs))))
        assert told(text) == found
    return found[0]


@pytest.mark.parametrize(
    "changed",
    [str, str.upper, str.lower, lambda text: text.replace(" ", "\n"), lambda text: text.replace(" ", "")],
)
def test_every_message_of_the_tables_is_possible(changed):
    orders = [(order, variant) for order, entry in enumerate(TABLES) for variant in range(len(entry.begins))]
    assert [each[:2] for each in messages._BEGINNINGS] == orders
    for number, (order, variant) in enumerate(orders):
        line = f"é\u2019{changed(instance(TABLES[order].begins[variant]))}\u2026"
        assert number in messages._BEGINNING_SEARCH.possible(line.lower())


def test_the_words_miss_nothing_of_real_texts(monkeypatch):
    texts = [
        path.read_text(errors="replace") for path in sorted((SHARED / "real" / "messages").glob("*.txt"))
    ]
    texts += [path.read_text(errors="replace") for path in sorted((SHARED / "real" / "logs").glob("*.log"))]
    if not texts:
        pytest.skip("the real messages are not here")
    assert sum(len(assert_nothing_is_missed(monkeypatch, text)) for text in texts) >= 26
    assert_nothing_is_missed(monkeypatch, "\n".join(texts).upper())


def test_a_plain_log_is_searched_for_few_messages():
    rng = random.Random(1)
    lines = [
        f"2026-01-0{rng.randint(1, 9)} 12:{rng.randint(10, 59)} INFO step {step} loss {rng.random():.4f}, "
        f"memory used {rng.random():.2f} GiB"
        for step in range(5_000)
    ]
    text = "\n".join([*lines, "CUDA out of memory. Tried to allocate 2.00 GiB.", *lines[:10]])
    assert len(messages._BEGINNING_SEARCH.possible(text.lower())) < len(messages._BEGINNINGS) // 20
    assert [text.count("\n", 0, start) for start, *_ in told(text)[0]] == [len(lines)]

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.importers import chrome_trace
from bfcviz.importers.chrome_trace import JsonCut, JsonStream

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def pieces(text: str, size: int) -> list[bytes]:
    data = text.encode()
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(items=st.lists(VALUES, max_size=6), size=st.integers(1, 9), indent=st.none() | st.integers(0, 2))
def test_the_items_are_those_of_the_standard_parser(items, size, indent):
    before, after = chrome_trace._WINDOW, {"z": [1, {"items": [2]}]}
    chrome_trace._WINDOW = size
    try:
        alone = JsonStream(pieces(json.dumps(items, indent=indent, ensure_ascii=False), size))
        assert list(alone.items("items")) == items
        text = json.dumps({"a": [{}], "items": items, **after}, indent=indent)
        assert list(JsonStream(pieces(text, size)).items("items")) == items
        assert list(JsonStream(pieces(text, size)).items("other")) == []
    finally:
        chrome_trace._WINDOW = before


@given(items=st.lists(VALUES, min_size=1, max_size=4), data=st.data())
def test_a_cut_text_gives_the_items_before_the_cut(items, data):
    text = json.dumps(items)
    found = []
    with pytest.raises(JsonCut):
        found.extend(JsonStream([text[: data.draw(st.integers(0, len(text) - 1))].encode()]).items("x"))
    assert found == items[: len(found)]


def test_a_cut_number_is_not_taken_for_a_shorter_one():
    stream = JsonStream([b"[1", b"23", b"4, 5", b"]"])
    assert list(stream.items("")) == [1234, 5]


def test_a_value_that_is_too_long_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(chrome_trace, "MAX_ITEM", 1 << 10)
    monkeypatch.setattr(chrome_trace, "_WINDOW", 1 << 6)
    read = 0

    def endless():
        nonlocal read
        yield b'["'
        while True:
            read += 1
            yield b"x" * 64

    with pytest.raises(ValueError, match="1,024 characters"):
        list(JsonStream(endless()).items(""))
    assert read * 64 < 1 << 12


def test_what_is_no_json_is_refused():
    for text in ("7", '"x"', "{7: 1}", "[1] x", '{"items" 1}', "[,                    ]"):
        with pytest.raises(ValueError, match=r"is (not|followed)|is missing"):
            list(JsonStream([text.encode()]).items("items"))

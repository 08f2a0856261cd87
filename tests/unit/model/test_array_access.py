"""array_access.py and array_access.pxd agree, and so do the C structs and the dtypes that share their memory."""

import re
from pathlib import Path

import pytest

from bfcviz.events.schema import Flag, Kind
from bfcviz.model import array_access
from bfcviz.model.row_storage import CHUNK_ROW, EXTREMES_ROW, RATIO_ROW, REGION_ROW
from bfcviz.model.timelines import SERIES, TIMELINE, TOTALS

PXD = Path(array_access.__file__).with_suffix(".pxd").read_text()
C_TYPES = {
    "uint64_t": "<u8",
    "int64_t": "<i8",
    "double": "<f8",
    "uint32_t": "<u4",
    "uint16_t": "<u2",
}


def enumerators(text):
    """The constants of all enums in C, which count from 0 where they have no value."""
    found = {}
    for body in re.findall(r"^cdef enum:\n((?:    .+\n)+)", text, re.MULTILINE):
        for number, each in enumerate(re.split(r",\s+|\n\s+", body.strip())):
            name, _, value = each.partition(" = ")
            found[name] = int(value) if value else number
    return found


def test_constants_agree():
    constants = enumerators(PXD)
    assert constants.pop("COMPILED") == 1
    assert not array_access.COMPILED
    of_the_record = {*Kind.__members__, "GREW"}  # see tests/unit/events/test_schema.py
    assert constants == {
        name: value
        for name, value in vars(array_access).items()
        if name.isupper() and name not in {"COMPILED", *of_the_record}
    }


def test_kinds_and_flags_are_those_of_the_schema():
    assert {kind.name: kind.value for kind in Kind} == {
        kind.name: getattr(array_access, kind.name) for kind in Kind
    }
    assert array_access.GREW == Flag.GREW


def test_the_words_of_a_row_are_those_of_timeline():
    assert len(TOTALS) == array_access.TOTALS
    assert 8 * (array_access.HEAD_WORDS + array_access.SERIES_WORDS * len(SERIES)) == TIMELINE.itemsize
    assert [TIMELINE.fields[f"{name}_min"][1] // 8 for name in SERIES] == [
        array_access.HEAD_WORDS + array_access.SERIES_WORDS * number for number in range(len(SERIES))
    ]


def test_functions_agree():
    in_c = set(re.findall(r"^cdef inline [a-zA-Z0-9_]+\*? ([a-z]\w*)\(", PXD, re.MULTILINE))
    in_python = {
        name
        for name, value in vars(array_access).items()
        if callable(value) and value.__module__ == array_access.__name__
    }
    assert in_c == in_python


@pytest.mark.parametrize(
    ("struct", "dtype"),
    [
        ("Chunk", CHUNK_ROW),
        ("Region", REGION_ROW),
        ("Extremes", EXTREMES_ROW),
        ("Ratios", RATIO_ROW),
    ],
)
def test_structs_agree_with_dtypes(struct, dtype):
    body = re.search(rf"cdef struct {struct}:\n((?:    .+\n)+)", PXD)[1]
    fields = [re.fullmatch(r"    (.+) (\w+)", line).groups() for line in body.splitlines()]
    assert [(name, C_TYPES[ctype]) for ctype, name in fields] == [
        (name, dtype[name].str) for name in dtype.names
    ]
    # No padding: every field has the offset that C gives it.
    for name in dtype.names:
        field, offset = dtype.fields[name][:2]
        assert offset % field.itemsize == 0
    assert dtype.itemsize % 8 == 0

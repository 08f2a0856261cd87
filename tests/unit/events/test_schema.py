"""The tables of `schema` name every field and kind."""

import re

import pyarrow.parquet as pq

import bfcviz
from bfcviz.events import schema
from bfcviz.events.schema import Flag, Kind


def test_a_parquet_file_describes_its_columns(tmp_path):
    path = bfcviz.open(bfcviz.sample("oom_dump")).save(tmp_path / "dump.parquet")
    columns = pq.read_schema(path)
    for name, (_, unit, meaning) in schema.FIELDS.items():
        said = columns.field(name).metadata
        assert (said[b"unit"].decode(), said[b"description"].decode()) == (unit, meaning)


def test_the_table_has_a_row_for_every_kind():
    assert re.findall(r"^([A-Z]+)  +\S", schema.__doc__, re.MULTILINE) == [kind.name for kind in Kind]


def test_the_meanings_of_kinds_and_flags_have_every_number():
    for field, names in (("kind", Kind), ("flags", Flag)):
        meaning = schema.FIELDS[field][2]
        assert [int(number) for number in re.findall(r"(\d+) [A-Z]", meaning)] == [
            each.value for each in names
        ]
        assert re.findall(r"\d+ (\w+)", meaning) == [each.name for each in names]

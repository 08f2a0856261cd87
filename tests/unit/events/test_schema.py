"""The tables of `schema` name every field and kind."""

import re

import pyarrow.parquet as pq

import bfcviz
from bfcviz.events import schema
from bfcviz.events.schema import EVENT, Kind


def test_the_table_names_every_field_in_order():
    assert list(schema.FIELDS) == list(EVENT.names)


def test_a_parquet_file_describes_its_columns(tmp_path):
    path = bfcviz.open(bfcviz.sample("oom_dump")).save(tmp_path / "dump.parquet")
    columns = pq.read_schema(path)
    for name, (unit, meaning) in schema.FIELDS.items():
        said = columns.field(name).metadata
        assert (said[b"unit"].decode(), said[b"description"].decode()) == (unit, meaning)


def test_the_table_has_a_row_for_every_kind():
    assert re.findall(r"^([A-Z]+)  +\S", schema.__doc__, re.MULTILINE) == [kind.name for kind in Kind]

"""The tables in the docstring of `schema` name every field and kind."""

import re

from bfcviz.events import schema
from bfcviz.events.schema import EVENT, Kind


def test_the_table_names_every_field_with_its_type():
    rows = re.findall(r"^`(\w+)` +([ui]\d) ", schema.__doc__, re.MULTILINE)
    assert rows == [(name, EVENT[name].str[1:]) for name in EVENT.names]


def test_the_table_has_a_row_for_every_kind():
    assert re.findall(r"^([A-Z]+)  +\S", schema.__doc__, re.MULTILINE) == [kind.name for kind in Kind]

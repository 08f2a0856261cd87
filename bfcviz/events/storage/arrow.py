"""Events as Arrow tables: the fields of EVENT, and the names of kinds and labels."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.events.schema import EVENT, Events, Kind

_FORMULA = r"\A([=+\-@\t\r])"
"""The start of a text that a spreadsheet would calculate."""

TEXT = pa.dictionary(pa.int32(), pa.string())
FIELDS = [pa.field(name, pa.from_numpy_dtype(EVENT[name]), nullable=False) for name in EVENT.names or ()]
SCHEMA = pa.schema([*FIELDS, pa.field("kind_name", TEXT), pa.field("label_name", TEXT)])
"""Columns of a table of events. `label_name` is null for an event without a label."""


class LabelNames:
    """The distinct names of a label table, for dictionary columns; labels may share a name.

    Args:
        labels: the table; labels added later are not included.
    """

    def __init__(self, labels: Labels) -> None:
        places: dict[str, int] = {}
        names = labels.names[1 : len(labels)]  # number 0 is null, not a name
        self._place = np.array([0, *(places.setdefault(name, len(places)) for name in names)], np.int32)
        self._names = pa.array(list(places), pa.string())

    def column(self, labels: NDArray[np.uint32], *, own: bool) -> pa.DictionaryArray:
        """The names of these labels; `own`: with a dictionary of only these names, not of all."""
        if not own:
            return self._encode(self._place[labels], self._names, labels)
        places = self._place[labels]
        used = np.zeros(max(len(self._names), 1), bool)
        used[places[labels != 0]] = True
        renumbered = np.cumsum(used, dtype=np.int32) - 1
        return self._encode(renumbered[places], self._names.take(pa.array(np.flatnonzero(used))), labels)

    @staticmethod
    def _encode(places: NDArray[np.int32], names: pa.Array, labels: NDArray[np.uint32]) -> pa.DictionaryArray:
        indices = pa.array(places, pa.int32(), mask=np.asarray(labels == 0))
        return pa.DictionaryArray.from_arrays(indices, names)


def table_of(events: Events, names: LabelNames, *, own: bool = False) -> pa.Table:
    """These events as a table with the columns of `SCHEMA`; `own` as in `LabelNames.column`."""
    columns = [pa.array(np.ascontiguousarray(events[field.name]), field.type) for field in FIELDS]
    kinds = pa.array(events["kind"].astype(np.int32) - min(Kind))
    columns.append(pa.DictionaryArray.from_arrays(kinds, pa.array([kind.name for kind in Kind], pa.string())))
    columns.append(names.column(events["label"], own=own))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def without_formulas(table: pa.Table) -> pa.Table:
    """The table for a CSV file: a text that a spreadsheet would take for a formula gets an apostrophe before it."""
    for place, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            texts = pc.replace_substring_regex(table.column(place).cast(kind), _FORMULA, r"'\1")
            table = table.set_column(place, pa.field(field.name, kind, field.nullable), texts)
    return table

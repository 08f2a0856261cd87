"""`bfcviz.sql`: a question in SQL to the events, heaps, failures and timelines of a trace, answered by DuckDB.

::

    bfcviz sql run.bfc "select label_name, sum(size) from allocations where died is null group by all order by 2 desc"

`columns` is a table of all columns, with their units and meanings. A query can read these tables and nothing else: no
file, no network, no setting and no variable of Python.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.extras import needed

with needed("a question in SQL", "pyarrow", "sql"):
    import pyarrow as pa
    import pyarrow.compute as pc

from bfcviz.analysis.failures import all_failures, diagnosis_json
from bfcviz.errors import InvalidRequest
from bfcviz.events.origin import regions_known, requested_bytes_known, unknown_of_chunks
from bfcviz.events.storage.parquet import SCHEMA, ParquetLabelNames, described, parquet_table
from bfcviz.events.trace import Trace
from bfcviz.model import lifetimes
from bfcviz.model.address_layout import LONG_AGO, NEVER
from bfcviz.model.find_steps import opening
from bfcviz.model.holders import holders
from bfcviz.model.model import Model
from bfcviz.model.timelines import RATIOS, timeline

# ------------------------------------------------------------------------------
# The tables: of each column its type, unit and meaning.
#
# Numbers are signed, so that a difference of two may be negative; those of events are as they were written.

_I8, _U8, _F8, _TEXT, _NAME = (
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.string(),
    pa.dictionary(pa.int32(), pa.string()),
)
_SERIES: Final = {
    "bytes_in_use": "in use",
    "requested_bytes_in_use": "requested, of those in use",
    "pool_bytes": "of all regions",
    "free_bytes": "free in regions",
    "largest_free_chunk": "of the largest free chunk",
    "external_fragmentation": "1 - largest_free_chunk / free_bytes",
    "internal_fragmentation": "1 - requested_bytes_in_use / bytes_in_use",
    "reserved_not_in_use": "1 - bytes_in_use / pool_bytes",
}
_WHEN: Final = {"min": "lowest", "max": "highest", "last": "last"}
_POOL: Final = ("pool", _I8, "number", "of the heap in the file, from 0")
_CHUNK: Final = (
    ("address", _U8, "address", "where it begins"),
    ("size", _I8, "bytes", "of the chunk"),
    ("requested", _I8, "bytes", "that the caller asked for; null: free, or not known"),
)
_OWNER: Final = (
    ("label_name", _NAME, "text", "the name of the allocation; null: none"),
    ("thread", _I8, "number", "of the thread that allocated it; null: not known"),
    ("stream", _I8, "number", "of the stream; 0 = none, null: not known"),
    ("region", _I8, "slot", "of the region it lies in"),
)


def _sql_table_schema(*columns: tuple[str, pa.DataType, str, str]) -> pa.Schema:
    return pa.schema([described(*column) for column in columns])


TABLES: Final[dict[str, tuple[str, pa.Schema]]] = {
    "events": ("each event of the log, as in a Parquet file of `Trace.save`", SCHEMA),
    "allocations": (
        "each allocation, from its ALLOCATE to its FREE",
        _sql_table_schema(
            _POOL,
            *_CHUNK,
            ("born", _I8, "event", "seq of its ALLOCATE; null: not known"),
            ("died", _I8, "event", "seq of its FREE; null: never freed"),
            ("born_time", _I8, "ns", "from the origin's start; null: before the first event"),
            ("died_time", _I8, "ns", "from the origin's start; null: never freed"),
            *_OWNER,
        ),
    ),
    "chunks": (
        "each chunk of each heap at one step, by address",
        _sql_table_schema(
            _POOL,
            ("step", _I8, "step", "the state after so many events"),
            *_CHUNK,
            ("in_use", pa.bool_(), "", "whether it is in use, not free"),
            ("born", _I8, "event", "seq of its ALLOCATE; null: free, or not known"),
            *_OWNER,
        ),
    ),
    "holders": (
        "who holds the memory in use at that step: a tree, the first row of a heap is all",
        _sql_table_schema(
            _POOL,
            ("step", _I8, "step", "the state after so many events"),
            ("id", _I8, "number", "of the holder in its heap, from 0"),
            ("parent", _I8, "number", "the id of the holder around it; null: of all"),
            ("depth", _I8, "number", "of holders around it"),
            ("path", _TEXT, "text", "its name after those of the holders around it; empty: all"),
            ("bytes", _I8, "bytes", "in use by it and by those in it"),
            ("own_bytes", _I8, "bytes", "in use by it, and by none of those in it"),
            ("requested", _I8, "bytes", "requested, of `bytes`; null: not known"),
            ("chunks", _I8, "number", "of chunks in use by it and by those in it"),
        ),
    ),
    "failures": (
        "each request that failed",
        _sql_table_schema(
            _POOL,
            ("event", _I8, "event", "seq of the OOM"),
            ("verdict", _TEXT, "text", "why it failed, as in `bfcviz why --json`"),
            ("answer", _TEXT, "text", "the first line of `bfcviz why`"),
            ("label_name", _TEXT, "text", "the name of the request; null: none"),
            ("requested_bytes", _I8, "bytes", "of the request"),
            ("rounded_bytes", _I8, "bytes", "of the request as the heap rounds it"),
            ("free_bytes", _I8, "bytes", "free in the regions; null: not known, as in the next ones"),
            ("largest_free_chunk", _I8, "bytes", "of the largest free chunk"),
            ("external_fragmentation", _F8, "0..1", "1 - largest_free_chunk / free_bytes"),
            ("bytes_in_use", _I8, "bytes", "in use"),
            ("pool_bytes", _I8, "bytes", "of all regions"),
            ("bytes_limit", _I8, "bytes", "the most that the pool may have"),
        ),
    ),
    "timelines": (
        "the totals of each heap over time, in at most 2,000 rows of equally many events; null: not known",
        _sql_table_schema(
            _POOL,
            ("step", _I8, "step", "after the last event of the row"),
            ("time", _I8, "ns", "of its last event, from the origin's start"),
            ("events", _I8, "number", "of events that the row stands for"),
            *(
                (
                    f"{name}_{which}",
                    _F8 if name in RATIOS else _I8,
                    "0..1" if name in RATIOS else "bytes",
                    f"{meaning}: {when} after any of its events"
                    if which != "last"
                    else f"{meaning}: after its last event",
                )
                for name, meaning in _SERIES.items()
                for which, when in _WHEN.items()
            ),
        ),
    ),
}
"""Name -> what a row is, and the columns with unit and meaning in their metadata."""

COLUMNS: Final = pa.Table.from_pylist(
    [
        {
            "table": name,
            "column": field.name,
            "type": "text" if pa.types.is_dictionary(field.type) else str(field.type),
            "unit": field.metadata[b"unit"].decode(),
            "meaning": field.metadata[b"description"].decode(),
        }
        for name, (_, schema) in TABLES.items()
        for field in schema
    ]
)
"""The table `columns`."""


# ------------------------------------------------------------------------------
# Their rows, heap after heap.


class _Moment(NamedTuple):
    """What the SQL tables `chunks` and `holders` are asked of each heap."""

    step: int | None
    by: str


_Columns = Mapping[str, Any]  # columns of one heap or one block, by name: arrays of one length


def table(trace: Trace, name: str, step: int | None = None, by: str = "op") -> pa.Table:
    """One of the SQL tables `TABLES`, of all heaps of a trace.

    Args:
        trace: the events.
        name: the table.
        step: of `chunks` and `holders`; None: of each heap the first failed request, else its peak.
        by: of `holders`, as for `bfcviz.holders`.

    Raises:
        TraceError: the trace has no such step, or its events contradict each other.
        ValueError: `by` is no grouping.
    """
    schema = TABLES[name][1]
    parts = [
        pa.Table.from_arrays([_sql_column(field, columns[field.name]) for field in schema], schema=schema)
        for columns in _ROWS[name](trace, _Moment(step, by))
    ]
    return pa.concat_tables([schema.empty_table(), *parts])


def _sql_column(field: pa.Field, values: Any) -> pa.Array:
    """The values as the type of a column in SQL; a number that does not fit, such as `NEVER`, is null."""
    if field.type == _I8 and isinstance(values, np.ndarray) and values.dtype == np.uint64:
        return pa.array(values.astype(np.int64), mask=values > np.uint64(_HIGHEST))
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.cast(field.type)
    return pa.array(values, field.type)


_HIGHEST: Final = 2**63 - 1


def _sql_event_columns(trace: Trace, _: _Moment) -> Iterator[_Columns]:
    names = ParquetLabelNames(trace.labels)
    for block in trace.blocks(trace.first, len(trace)):
        found = parquet_table(block, names)
        yield {name: found[name] for name in SCHEMA.names}


def _sql_allocation_columns(trace: Trace, _: _Moment) -> Iterator[_Columns]:
    names = ParquetLabelNames(trace.labels)
    for pool in range(len(trace.origin.pools)):
        found = lifetimes.LifetimeReader(trace, pool, trace.first).read_to(len(trace)).lifetimes
        born, died = found["born_time"], found["died_time"]
        yield _sql_shared_columns(trace, pool, found, names) | {
            "died": found["died"],
            "born_time": pa.array(born, mask=born == LONG_AGO),
            "died_time": pa.array(died, mask=found["died"] == NEVER),
        }


def _sql_shared_columns(
    trace: Trace, pool: int, rows: NDArray[np.void], names: ParquetLabelNames
) -> dict[str, Any]:
    """The columns that the SQL tables of chunks and allocations share."""
    unknown = unknown_of_chunks(trace.origin.details, pool)
    return {
        "pool": np.full(len(rows), pool),
        **{
            name: pa.array(rows[name], mask=np.full(len(rows), name in unknown))
            for name in ("address", "size", "requested", "born", "thread", "stream", "region")
        },
        "label_name": names.column(np.ascontiguousarray(rows["label"]), own=False),
    }


def _sql_heaps_at_moment(trace: Trace, moment: _Moment) -> Iterator[Model]:
    """Each heap at the step that an SQL table is made of."""
    for pool in range(len(trace.origin.pools)):
        model = Model(trace, pool)
        model.seek(opening(trace, pool)[1] if moment.step is None else moment.step)
        yield model


def _sql_chunk_columns(trace: Trace, moment: _Moment) -> Iterator[_Columns]:
    names = ParquetLabelNames(trace.labels)
    for model in _sql_heaps_at_moment(trace, moment):
        rows = model.chunks()
        free = ~rows["in_use"]
        columns = _sql_shared_columns(trace, model.pool, rows, names)
        for name in ("requested", "born", "thread", "stream"):
            columns[name] = pc.if_else(pa.array(free), pa.scalar(None, columns[name].type), columns[name])
        yield columns | {"in_use": rows["in_use"], "step": np.full(len(rows), model.step)}


def _sql_holder_columns(trace: Trace, moment: _Moment) -> Iterator[_Columns]:
    for model in _sql_heaps_at_moment(trace, moment):
        found = holders(model, moment.by)
        rows = found.to_arrow()
        more = {"pool": np.full(len(found), model.pool), "step": np.full(len(found), model.step)}
        yield {name: rows[name] for name in rows.column_names} | more | {"path": found.paths()}


def _sql_failure_columns(trace: Trace, _: _Moment) -> Iterator[_Columns]:
    found = all_failures(trace, runs=0)
    rows = [
        diagnosis_json(each) | {"answer": each.unwrapped[0], "label_name": each.label or None}
        for each in found
    ]
    yield {name: [row[name] for row in rows] for name in TABLES["failures"][1].names}


_NEED_REQUESTED: Final = ("requested_bytes_in_use", "internal_fragmentation")
_NEED_REGIONS: Final = (
    "pool_bytes",
    "free_bytes",
    "largest_free_chunk",
    "external_fragmentation",
    "reserved_not_in_use",
)


def _sql_timeline_columns(trace: Trace, _: _Moment) -> Iterator[_Columns]:
    for pool in range(len(trace.origin.pools)):
        rows, details = timeline(trace, pool), trace.origin.details
        unknown = [*(() if requested_bytes_known(details, pool) else _NEED_REQUESTED)]
        unknown += () if regions_known(details, pool) else _NEED_REGIONS
        columns: dict[str, Any] = {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()}
        columns |= {f"{name}_{when}": [None] * len(rows) for name in unknown for when in _WHEN}
        yield columns | {"pool": np.full(len(rows), pool)}


_ROWS: Final[dict[str, Callable[[Trace, _Moment], Iterator[_Columns]]]] = {
    "events": _sql_event_columns,
    "allocations": _sql_allocation_columns,
    "chunks": _sql_chunk_columns,
    "holders": _sql_holder_columns,
    "failures": _sql_failure_columns,
    "timelines": _sql_timeline_columns,
}


# ------------------------------------------------------------------------------
# The query.

_CLOSED: Final[dict[str, Any]] = {
    "enable_external_access": "false",  # no file, network or extension
    "python_enable_replacements": "false",  # no variable of Python
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "temp_directory": "",  # nor does DuckDB itself write beside the memory that it has
    "lock_configuration": "true",
}
_HELP: Final = "`select * from columns` lists the tables and their columns"


def query(trace: Trace, text: str, step: int | None = None, by: str = "op") -> pa.Table:
    """The answer to a SELECT statement in DuckDB's SQL on `TABLES` and `columns`; only those that it names are made.

    `step` and `by`: as for `table`.

    Raises:
        MissingExtra: DuckDB is not installed.
        InvalidRequest: the text is not one SELECT statement, or DuckDB refuses it.
        TraceError, ValueError: as for `table`.
    """
    with needed("a question in SQL", "duckdb", "sql"):
        import duckdb  # noqa: PLC0415  an extra
    names = [name for name in (*TABLES, "columns") if re.search(rf"\b{name}\b", text, re.IGNORECASE)]
    with duckdb.connect(":memory:", config=_CLOSED) as connection:
        try:
            kinds = [each.type for each in connection.extract_statements(text)]
            if kinds != [duckdb.StatementType.SELECT]:
                raise InvalidRequest(f"give one SELECT statement, not {len(kinds)} or another kind; {_HELP}")
            for name in names or [*TABLES, "columns"]:
                connection.register(name, COLUMNS if name == "columns" else table(trace, name, step, by))
            found = connection.sql(text).to_arrow_table()
        except duckdb.Error as error:
            raise InvalidRequest(f"the query failed: {str(error).splitlines()[0]}; {_HELP}") from None
    return _with_plain_sums(found)


def _with_plain_sums(found: pa.Table) -> pa.Table:
    """Sums of integers in an answer to SQL as 64-bit numbers where they fit: DuckDB has 128 bits for them."""
    for place, field in enumerate(found.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            with suppress(pa.ArrowInvalid):
                found = found.set_column(place, field.name, found.column(place).cast(_I8))
    return found

"""`bfcviz sql`: a question in SQL to a file, as a table for people, or as CSV or JSON."""

import argparse
import math
import sys
from typing import Any

from bfcviz.extras import needed

with needed("bfcviz sql", "duckdb and pyarrow", "sql"):
    import duckdb  # noqa: F401
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

from bfcviz.cli.arguments import add_by, parse_step, say_truncated
from bfcviz.cli.progress_bar import open_with_progress
from bfcviz.errors import InvalidRequest
from bfcviz.events.storage.parquet import without_formulas
from bfcviz.exporters.sql import COLUMNS, TABLES, query
from bfcviz.model.find_steps import NAMED_STEPS
from bfcviz.terminal import aligned, json_text, line_width, printable, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz sql`."""
    parser.add_argument(
        "file", metavar="FILE", help="a trace, log or snapshot: anything that `bfcviz info` reads"
    )
    parser.add_argument(
        "query",
        metavar="QUERY",
        nargs="?",
        help=f"a SELECT statement in DuckDB's SQL, on {', '.join(TABLES)}; without it: what these tables hold",
    )
    parser.add_argument(
        "--step",
        type=parse_step,
        metavar="N",
        help="of chunks and holders: how many events have happened, from 0, or `oom`, `peak`, `worst` or `last` of "
        "the first allocator (default: of each allocator the first failed request, else its peak)",
    )
    add_by(parser, "holders are found", "op")
    parser.add_argument(
        "--most", type=int, default=100, metavar="N", help="rows to print as a table (default: 100)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print all rows as CSV")
    form.add_argument("--json", action="store_true", help="print all rows as JSON: one list of objects")


def run(arguments: argparse.Namespace) -> None:
    """Print the rows that answer the SQL query.

    Raises:
        MissingExtra: DuckDB is not installed.
        InvalidRequest: the query is no SELECT statement, or DuckDB refuses it.
    """
    if arguments.query is None:
        say(*_described_sql_tables())
        return
    with open_with_progress(arguments.file) as trace:
        say_truncated(trace, beside=True)
        step = arguments.step
        if isinstance(step, str):
            step = NAMED_STEPS[step](trace, 0)
        found = query(trace, arguments.query, step, arguments.by)
    if arguments.csv:
        try:
            csv.write_csv(without_formulas(found), sys.stdout.buffer)
        except pa.ArrowException as error:
            raise InvalidRequest(f"these columns cannot be CSV ({error}): use --json") from None
    elif arguments.json:
        print(json_text([_sql_json_value(row) for row in found.to_pylist()]))
    else:
        say(*row_lines(found, arguments.most))


def _described_sql_tables() -> list[str]:
    lines = []
    for name, (purpose, _) in TABLES.items():
        columns = COLUMNS.filter(pc.equal(COLUMNS["table"], name)).to_pylist()
        lines += [
            f"{name}: {purpose}",
            *("  {column} ({type}, {unit}): {meaning}".format(**each) for each in columns),
            "",
        ]
    return lines[:-1]


def _sql_json_value(value: Any) -> Any:
    """A value of a row of SQL as JSON has it; what JSON does not have, such as a date, as text."""
    if isinstance(value, list):
        return [_sql_json_value(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _sql_json_value(each) for name, each in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    return (value if math.isfinite(value) else None) if isinstance(value, float) else str(value)


def row_lines(found: pa.Table, most: int) -> list[str]:
    """The first rows of an answer as lines of aligned columns: numbers to the right, null as nothing.

    Where these lines would be wider than the terminal, each row has a line for each of its columns.
    """
    shown = found.slice(0, most)
    cells = [
        [name, *map(_sql_cell_text, column.to_pylist())]
        for name, column in zip(found.column_names, shown.columns, strict=True)
    ]
    numbers = [
        place
        for place, field in enumerate(found.schema)
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    ]
    rows = list(zip(*cells, strict=True))
    lines = aligned(rows, numbers)
    if len(shown) and max(map(len, lines)) > line_width():
        lines = [line for row in rows[1:] for line in (*aligned(list(zip(rows[0], row, strict=True))), "")][
            :-1
        ]
    left = len(found) - len(shown)
    return [*lines, f"... and {left:,} more rows: --most, --csv or --json"] if left else lines


def _sql_cell_text(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else printable(str(value))

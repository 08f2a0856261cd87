"""Python code that draws a picture again: to keep, share and change what a user chose on screen."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np

from bfcviz import samples
from bfcviz.events.origin import facts_of as stated_facts
from bfcviz.events.trace import Trace
from bfcviz.figures.text import harmless
from bfcviz.figures.view_options import PLAIN, Look
from bfcviz.model import Model
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# The facts of a picture in one line: file, step and totals, for files that leave the page they were drawn in.

_LONGEST: Final = 60  # characters of a name


def facts_of(model: Model) -> str:
    """The file, the step and the totals of the heap, escaped; numbers that the file does not give are left out."""
    trace, table = model.trace, model.table
    pool = trace.origin.pools[model.pool]
    stated = stated_facts(trace.origin.details, model.pool)
    totals = {
        "bytes_in_use": ("in use", table.bytes_in_use),
        "free_bytes": ("free", table.free_bytes),
        "largest_free_chunk": ("largest free chunk", table.largest_free_chunk),
        "pool_bytes": ("pool", table.pool_bytes),
    }
    known = [
        f"{name} {format_bytes(size)}"
        for key, (name, size) in totals.items()
        if stated.get(key, size) is not None
    ]
    limit = [] if pool.limit is None else [f"limit {format_bytes(pool.limit)}"]
    heap = [harmless(pool.name, _LONGEST)] if len(trace.origin.pools) > 1 else []
    return " · ".join(
        [file_name(trace), *heap, f"step {model.step:,} of {len(trace):,}", ", ".join([*known, *limit])]
    )


def file_name(trace: Trace) -> str:
    """The name of the trace's file without its folder, escaped."""
    name = PurePath(str(trace.path or trace.origin.source or "")).name
    return harmless(name or "not from a file", _LONGEST)


# ------------------------------------------------------------------------------
# Python code that draws a picture again: to keep, share and change what a user chose on screen.

IN_MEMORY: Final = "trace = ...  # your trace: this one is in memory, not in a file"
"""The line that stands for a trace without a file."""

_WIDTH: Final = 88
"""A longer call gets one line per argument; in characters."""


def code_for(name: str, trace_path: Path | None, step: int, pool: int = 0, look: Look = PLAIN) -> str:
    """Python code that runs as it is and shows the figure called `name` in its present state.

    Args:
        name: one of `FIGURES`.
        trace_path: `Trace.path`; None: the trace is in memory, and `IN_MEMORY` stands for it.
        step: the step shown.
        pool: the heap shown.
        look: its options; the code names only those that differ from `PLAIN`.
    """
    figure = _call("bfcviz.draw", [repr(name), "trace", str(step)], _chosen(pool, look))
    lines = [*_imports(look), "", _trace(trace_path)]
    return "\n".join([*lines, f"figure = {figure}", "figure.show()", ""])


def code_for_inspector(trace_path: Path | None, step: int, pool: int = 0, look: Look = PLAIN) -> str:
    """Python code for a notebook cell that shows the Inspector of this trace at this step."""
    theme = {"theme": look.theme} if look.theme != PLAIN.theme else {}
    inspector = _call("bfcviz.Inspector", ["trace", str(step)], ({"pool": pool} if pool else {}) | theme)
    return "\n".join(["import bfcviz", "", _trace(trace_path), inspector, ""])


def _imports(look: Look) -> list[str]:
    """The imports that the code needs; parts of a look are classes of their own."""
    parts = sorted({type(value).__name__ for value in _chosen(0, look).values() if is_dataclass(value)})
    more = [f"from bfcviz.figures.view_options import {', '.join(parts)}"] if parts else []
    return ["import bfcviz", *more]


def _trace(path: Path | None) -> str:
    if path is None:
        return IN_MEMORY
    for name in samples.names():
        if path == samples.sample(name):
            return f'trace = bfcviz.open(bfcviz.sample("{name}"))'
    return f"trace = bfcviz.open({str(path)!r})"


def _chosen(pool: int, look: Look) -> dict[str, Any]:
    """The options that differ from their defaults."""
    chosen = {field.name: getattr(look, field.name) for field in fields(look)}
    changed = {key: value for key, value in chosen.items() if value != getattr(PLAIN, key)}
    return {"pool": pool, **changed} if pool else changed


def _call(function: str, given: Iterable[str], named: dict[str, Any]) -> str:
    """The call, on one line if it fits."""
    words = [*given, *(f"{key}={_literal(value)}" for key, value in named.items())]
    line = f"{function}({', '.join(words)})"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{function}(", *(f"    {word}," for word in words), ")"])


def _literal(value: Any) -> str:
    """A Python literal equal to `value`; NumPy numbers become plain ones."""
    if is_dataclass(value) and not isinstance(value, type):
        arguments = (f"{field.name}={_literal(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__name__}({', '.join(arguments)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))})"
    return repr(value.item() if isinstance(value, np.generic) else value)

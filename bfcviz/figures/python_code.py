"""Python code that draws a picture again: to keep, share and change what a user chose on screen."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bfcviz import samples
from bfcviz.figures.view_options import PLAIN, Look

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
    options = _figure_code_options(pool, look)
    parts = sorted({type(value).__name__ for value in options.values() if is_dataclass(value)})
    more = [f"from bfcviz.figures.view_options import {', '.join(parts)}"] if parts else []
    figure = _figure_code_call("bfcviz.draw", [repr(name), "trace", str(step)], options)
    lines = ["import bfcviz", *more, "", _figure_code_trace(trace_path)]
    return "\n".join([*lines, f"figure = {figure}", "figure.show()", ""])


def code_for_inspector(trace_path: Path | None, step: int, pool: int = 0, look: Look = PLAIN) -> str:
    """Python code for a notebook cell that shows the Inspector of this trace at this step."""
    options = _figure_code_options(pool, Look(theme=look.theme))
    inspector = _figure_code_call("bfcviz.Inspector", ["trace", str(step)], options)
    return "\n".join(["import bfcviz", "", _figure_code_trace(trace_path), inspector, ""])


def _figure_code_trace(path: Path | None) -> str:
    if path is None:
        return IN_MEMORY
    for name in samples.names():
        if path == samples.sample(name):
            return f'trace = bfcviz.open(bfcviz.sample("{name}"))'
    return f"trace = bfcviz.open({str(path)!r})"


def _figure_code_options(pool: int, look: Look) -> dict[str, Any]:
    """The options that differ from their defaults."""
    chosen = {field.name: getattr(look, field.name) for field in fields(look)}
    changed = {key: value for key, value in chosen.items() if value != getattr(PLAIN, key)}
    return {"pool": pool, **changed} if pool else changed


def _figure_code_call(function: str, given: Iterable[str], named: dict[str, Any]) -> str:
    """The call, on one line if it fits."""
    words = [*given, *(f"{key}={_figure_code_literal(value)}" for key, value in named.items())]
    line = f"{function}({', '.join(words)})"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{function}(", *(f"    {word}," for word in words), ")"])


def _figure_code_literal(value: Any) -> str:
    """A Python literal equal to `value`; NumPy numbers become plain ones."""
    if is_dataclass(value) and not isinstance(value, type):
        given = {field.name: getattr(value, field.name) for field in fields(value)}
        arguments = (f"{name}={_figure_code_literal(each)}" for name, each in given.items())
        return f"{type(value).__name__}({', '.join(arguments)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_figure_code_literal, value))})"
    return repr(value.item() if isinstance(value, np.generic) else value)

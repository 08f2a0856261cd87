"""`reduce` compiled and as plain Python, side by side, so that tests can hold one against the other."""

import importlib.util
import sys
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from unittest import mock

import pytest

from bfcviz import model
from bfcviz.model import reduce, replay


def _from_source():
    name = "bfcviz_reduce_from_source"
    path = str(Path(model.__file__).parent / "reduce.py")  # a compiled `reduce` lies elsewhere
    spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, path))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ChunkTable


PLAIN = _from_source()
COMPILED = reduce.ChunkTable
is_compiled = pytest.mark.skipif(not COMPILED().compiled, reason="bfcviz.model.reduce is not compiled here")

both_ways = pytest.mark.parametrize(
    "table_class", [pytest.param(COMPILED, marks=is_compiled, id="compiled"), pytest.param(PLAIN, id="plain")]
)
"""Runs a test with each `table_class`."""


@contextmanager
def small_steps(table_class, block=4):
    """Models made of `table_class` that keep a snapshot every few steps and read stored keyframes early."""
    with (
        mock.patch.object(replay, "ChunkTable", table_class),
        mock.patch.object(replay, "BLOCK", block),
        mock.patch("bfcviz.model.snapshots.BLOCK", block),
    ):
        yield

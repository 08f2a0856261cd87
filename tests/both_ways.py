"""`PoolState` compiled and as plain Python, side by side, so that tests can compare the two."""

import importlib
import sys
from contextlib import contextmanager
from unittest import mock

import pytest

import bfcviz.model
from bfcviz.model import model as replay
from bfcviz.model import pool_state


def _from_source():
    """The plain Python `PoolState`, imported without the compiled module that replaces it."""
    parts = getattr(pool_state, "PARTS", [])
    with (
        mock.patch.dict(sys.modules),
        mock.patch.dict(vars(bfcviz.model)),
    ):  # the package keeps the compiled modules
        for part in parts:
            del sys.modules[part]
        return importlib.import_module("bfcviz.model.pool_state").PoolState


PLAIN = _from_source()
COMPILED = pool_state.PoolState
is_compiled = pytest.mark.skipif(
    "bfcviz._model" not in sys.modules, reason="bfcviz.model.pool_state is not compiled here"
)

both_ways = pytest.mark.parametrize(
    "table_class", [pytest.param(COMPILED, marks=is_compiled, id="compiled"), pytest.param(PLAIN, id="plain")]
)
"""Runs a test with each `table_class`."""


@contextmanager
def small_steps(table_class, block=4):
    """Models made of `table_class` that keep a snapshot every few steps and read stored keyframes early."""
    with (
        mock.patch.object(replay, "PoolState", table_class),
        mock.patch.object(replay, "BLOCK", block),
        mock.patch("bfcviz.model.state_snapshots.BLOCK", block),
    ):
        yield

"""The arguments of bfcviz.watch."""

import inspect

import pytest

import bfcviz
from bfcviz.errors import LiveError
from bfcviz.frameworks import FRAMEWORKS, WATCHABLE
from bfcviz.live import memory_limits


def test_watch_names_every_framework():
    named = inspect.signature(bfcviz.watch).parameters
    assert [name for name in named if name in FRAMEWORKS] == [*WATCHABLE]
    assert all(f"`{name}`" in bfcviz.watch.__doc__ for name in WATCHABLE)


def test_a_limit_above_the_machines_memory_is_refused():
    with pytest.raises(LiveError, match=r"this machine has .* of memory"):
        bfcviz.watch(numpy=True, limit=memory_limits.total_memory() + 1)


@pytest.mark.parametrize("limit", ["much", 1.5e9, float("nan")])
def test_a_limit_that_is_not_a_size_is_refused(limit):
    with pytest.raises((ValueError, TypeError), match=f"limit={limit!r}"):
        bfcviz.watch(numpy=True, limit=limit)

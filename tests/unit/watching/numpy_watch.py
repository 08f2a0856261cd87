"""A watch of NumPy with a small heap, and that everything is as before after it."""

import threading

import pytest

import bfcviz
from bfcviz.live.numpy import get_handler


@pytest.fixture(autouse=True)
def as_it_was():
    """After each test NumPy uses its own memory, threads start as before, and no thread of a watch runs."""
    handler, start = get_handler(), threading.Thread.start
    yield
    assert get_handler() is handler
    assert threading.Thread.start is start
    assert not [each.name for each in threading.enumerate() if each.name.startswith("bfcviz-monitor")]
    with bfcviz.watch(numpy=True, limit="1MiB"):
        pass  # another one can begin


def watched(**options):
    return bfcviz.watch(**{"numpy": True, "limit": "64MiB", **options})

"""Walker: when it asks for a stack's name, and when it gives the label alone."""

import ctypes

import numpy as np
import pytest
from processes import needs_compiled

from bfcviz.live.capture.stack_walker import Walker
from bfcviz.live.numpy.serve import serve_numpy

pytestmark = needs_compiled


def test_beyond_so_many_stacks_there_are_labels():
    walker = Walker(lambda _, number: number + 100, 8, 2)
    numbers = [walker.number(label) for label in (7, 8, 9, 10)]
    assert numbers == [107, 108, 9, 10]
    assert (walker.stacks, walker.missed) == (2, 2)


def test_an_exception_raised_meanwhile_is_not_lost():
    class Tired(Exception):
        pass

    def raise_it(*_):
        raise Tired

    asked = []

    def tell(_frame, _number):
        asked.append(1)
        raise_it()

    walker = Walker(tell, 8, 10)
    numbers = []

    def allocate():
        numbers.append(walker.number(3))
        for _ in range(1000):
            pass

    with pytest.raises(Tired):
        allocate()
    assert numbers in ([], [3])
    assert (asked, walker.missed) == ([1], 1)


def test_without_the_interpreters_lock_there_is_the_label():
    walker = Walker(lambda _, number: number + 1, 8, 10)
    context, address = walker.hook()
    arguments = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
    without = ctypes.CFUNCTYPE(*arguments)(address)
    with_lock = ctypes.PYFUNCTYPE(*arguments)(address)
    assert (with_lock(context, 5), walker.missed) == (6, 0)
    assert (without(context, 5), walker.missed) == (5, 1)


def test_near_the_end_of_recursion_there_is_the_label():
    def dive(n):
        np.empty(1)
        dive(n + 1)

    with serve_numpy("64MiB", capture="stack") as service, pytest.raises(RecursionError):
        dive(0)
    service.allocator.check_invariants()
    assert service.allocator.stats().num_allocs > 100

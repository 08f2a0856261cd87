"""Walker: when it asks for a stack's name, and when it gives the label alone."""

import ctypes
import sys

import numpy as np
import pytest
from processes import needs_compiled

from bfcviz.live.framework_hooks import DEEPEST, WALK_ON, Walker
from bfcviz.live.numpy import serve_numpy

pytestmark = needs_compiled


def test_beyond_so_many_stacks_there_are_labels():
    walker = Walker(lambda _frame, number, _depth: number + 100, 8, 2)
    numbers = [walker.number(label) for label in (7, 8, 9, 10)]
    assert numbers == [107, 108, 9, 10]
    assert (walker.stacks, walker.missed) == (2, 2)


def test_it_asks_again_with_more_frames_until_there_is_a_name():
    asked = []

    def tell(_frame, label, depth):
        asked.append(depth)
        return label + 100 if depth > 40 else WALK_ON

    walker = Walker(tell, 8, 1000)

    def dive(n):
        return dive(n - 1) if n else walker.number(7)

    assert dive(60) == dive(60) == 107
    assert asked == [8, 24, 40, 56]  # of the second call every answer is known
    assert walker.missed == 0


def test_a_stack_that_never_gets_a_name_has_the_label():
    """`name_stack` should not ask for more at the end of a stack; it must not hang the program."""
    walker = Walker(lambda *_: WALK_ON, 8, 1000)
    assert walker.number(7) == 7
    assert walker.missed == 1

    def dive(n):
        return dive(n - 1) if n else walker.number(7)

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * DEEPEST)
    try:
        assert dive(2 * DEEPEST) == 7
    finally:
        sys.setrecursionlimit(before)


def test_an_exception_raised_meanwhile_is_not_lost():
    class Tired(Exception):
        pass

    def raise_it(*_):
        raise Tired

    asked = []

    def tell(*_):
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
    walker = Walker(lambda _frame, number, _depth: number + 1, 8, 10)
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

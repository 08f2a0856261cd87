"""The clock of the log, in C: readings of the counter that come late, and calibrations between them."""

import ctypes
from itertools import pairwise

import pytest
from c_code import built, needs_compiler
from shared import ROOT

SOURCE = """
#include "bfcviz/c/clock.h"
void *new_clock(void) { return bfc_clock_new(); }
uint64_t ticks(void) { return bfc_ticks(); }
int64_t at(void *clock, uint64_t ticks) { return bfc_clock_at(clock, ticks); }
void anchor(void *clock) { bfc_clock_anchor(clock); }
int64_t now(void *clock) { return bfc_monotonic_ns() - ((bfc_clock *)clock)->origin_ns; }
"""


@pytest.fixture(scope="module")
def c(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clock")
    source = folder / "clock.c"
    source.write_text(SOURCE)
    library = ctypes.CDLL(str(built(source, folder, "-I", str(ROOT))))
    library.new_clock.restype = ctypes.c_void_p
    library.ticks.restype = ctypes.c_uint64
    library.at.restype = library.now.restype = ctypes.c_int64
    library.at.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    for function in (library.anchor, library.now):
        function.argtypes = [ctypes.c_void_p]
    return library


@needs_compiler
def test_a_reading_that_comes_late_or_before_a_calibration_does_not_step_back(c):
    clock, times, old = c.new_clock(), [], []
    for turn in range(300):
        old.append(c.ticks())
        if turn % 3 == 0:
            c.anchor(clock)
        times += [c.at(clock, c.ticks()), c.at(clock, old[turn // 2]), c.at(clock, old[-1])]
    assert all(a <= b for a, b in pairwise(times))
    assert times[0] < times[-1]


@needs_compiler
def test_it_is_near_the_systems_clock(c):
    clock = c.new_clock()
    for _ in range(50):
        before = c.now(clock)
        time = c.at(clock, c.ticks())
        assert before - 1_000_000 < time < c.now(clock) + 1_000_000
        c.anchor(clock)

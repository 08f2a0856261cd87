"""The clock of the log, in C: its rate, readings of the counter that come late, calibrations, a counter set back."""

import ctypes
import time
from itertools import pairwise

import pytest
from c_code import built, needs_compiler
from shared import ROOT

SOURCE = """
#include "bfcviz/c/clock.h"
void *new_clock(void) { return bfc_clock_new(); }
void delete_clock(void *clock) { free(clock); }
uint64_t ticks(void) { return bfc_ticks(); }
int64_t at(void *clock, uint64_t ticks, int64_t last) { return bfc_clock_at(clock, ticks, last); }
void anchor(void *clock) { bfc_clock_anchor(clock); }
void set_back(void *clock) { ((bfc_clock *)clock)->first_ticks = UINT64_MAX; }
int64_t now(void *clock) { return bfc_monotonic_ns() - ((bfc_clock *)clock)->origin_ns; }
"""


class Clock:
    def __init__(self, library):
        self._library, self._clock = library, library.new_clock()
        self._last = 0

    def __getattr__(self, name):
        function = getattr(self._library, name)
        return lambda *arguments: function(self._clock, *arguments)

    def at(self, ticks):
        self._last = self._library.at(self._clock, ticks, self._last)  # as the log does
        return self._last

    def read(self):
        return self.at(self._library.ticks())


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clock")
    source = folder / "clock.c"
    source.write_text(SOURCE)
    library = ctypes.CDLL(str(built(source, folder, "-I", str(ROOT))))
    library.new_clock.restype = ctypes.c_void_p
    library.ticks.restype = ctypes.c_uint64
    library.at.restype = library.now.restype = ctypes.c_int64
    library.at.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64]
    for function in (library.delete_clock, library.anchor, library.set_back, library.now):
        function.argtypes = [ctypes.c_void_p]
    return library


@pytest.fixture
def clock(library):
    made = Clock(library)
    yield made
    made.delete_clock()


@needs_compiler
def test_its_rate_is_right_before_and_after_the_first_calibration(clock):
    for _ in range(2):
        time.sleep(0.05)  # the time that is measured
        before, read, after = clock.now(), clock.read(), clock.now()
        assert before * 0.999 - 1000 < read < after * 1.001 + 1000
        clock.anchor()


@needs_compiler
def test_only_the_first_of_a_process_waits_to_be_calibrated(library):
    def seconds():
        begun = time.thread_time()
        for _ in range(20):
            library.delete_clock(library.new_clock())
        return time.thread_time() - begun

    library.delete_clock(library.new_clock())
    assert min(seconds() for _ in range(5)) < 20 * 0.5e-3 / 2


@needs_compiler
def test_a_calibration_soon_after_the_start_keeps_the_rate_of_the_process(library):
    library.delete_clock(library.new_clock())
    for _ in range(20):
        made = Clock(library)
        made.anchor()
        time.sleep(0.01)
        before, read, after = made.now(), made.read(), made.now()
        made.delete_clock()
        assert before * 0.999 - 1000 < read < after * 1.001 + 1000


@needs_compiler
def test_a_reading_that_comes_late_or_before_a_calibration_does_not_step_back(clock, library):
    times, old = [], []
    for turn in range(300):
        old.append(library.ticks())
        if turn % 3 == 0:
            clock.anchor()
        times += [clock.read(), clock.at(old[turn // 2]), clock.at(old[-1])]
    assert all(a <= b for a, b in pairwise(times))
    assert times[0] < times[-1]


@needs_compiler
def test_a_counter_that_was_set_back_is_no_longer_used(clock):
    before = clock.read()
    clock.set_back()
    clock.anchor()
    times = [clock.at(0) for _ in range(100)]
    assert before <= times[0] < times[-1]
    assert all(a <= b for a, b in pairwise(times))

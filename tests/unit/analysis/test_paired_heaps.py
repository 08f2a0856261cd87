"""Which heaps of two recordings are compared, and the peak that a log states."""

from dataclasses import replace

import numpy as np
import pytest
from shared import SHARED, needs_shared
from unit.analysis.built import MIB, state

import bfcviz
from bfcviz.analysis.comparison import paired_heaps
from bfcviz.events.origin import Pool
from bfcviz.events.trace import Trace


def heaps(*names, failed=None):
    """A trace with an empty heap of each name; the heap `failed` has a failed request."""
    one = state([[1, -2]], 3, 4)
    events = one.read(0, len(one)).copy()
    if failed is None:
        events = events[:-1]
    events["pool"] = names.index(failed) if failed else 0
    pools = tuple(Pool(name.split("!")[0], None, {"allocator_name": name.split("!")[-1]}) for name in names)
    details = {key: value for key, value in one.origin.details.items() if key != "failures"}
    return Trace.from_events(events, one.labels, replace(one.origin, pools=pools, details=details))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((["host", "cuda:0"], None), (["cuda:0", "host"], "cuda:0"), (1, 0)),
        ((["host", "cuda:0"], "host"), (["cuda:0", "host"], None), (0, 1)),
        ((["host", "cuda:0"], "host"), (["cuda:0", "host"], "cuda:0"), (1, 0)),
        ((["host", "cuda:0"], None), (["cuda:0", "host"], None), (0, 1)),
        ((["x", "cuda:0"], None), (["cuda:3"], "cuda:3"), (1, 0)),
        ((["GPU_0_bfc dump 1!GPU_0_bfc"], None), (["cpu", "GPU_0_bfc dump 2!GPU_0_bfc"], None), (0, 1)),
        ((["x", "y"], "y"), (["z"], None), (1, 0)),
        ((["x"], None), (["y", "z"], None), (0, 0)),
    ],
)
def test_heaps_of_one_name_are_compared(a, b, expected):
    first, second = (heaps(*names, failed=failed) for names, failed in (a, b))
    assert paired_heaps(first, second) == expected
    found = bfcviz.compare_recordings(first, second)
    assert (found.a.pool, found.b.pool) == expected


def test_the_peak_of_a_state_is_what_the_file_states():
    before = state([[4, -4]], facts={"peak_bytes_in_use": 6 * MIB})
    after = state([[5, -3]], facts={"peak_bytes_in_use": 7 * MIB})
    found = bfcviz.compare_recordings(before, after)
    assert found.total("peak_bytes_in_use") == (6 * MIB, 7 * MIB)
    assert found.total("bytes_in_use_at_end") == (4 * MIB, 5 * MIB)
    assert sum("6.0 MiB" in note and "4.0 MiB" in note for note in found.notes) == 1
    unknown = bfcviz.compare_recordings(before, state([[5]], facts={"peak_bytes_in_use": None}))
    assert unknown.total("peak_bytes_in_use") == (6 * MIB, 5 * MIB)
    assert sum("peak of B is not known" in note for note in unknown.notes) == 1
    assert not any(
        "states a peak" in note for note in bfcviz.compare_recordings(state([[1]]), state([[2]])).notes
    )


@needs_shared
def test_the_peak_of_a_real_log_is_its_max_in_use():
    logs = [
        SHARED / "real/logs" / name
        for name in ("tf1.4_2017-11_alexnet_k40c.log", "tf2.14_2023-10_cifar10.log")
    ]
    found = bfcviz.compare_recordings(*logs)
    assert found.total("peak_bytes_in_use") == (208404480, 3288551168)
    assert np.isclose(found.totals["change"][0].as_py(), 3288551168 - 208404480)

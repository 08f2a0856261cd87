"""Growth that is new, gone, faster or slower."""

import pytest
from unit.analysis.programs import LEAK, Training, common
from unit.figures.synthetic import KiB, MiB, PlainHeap

from bfcviz.analysis.comparison import GrowthVerdict, growth_changes


def growing(rate):
    """Twelve steps, after each of which `rate` more chunks of 4 KiB stay."""
    heap = PlainHeap(8 * MiB)
    for step in range(12):
        heap.free(heap.allocate(KiB, "op"))
        for _ in range(rate):
            heap.allocate(LEAK, "cache")
        heap.mark("step", step)
    return heap.trace()


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ((0, 2), GrowthVerdict.ONLY_B),
        ((2, 0), GrowthVerdict.ONLY_A),
        ((1, 3), GrowthVerdict.FASTER),
        ((3, 1), GrowthVerdict.SLOWER),
        ((2, 2), GrowthVerdict.SAME),
    ],
)
def test_rates_are_compared(rates, verdict):
    found = growth_changes(*common(*map(growing, rates)))
    assert [(row.holder, row.verdict, row.a, row.b) for row in found.rows] == [
        ("cache", verdict, float(rates[0] * LEAK), float(rates[1] * LEAK))
    ]
    assert found.to_arrow()["b_bytes_a_step"].to_pylist() == [rates[1] * LEAK]


def test_growth_in_both_is_the_same_and_no_growth_is_no_row():
    one, other = Training(leak=True).trace(), Training(leak=True, steps=30).trace()
    assert [row.verdict for row in growth_changes(*common(one, other)).rows] == [GrowthVerdict.SAME]
    calm = Training().trace()
    found = growth_changes(*common(calm, calm))
    assert (len(found.rows), found.reasons) == (0, ("", ""))
    assert min(found.steps) >= 4


def test_without_steps_in_a_growth_of_b_is_listed_and_not_called_new():
    found = growth_changes(*common(Training(mark=None).trace(), Training(leak=True).trace()))
    assert [(row.holder, row.verdict, row.a) for row in found.rows] == [
        ("history/append", GrowthVerdict.UNKNOWN, None)
    ]
    assert (bool(found.reasons[0]), found.reasons[1]) == (True, "")

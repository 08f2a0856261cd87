"""The text of a comparison: the answer first, and nothing that a terminal acts on."""

import pytest
from unit.analysis.programs import Training
from unit.figures.odd_traces import odd_labels
from unit.figures.synthetic import MiB, busy_trace

import bfcviz
from bfcviz.analysis.comparison import BYTES, COUNT, SECONDS, SHARE, compared_value_text, comparison_lines
from bfcviz.units import signed_bytes


def compared(a, b, **options):
    return bfcviz.compare_recordings(a.trace(), b.trace(), **options)


def test_the_headline_is_the_first_line_and_names_sizes_and_holders():
    found = compared(Training(), Training(more={"forward/attention/scores": 4 * MiB}, leak=True))
    before, after = found.total("peak_bytes_in_use")
    lines = str(found).splitlines()
    assert lines[0] == found.headline
    for fact in (f"{(after - before) / MiB:.1f} MiB more", "forward/attention/scores", "4.0 KiB every step"):
        assert fact in found.headline
    # The other way round it is less, and the leak is gone.
    back = compared(Training(more={"forward/attention/scores": 4 * MiB}, leak=True), Training())
    assert f"{(after - before) / MiB:.1f} MiB less" in back.headline
    assert "every step" not in back.headline


def test_no_change_is_said():
    found = compared(Training(), Training())
    assert found.headline.startswith("no change")
    assert found.parts == ((), 0)


def test_failures_of_one_recording_are_in_the_headline():
    calm, failed = Training().trace(), busy_trace(100)
    found = bfcviz.compare_recordings(calm, failed)
    assert "0 in A, 1 in B" in found.headline
    assert "failed" not in bfcviz.compare_recordings(failed, failed).headline


def test_every_measure_has_a_line():
    found = compared(Training(), Training(leak=True))
    lines = str(found).splitlines()
    start = next(number for number, line in enumerate(lines) if line.split() == ["A", "B", "B", "-", "A"])
    assert lines[start + 1 + found.totals.num_rows] == ""
    allocations = next(line for line in lines if line.startswith("allocations"))
    assert allocations.split() == ["allocations", "49", "61", "+12"]


@pytest.mark.parametrize(
    ("value", "unit", "change", "text"),
    [
        (None, BYTES, False, "unknown"),
        (1536, BYTES, True, "+1.5 KiB"),
        (-0.25, SHARE, True, "-25.0 points"),
        (0.25, SHARE, False, "25.0 %"),
        (-1200, COUNT, True, "-1,200"),
        (-0.0021, SECONDS, True, "-2.1 ms"),
        (2.5, SECONDS, True, "+2.5 s"),
    ],
)
def test_values_have_their_units(value, unit, change, text):
    assert compared_value_text(value, unit, change=change) == text


def test_signs():
    assert [signed_bytes(size) for size in (-256, 0, 256)] == ["-256 B", "0 B", "+256 B"]


def test_hostile_labels_stay_on_their_line():
    found = bfcviz.compare_recordings(busy_trace(50), odd_labels())
    lines = str(found).split("\n")
    assert len(lines) == len(comparison_lines(found)) >= 30
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 2000

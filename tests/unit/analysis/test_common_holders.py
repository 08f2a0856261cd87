"""Holders of two recordings in one list; lines of code that moved."""

import numpy as np
from unit.analysis.programs import Training, common

from bfcviz.model import Model


def names_of(holders, number):
    return {holders.names[row] for row in np.flatnonzero(holders.allocated[number])}


def test_a_row_stands_for_the_same_holder_in_both():
    a, b, holders = common(Training().trace(), Training(without=("forward/layer_0",), leak=True).trace())
    assert len(holders) == len(set(holders.names)) == 6
    assert names_of(holders, 0) - names_of(holders, 1) == {"forward/layer_0"}
    assert names_of(holders, 1) - names_of(holders, 0) == {"history/append"}
    for number, side in enumerate((a, b)):
        rows = holders.rows(number, side.allocations)
        labels = [side.trace.labels.name(label) for label in side.allocations["label"].tolist()]
        assert [holders.names[row] for row in rows.tolist()] == labels


def test_lines_that_moved_are_the_same_holder_named_as_in_b():
    _, _, holders = common(Training(line=10).trace(), Training(line=17).trace())
    assert holders.moved_lines == 4
    assert names_of(holders, 0) == names_of(holders, 1)
    assert set(holders.names) == {"weights", *(f"model.py:{line} forward" for line in range(17, 21))}
    assert holders.row_of("model.py:10 forward") == holders.row_of("model.py:17 forward")


def test_lines_that_overlap_are_the_same_line_first():
    _, _, holders = common(Training(line=10).trace(), Training(line=11).trace())
    # 11, 12 and 13 are in both; 10 of A and 14 of B are left.
    assert holders.moved_lines == 1
    assert holders.row_of("model.py:10 forward") == holders.row_of("model.py:14 forward")


def test_another_number_of_lines_is_not_paired():
    more = {f"forward/layer_{number}": 1024 for number in range(4, 6)}
    _, _, holders = common(Training(line=10).trace(), Training(line=30, more=more).trace())
    assert holders.moved_lines == 0
    assert len(holders) == 1 + 4 + 6


def test_chunks_in_use_have_the_rows_of_their_allocations():
    trace = Training(leak=True).trace()
    _, _, holders = common(trace, trace)
    model = Model(trace)
    model.seek(len(trace))
    rows = holders.rows(0, model.in_use())
    assert {holders.names[row] for row in rows.tolist()} == {"weights", "history/append"}

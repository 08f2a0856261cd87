import numpy as np
from unit.figures.synthetic import busy_trace

from bfcviz.model import Model, bytes_by_label


def test_bytes_at_moments_are_those_of_the_fullest_step_of_each_part_and_of_the_end():
    trace = busy_trace()
    model, labels = Model(trace), len(trace.labels)
    states = []
    for step in range(1, len(trace) + 1):
        model.seek(step)
        chunks = model.in_use()
        states.append(np.bincount(chunks["label"], chunks["size"].astype(float), labels))
    found = bytes_by_label.bytes_at_moments(trace, 0, labels)
    assert (found[-1] == states[-1]).all()
    edges = np.linspace(0, len(trace), len(found)).round().astype(int)
    for row, first, stop in zip(found[:-1], edges[:-1], edges[1:], strict=True):
        inside = [state.sum() for state in states[first + 1 : stop - 1]]
        around = [state.sum() for state in states[max(first - 2, 0) : stop + 1]]
        assert max(inside) <= row.sum() <= max(around)


def test_bytes_of_labels_are_those_of_one_pass(monkeypatch):
    trace = busy_trace()
    passes, blocks = [], type(trace).blocks
    monkeypatch.setattr(type(trace), "blocks", lambda self: passes.append(self) or blocks(self))
    held, moments = bytes_by_label.bytes_of_labels(trace, 0)
    assert len(passes) == 1
    assert (held == bytes_by_label.byte_steps(trace, 0, "label")).all()
    assert (moments == bytes_by_label.bytes_at_moments(trace, 0, len(trace.labels))).all()

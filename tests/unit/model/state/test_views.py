"""Chunks and bins of a model's step, against a heap that knows its state."""

import numpy as np
import pytest
from heap_strategies import run, seeded_operations
from hypothesis import given

from bfcviz.events.schema import bin_of
from bfcviz.model import Model


def test_chunks_cannot_be_changed_through_the_model(trace):
    model = Model(trace)
    model.seek(10)
    with pytest.raises(ValueError, match="read-only"):
        model.chunks()["size"] = 0


def test_chunks_are_by_address_from_wherever_one_comes(trace, heap):
    model = Model(trace)
    for step in np.random.default_rng(1).permutation(len(trace))[:100].tolist():
        model.seek(step)
        assert model.chunks().tolist() == heap.states[step][0]["chunks"]


@given(seeded_operations())
def test_bins_count_every_chunk_once_in_the_bin_of_its_size(steps):
    heap = run(steps)
    model = Model(heap.trace(), 0)
    model.seek(len(heap.records))
    bins = model.bins()
    for state, pieces in (("free", heap.pools[0].free()), ("in_use", heap.pools[0].in_use())):
        for number in range(21):
            sizes = [piece.size for piece in pieces if bin_of(piece.size) == number]
            assert bins[number][f"{state}_chunks"] == len(sizes)
            assert bins[number][f"{state}_bytes"] == sum(sizes)

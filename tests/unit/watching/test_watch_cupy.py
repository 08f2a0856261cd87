"""Watch CuPy: its real arrays, in host memory where there is no GPU."""

import numpy as np
import pytest
from unit.live.cupy_stand_in import cupy, gpu, needs_cupy

import bfcviz
from bfcviz.errors import OutOfMemory
from bfcviz.events.schema import Kind
from bfcviz.model.navigation import events_of

pytestmark = needs_cupy
__all__ = ["gpu"]


def test_it_is_served_recorded_and_as_it_was_afterwards(gpu, tmp_path):
    before = cupy.cuda.get_allocator()
    with bfcviz.watch(cupy=True, limit="32MiB", path=tmp_path / "run") as w:
        assert w.says.startswith("CuPy is served")
        with bfcviz.label("weights"):
            array = cupy.empty(1000, np.float64)
        w.mark("step 1")
    assert cupy.cuda.get_allocator() == before
    assert not w.sources[0].is_active
    (made,) = events_of(w.trace, [Kind.ALLOCATE])
    assert (w.trace.labels.name(int(made["label"])), int(made["requested"])) == ("weights", 8000)
    assert len(events_of(w.trace, [Kind.MARK])) == 1
    assert array.nbytes == 8000


def test_where_memory_runs_out_the_error_tells_why(gpu):
    with pytest.raises(OutOfMemory) as caught, bfcviz.watch(cupy=True, limit="8MiB") as w:
        cupy.empty(1 << 21, np.float64)
    assert "failed to allocate 16.0 MiB" in w.failure.words
    assert caught.value.__notes__[-1] == w.failure.note

"""What is recorded of CuPy served from our heaps, and who watches."""

import numpy as np
import pytest
from processes import needs_compiled
from unit.live.cupy_stand_in import cupy, gpu, heap_of, needs_cupy, served

from bfcviz.dashboard.live_dashboard import LiveDashboard
from bfcviz.errors import LiveError
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live import stack_capture
from bfcviz.live.cupy import observe_cupy, serve_cupy
from bfcviz.live.labels_and_marks import label

pytestmark = [needs_cupy, needs_compiled]
__all__ = ["gpu"]


def test_labels_and_sizes_are_recorded(gpu):
    with served() as source:
        with label("encoder"):
            array = cupy.empty(300, np.uint8)
        del array
    events = Reader(heap_of(source).log, 0).read(100)
    (born,) = events[events["kind"] == Kind.ALLOCATE]
    assert (born["requested"], born["size"]) == (300, 512)
    assert heap_of(source).labels.name(int(born["label"])) == "encoder"


@pytest.mark.parametrize("watch", [serve_cupy, observe_cupy])
def test_stacks_are_recorded_if_wanted(gpu, watch):
    with watch(log=EventLog(1 << 10), capture="stack") as source:
        if watch is observe_cupy:
            (hook,) = cupy.cuda.memory_hook.get_memory_hooks().values()
            hook.malloc_postprocess(device_id=0, size=512, mem_size=512, mem_ptr=1 << 20, pmem_id=1)
        else:
            cupy.empty(512, np.uint8)
    events = Reader(source.heaps[0].log, 0).read(100)
    number = int(events[events["kind"] == Kind.ALLOCATE]["label"][0])
    told = str(source.heaps[0].labels[number])
    assert "test_stacks_are_recorded_if_wanted" in told
    assert "_creation" not in told  # CuPy's own frames are left out
    with pytest.raises(LiveError, match="capture='all'"):
        watch(capture="all")


def test_a_stream_that_comes_as_a_stack_is_told_takes_no_heap_from_the_request(gpu, monkeypatch):
    tell, came = stack_capture._StackNamer.__call__, []

    def busy(teller, *known):
        if not came:
            gpu.streams.pop(0x55, None)
            came.append(0x66)
            with gpu.on(stream=0x66):
                came.append(cupy.empty(1000))
        return tell(teller, *known)

    monkeypatch.setattr(stack_capture._StackNamer, "__call__", busy)
    with served(capture="stack") as source:
        with gpu.on(stream=0x55):
            array = cupy.empty(1000)
        assert source.stream_heaps.heaps[0, 0x55].requested_size(array.data.ptr) == 8000
        assert source.stream_heaps.heaps[0, 0x66].requested_size(came[1].data.ptr) == 8000


def test_a_recording_takes_it_all(gpu, tmp_path):
    with Recording(tmp_path / "run") as recording, serve_cupy("8MiB", log=recording) as source:
        with label("weights"):
            array = cupy.empty(300)
        assert heap_of(source).labels is recording.labels
        del array
    trace = recording.trace()
    assert "weights" in trace.labels.names
    assert len(trace) == heap_of(source).log.head


def test_a_dashboard_watches_it(gpu):
    with served() as source:
        array = cupy.empty(1000)
        dashboard = LiveDashboard(source.heaps, start=False)
        dashboard.refresh()
        assert dashboard.trace.origin.pools[0].name == "cupy:0"
        dashboard.close()
        del array
    assert source.way == "serve"
    assert "CuPy is served" in source.description
    assert "64.0 MiB" in source.description

from pathlib import Path

import pytest
from unit.importers.bfc_log.tensor_lines import BASE, LOG, PREFIX, allocation, free

from bfcviz.errors import FileError
from bfcviz.events.origin import Status
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.bfc_log.log_memory_lines import tensor_memory_line
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.model import Model


def read(tmp_path: Path, text: str) -> Trace:
    path = tmp_path / "tf1.stderr"
    path.write_text(text)
    return open_trace(path)


def events_of(trace: Trace) -> Events:
    return trace.read(0, len(trace))


def in_use(trace: Trace, pool: int = 0) -> dict[int, tuple[int, int, str]]:
    model = Model(trace, pool)
    model.seek(len(trace))
    chunks = model.chunks()
    return {
        int(each["address"]): (
            int(each["size"]),
            int(each["requested"]),
            trace.labels.name(int(each["label"])),
        )
        for each in chunks[chunks["in_use"]]
    }


def test_each_line_is_one_event_of_its_heap(tmp_path: Path) -> None:
    trace = read(tmp_path, LOG)
    assert [pool.name for pool in trace.origin.pools] == ["gpu_bfc", "cpu"]
    assert in_use(trace) == {BASE: (512, 512, "TF_AllocateTensor"), BASE + 1024: (5120, 5000, "conv")}
    assert in_use(trace, 1) == {0x5000: (256, 12, "Unknown (from Proto)")}
    events = events_of(trace)
    kinds = events["kind"].tolist()
    assert [kinds.count(kind) for kind in (Kind.ALLOCATE, Kind.FREE, Kind.MARK)] == [4, 1, 1]
    assert events["size"][events["kind"] == Kind.MARK].tolist() == [2]
    label = trace.labels[int(events["label"][events["requested"] == 5000][-1])]
    assert dict(label.details) == {"data_type": "float", "shape": "[250,4]"}


def test_it_says_that_regions_are_unknown(tmp_path: Path) -> None:
    trace = read(tmp_path, LOG)
    assert trace.origin.status == Status.DEGRADED
    assert "does not hold regions" in trace.origin.reasons[0]
    assert "its 3 tensors" in trace.origin.reasons[0]
    assert trace.origin.details["facts"][0]["pool_bytes"] is None  # type: ignore[index]


def test_what_is_missing_is_counted(tmp_path: Path) -> None:
    text = LOG + free(77) + f'{PREFIX}MemoryLogTensorDeallocation {{ allocator_name: "gpu_bfc" }}\n'
    text += allocation(4, BASE + 1024, 100, "relu")  # over `conv`, whose free is missing
    text += allocation(5, 1 << 63, 100) + allocation(4, BASE + 1024, 100, "again")
    trace = read(tmp_path, text)
    reasons = " ".join(trace.origin.reasons)
    assert "1 frees of memory whose allocation was not seen" in reasons
    assert "left out: 1 frees without the number of their allocation" in reasons
    assert "1 frees were concluded from later allocations" in reasons
    assert "left out: 1 allocations without an address or a size" in reasons
    assert in_use(trace)[BASE + 1024] == (256, 100, "relu")


def test_a_cut_line_is_said(tmp_path: Path) -> None:
    trace = read(tmp_path, LOG + allocation(9, BASE + (1 << 20), 300)[:-20])
    assert trace.origin.reasons[0].startswith("the log is cut off in line 10")


def test_a_log_without_an_allocation_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        read(tmp_path, free(1))


def test_a_record_without_a_message_is_none() -> None:
    assert tensor_memory_line("AllocateRaw GPU_0_bfc  8") is None
    found = tensor_memory_line(allocation(7, 4096, 256).split("] ", 1)[1])
    assert found is not None
    assert (found.kind, found.allocation_id, found.address, found.is_whole) == (
        "TensorAllocation",
        7,
        4096,
        True,
    )

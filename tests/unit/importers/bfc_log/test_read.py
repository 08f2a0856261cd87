import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared import SHARED, needs_shared
from unit.importers.bfc_log.log_maker import ERAS, SETTINGS, Era, MadeChunk, MadeHeap, heaps, human, make_log

import bfcviz
from bfcviz.analysis.heap_settings import Family
from bfcviz.cli.info import info
from bfcviz.errors import FileError
from bfcviz.events.origin import Status, recorded_failures
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.bfc_log.log_lines import PrintedSize, log_line_size_text, size_in_log_line
from bfcviz.importers.bfc_log.read import read_log
from bfcviz.importers.message_reader import read_message_file
from bfcviz.model import Model

LOGS = SHARED / "real" / "logs"
EXPECTED = SHARED / "real" / "expected.jsonl"


def opened(folder: Path, text: str | bytes) -> Trace:
    path = folder / "job.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_log(path)


def shown(trace: Trace, pool: int = 0) -> list[tuple[int, int, bool]]:
    model = Model(trace, pool)
    model.seek(len(trace))
    return [(int(c["address"]), int(c["size"]), bool(c["in_use"])) for c in model.chunks()]


def made(heap: MadeHeap) -> list[tuple[int, int, bool]]:
    address, rows = 0, []
    for start, chunks in heap.regions:
        address = start
        for chunk in chunks:
            rows.append((address, chunk.size, chunk.in_use))
            address += chunk.size
    return rows


COMPLETE = [era for era in ERAS.values() if era.lists_chunks and era.lists_free]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("era", COMPLETE, ids=lambda era: era.name)
@given(heap=heaps(), where=st.sampled_from(sorted(SETTINGS)))
def test_a_heap_comes_back_from_a_log_of_every_era(
    tmp_path: Path, era: Era, heap: MadeHeap, where: str
) -> None:
    trace = opened(tmp_path, SETTINGS[where](make_log(heap, era)))
    assert (trace.origin.status, trace.origin.reasons) == (Status.COMPLETE, ())
    assert shown(trace) == made(heap)
    model = Model(trace)
    model.seek(len(trace))
    assert [(r["address"], r["size"]) for r in model.regions()] == [
        (start, sum(chunk.size for chunk in chunks)) for start, chunks in heap.regions
    ]
    [failure] = recorded_failures(trace.origin.details)
    oom = trace.read(failure.event, failure.event + 1)[0]
    free = [size for _, size, used in made(heap) if not used]
    assert (failure.event, oom["kind"]) == (len(trace) - 1, Kind.OOM)
    assert (oom["address"], oom["size"]) == (sum(free), max(free, default=0))
    # The first versions print the size rounded up to the heap's unit.
    printed = -(-heap.request // 256) * 256 if era.late_header else heap.request
    assert abs(int(oom["requested"]) - printed) <= max(256, printed / 100)
    if "rounded" in era.header:
        assert failure.rounded == -(-heap.request // 256) * 256
    if "requested by op" in era.header:
        assert failure.op == heap.op
    [pool] = trace.origin.pools
    assert pool.name == ("BFC allocator" if era.late_header else heap.name)
    assert pool.limit == heap.pool or era.human


@pytest.mark.parametrize("name", ["2.5 debug", "xla 2026"])
@given(heap=heaps())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_operations_become_labels(tmp_path: Path, name: str, heap: MadeHeap) -> None:
    trace = opened(tmp_path, make_log(heap, ERAS[name]))
    events = trace.read(0, len(trace))
    labels = [trace.labels.name(n) for n in events["label"][events["kind"] == Kind.ALLOCATE].tolist()]
    around = "step{n=1, k=a b} / " if name == "xla 2026" else ""
    assert labels == [around + (c.op or "unused") for _, chunks in heap.regions for c in chunks if c.in_use]


def expected() -> list[tuple[int, dict[str, Any]]]:
    """The rows of logs, and the place of each among those of its file."""
    lines = EXPECTED.read_text().splitlines() if EXPECTED.is_file() else []
    rows = [row for row in map(json.loads, lines) if "alloc" in row]
    return [(sum(row["file"] == each["file"] for each in rows[:n]), row) for n, row in enumerate(rows)]


@needs_shared
@pytest.mark.parametrize(
    ("place", "row"), expected(), ids=lambda each: each["file"] if type(each) is dict else ""
)
def test_real_logs_give_the_counted_totals(place: int, row: dict[str, Any]) -> None:
    trace = bfcviz.open(LOGS / str(row["file"]))
    stated = info(trace)
    allocator = stated["allocators"][place]
    assert (stated["status"], stated["reasons"]) == ("complete", [])
    assert allocator["name"].startswith(row["alloc"][0])
    assert {
        "chunks_in_use": row["in_use_chunks"],
        "chunks_free": row["free_chunks"],
        "bytes_in_use": row["in_use_bytes"],
        "free_bytes": row["free_bytes"],
        "largest_free_chunk": row["largest_free"],
        "bytes_limit": int(row["stats"]["Limit"]),
        "peak_bytes_in_use": int(row["stats"]["MaxInUse"]),
        "requested_bytes_in_use": None,
    }.items() <= allocator.items()
    assert round(allocator["external_fragmentation"], 4) == row["frag"]
    assert allocator["regions"] == max(1, row["n_regions"])


@needs_shared
@pytest.mark.parametrize(
    ("file", "requested", "exact", "op", "tensor"),
    [
        ("tf1.4_2017-11_alexnet_k40c.log", [77_760_000], True, "conv1/Conv2D", "[128,225,225,3]"),
        ("tf2.0_2019-10_fastestimator_tut11_1.log", [221_952], True, "", "float [1,192,17,17]"),
        ("tf2.14_2023-10_cifar10.log", [614_400_000], False, "_EagerConst", ""),
        ("xla_2025-01_reactant.log", [4_000_000_000], True, "", ""),
        ("jax_2024-05_v32test.log", [2_110_783_616], True, "", ""),
        (
            "tf1.12_2019-04_summit_resnet_1gpu.log",
            [411_041_792, 411_041_792, 1_048_576],
            True,
            "",
            "float [512,64,56,56]",
        ),
    ],
)
def test_requests_of_real_logs(file: str, requested: list[int], exact: bool, op: str, tensor: str) -> None:
    trace = bfcviz.open(LOGS / file)
    failures = recorded_failures(trace.origin.details)
    assert [int(trace.read(f.event, f.event + 1)["requested"][0]) for f in failures] == requested
    assert (failures[0].is_exact, failures[0].op, failures[0].tensor) == (exact, op, tensor)
    last = [pool["event"] for pool in trace.origin.details["failures"]][-1]
    assert last == len(trace) - 1


@needs_shared
def test_soft_failures_are_marks() -> None:
    trace = bfcviz.open(LOGS / "tf1.12_2019-04_summit_resnet_1gpu.log")
    events = trace.read(0, len(trace))
    marks = events[events["kind"] == Kind.MARK]
    assert (len(marks), set(marks["pool"].tolist())) == (8, {2})
    assert (events["kind"] == Kind.OOM).sum() == 3
    assert (
        trace.labels.name(int(marks["label"][0])) == "a request for 1.33GiB found no memory (not a failure)"
    )


@needs_shared
def test_a_jax_log_with_warnings_only_says_how_to_get_more() -> None:
    trace = bfcviz.open(LOGS / "jax_2024-05_v32test.log")
    assert trace.origin.status is Status.DEGRADED
    assert "TF_CPP_MIN_LOG_LEVEL=0" in trace.origin.reasons[0]
    details = trace.origin.details
    assert (details["framework"], len(details["occupancy"][0])) == ("jax", 100)
    [table] = details["buffers"]
    assert table["stats"]["total allocation"] == "7.88GiB"
    assert len(table["buffers"]) == 6
    assert table["buffers"][0]["shape"] == "f32[5104,257152]"
    assert table["buffers"][0]["source_line"] == "175"
    assert table["buffers"][2] == {"size": "1004.50MiB", "shape": "f16[2048,257152]"}
    assert info(trace)["allocators"][0]["free_bytes"] is None


@needs_shared
@pytest.mark.parametrize(
    ("file", "pools", "chunks"),
    [
        ("tf1.1_hardwrapped_paste_issue9790.log", 1, 5),
        ("tf1.3_cuda_host_bfc_issue11915.log", 2, 0),
        ("tf1.8_windows_path_issue19879.log", 1, 9),
        ("tf2.5_windows_by_op_issue51246.log", 1, 7),
        ("tf2.7_sleap_windows_issue2142.log", 2, 3),
        ("xla_prefix_variants.log", 5, 1),
    ],
)
def test_excerpts_are_read_as_far_as_they_go(file: str, pools: int, chunks: int) -> None:
    trace = bfcviz.open(LOGS / "excerpts" / file)
    assert trace.origin.status is Status.DEGRADED
    assert len(trace.origin.pools) == pools
    assert sum(len(shown(trace, pool)) for pool in range(pools)) == chunks


@needs_shared
def test_a_log_and_its_memory_dump_hold_the_same_chunks() -> None:
    folder = SHARED / "real" / "tensorflow"
    trace = bfcviz.open(folder / "oom_transformer.log")
    assert trace.origin.status is Status.COMPLETE
    assert shown(trace) == dumped_chunks((folder / "oom_transformer.memory_dump").read_bytes())
    [failure] = recorded_failures(trace.origin.details)
    assert (failure.op, failure.rounded, failure.is_exact) == (
        "functional_1/dense_4_1/Tensordot/MatMul",
        848_128,
        True,
    )
    assert trace.origin.pools[0].options["allow_growth"] is True


def dumped_chunks(data: bytes) -> list[tuple[int, int, bool]]:
    """Address, size and whether in use of each `MemChunk` (field 3 of `MemoryDump`)."""
    rows = []
    for number, value in fields(data):
        if number == 3:
            chunk = dict(fields(value))
            rows.append((chunk[1], chunk[2], bool(chunk.get(8, 0))))
    return sorted(rows)


def fields(data: bytes) -> list[tuple[int, int | bytes]]:
    found: list[tuple[int, int | bytes]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        elif key & 7 == 5:
            at += 4
        else:
            size = varint()
            found.append((key >> 3, data[at : at + size]))
            at += size
    return found


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no dump"):
        opened(tmp_path, "I a/bfc_allocator.cc:1] Something else\n")


def test_a_packed_log(tmp_path: Path, heap: MadeHeap) -> None:
    text = make_log(heap, ERAS["2.14"])
    assert shown(opened(tmp_path, gzip.compress(text.encode()))) == made(heap)


@pytest.fixture
def heap() -> MadeHeap:
    rng = random.Random(4)

    def chunks(count: int) -> list[MadeChunk]:
        sizes = [256 * rng.randint(1, 5000) for _ in range(count)]
        return [MadeChunk(size, size - 6, place % 3 != 1, "Fill") for place, size in enumerate(sizes)]

    return MadeHeap([(0x7F0000000000, chunks(40)), (0x7F1000000000, chunks(25))], 3 << 20)


# A pool with two ends: lower in use, a lower hole, lower in use, the gap, a larger upper hole, upper in use.
TWO_ENDS = """\
W1106 08:55:24.919712 1 bfc_allocator.cc:2] Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.00MiB \
(rounded to 3145728) from the lower end requested by op fusion
I1106 08:55:24.919712 1 bfc_allocator.cc:6] BFCAllocator dump for GPU_0_bfc
I1106 08:55:24.919712 1 bfc_allocator.cc:6] Bin for 3.00MiB was 2.00MiB, Chunk State:
I1106 08:55:24.919712 1 bfc_allocator.cc:6] Next region of size 16777216
I1106 08:55:24.919712 1 bfc_allocator.cc:6] InUse at 7f0000000000 of size 2097152 tag lower next 1
I1106 08:55:24.919712 1 bfc_allocator.cc:6] Free  at 7f0000200000 of size 1048576 tag lower next 2
I1106 08:55:24.919712 1 bfc_allocator.cc:6] InUse at 7f0000300000 of size 3145728 tag lower next 3
I1106 08:55:24.919712 1 bfc_allocator.cc:6] Free  at 7f0000600000 of size 2097152 tag central_gap next 4
I1106 08:55:24.919712 1 bfc_allocator.cc:6] InUse at 7f0000800000 of size 1048576 tag upper next 5
I1106 08:55:24.919712 1 bfc_allocator.cc:6] Free  at 7f0000900000 of size 5242880 tag upper next 6
I1106 08:55:24.919712 1 bfc_allocator.cc:6] InUse at 7f0000e00000 of size 2097152 tag upper next 18446744073709551615
I1106 08:55:24.919712 1 bfc_allocator.cc:6]      Summary of in-use Chunks by size:
I1106 08:55:24.919712 1 bfc_allocator.cc:6] Sum Total of in-use chunks: 8.00MiB
I1106 08:55:24.919712 1 bfc_allocator.cc:6] Allocator memory summary: rounded request 3.00MiB, total free in pool \
8.00MiB, largest free chunk usable by lower end 2.00MiB, unallocated bytes 0B, pool size 16.00MiB, pool limit 16.00MiB
I1106 08:55:24.919712 1 bfc_allocator.cc:6] Spatial partitioning summary for lower end: central gap {gap}, largest \
same-end binned free chunk 1.00MiB, largest binned free chunk from any end 5.00MiB. The central gap is shared by \
lower/upper allocations and is not inserted into a bin.
I1106 08:55:24.919712 1 bfc_allocator.cc:6] Stats:
Limit: 16.00MiB
InUse: 8.00MiB
"""


@pytest.mark.parametrize(("gap", "differs"), [("2.00MiB", False), ("2.50MiB", True)])
def test_a_request_may_use_the_holes_of_its_end_and_the_gap(
    tmp_path: Path, gap: str, *, differs: bool
) -> None:
    trace = opened(tmp_path, TWO_ENDS.format(gap=gap))
    failed = trace.read(0, len(trace))[-1]
    assert failed["kind"] == Kind.OOM
    assert (failed["address"], failed["size"]) == (8 << 20, 2 << 20)
    assert trace.origin.pools[0].options["spatial_partitioning"] is True
    assert any("central gap" in reason for reason in trace.origin.reasons) == differs


@given(st.integers(0, 1 << 49))
def test_sizes_are_printed_as_tensorflow_does(size: int) -> None:
    text = log_line_size_text(size)
    assert text == human(size)
    printed = size_in_log_line(text)
    assert printed is not None
    assert printed.means(size)
    assert abs(printed.value - size) <= max(size / 20, 1)  # 1.0KiB can be 1,075 bytes
    assert printed == size_in_log_line(text.replace(".", ","))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", PrintedSize("0B", 0, True)),
        ("77", PrintedSize("77", 77, True)),
        ("392.00MiB", PrintedSize("392.00MiB", 411_041_792, False)),
        ("4,52GiB", PrintedSize("4.52GiB", 4_853_313_044, False)),
        ("9999999.00EiB", None),
        ("5 apples", None),
    ],
)
def test_texts(text: str, size: PrintedSize | None) -> None:
    assert size_in_log_line(text) == size


def test_four_billion_bytes_are_cut_off_not_rounded() -> None:
    assert log_line_size_text(4_000_000_000) == "3.72GiB"  # 3.7253: as in the log of Reactant
    assert not size_in_log_line("3.73GiB").means(4_000_000_000)  # type: ignore[union-attr]


# ------------------------------------------------------------------------------
# ONNX Runtime's arena prints its chunks as TensorFlow's allocator does: its log opens as a heap.

MIB = 1 << 20
BEFORE = "2023-06-12 07:17:51.{:09d} [I:onnxruntime:Default, bfc_arena.cc:{} DumpMemoryLog] "


def log(chunks, requested):
    """As `BFCArena::AllocateRawInternal` and `DumpMemoryLog` write it (onnxruntime/core/framework/bfc_arena.cc).

    Args:
        chunks: address, size, whether in use.
    """
    lines = [
        (
            "[E:onnxruntime:Default, bfc_arena.cc:300 AllocateRawInternal] BFC Arena ran out of memory trying to "
            f"allocate {requested}.  Current allocation summary follows."
        ),
        "Allocator:Cuda",
        "Bin size: Chunks in_use/total (if not zero). Allocated bytes in_use/total. Requested bytes.",
        "1048576: Chunks 1/2. Bytes 3145728/5242880. Requested 3145000.",
        "Diff between in-use and requested bytes is 728",
        f"Bin for {requested} bytes has max bytes of 4194304, Chunk State: ",
        "Overall chunks summary:",
        *(
            f"{'  Chunk' if used else '  Free '} at {address:#x} of size {size}"
            for address, size, used in chunks
        ),
        "Summary of in-use chunks by size: ",
        "  1 chunks of size 3145728. Total 3145728",
        "Sum Total of in-use chunks: 3145728",
        (
            "Stats: \nLimit:                 5242880\nInUse:                 3145728\nTotalAllocated:        5242880\n"
            "MaxInUse:              3145728\nNumAllocs:                   7\nMaxAllocSize:          3145728\n"
        ),
    ]
    text = [BEFORE.format(number, 400 + number) + line for number, line in enumerate(lines)]
    text[0] = text[0].split("[I:")[0] + lines[0]
    return "\n".join(text) + "\n"


def test_a_log_of_the_arena_opens_as_a_heap(tmp_path):
    base = 0x7FA4C6800000
    chunks = [(base, MIB, False), (base + MIB, 3 * MIB, True), (base + 4 * MIB, MIB, False)]
    path = tmp_path / "onnx.log"
    path.write_text(log(chunks, 2 * MIB - 100))
    assert read_message_file(path) is None
    trace = bfcviz.open(path)
    model = Model(trace)
    model.seek(len(trace) - 1)
    assert [(int(row["address"]), int(row["size"]), bool(row["in_use"])) for row in model.chunks()] == chunks
    found = bfcviz.why(path)
    assert (found.requested, found.rounded, found.bytes_limit) == (2 * MIB - 100, 2 * MIB, 5 * MIB)
    assert (found.verdict, found.settings.family) == ("fragmentation", Family.ONNX)
    assert not [each.text for each in found.advice if "TF_" in each.text]


def test_a_message_without_chunks_is_read_as_a_text(tmp_path):
    path = tmp_path / "onnx.log"
    path.write_text(BEFORE.format(1, 376) + "Available memory of 0 is smaller than requested bytes of 2048\n")
    (found,) = bfcviz.why(path).failures
    assert found.judgement.cause == "cap_by_setting"

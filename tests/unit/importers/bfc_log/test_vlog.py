import re
from itertools import zip_longest
from pathlib import Path

import pytest
from shared import needs_shared
from unit.importers.bfc_log.vlog_maker import STACK, RecordingBFC, VlogMaker, random_run
from unit.importers.made import REAL
from unit.importers.naive_view import view_of

from bfcviz.errors import FileError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Status, recorded_failures
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.bfc_log.log_lines import log_text, records
from bfcviz.importers.bfc_log.vlog import (
    Act,
    PlacedVlogFrees,
    VlogLabels,
    VlogOperation,
    holds_regions,
    holds_requests,
    place_frees,
    read_vlog,
)
from bfcviz.importers.file_content import TEXT, UNPACKED_TEXT, Limits, read_content
from bfcviz.importers.file_format import Format, detect_format
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.model import Model

NAME = "GPU_0_bfc"
BASE = 0x7F12_0000_0000
MIB = 1 << 20
KERNEL = "tensorflow::BinaryOp<Eigen::ThreadPoolDevice, tensorflow::functor::add<float> >"


def read(path: Path, text: str | bytes) -> Trace:
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(data)
    return read_vlog(records(log_text(data)), path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.log"


def events_of(trace: Trace) -> Events:
    return trace.read(0, len(trace))


def kinds_of(trace: Trace) -> list[Kind]:
    return [Kind(kind) for kind in events_of(trace)["kind"].tolist()]


def checks_of(trace: Trace, pool: int = 0) -> dict[str, object]:
    found = trace.origin.details["checks"]
    assert isinstance(found, list)
    return dict(found[pool])


@needs_shared
def test_every_address_of_a_real_stream_agrees() -> None:
    path = REAL / "lstm.vlog.gz"
    assert detect_format(path) == Format.TENSORFLOW_LOG
    text = read_content(path, unpacked=UNPACKED_TEXT).data.decode()
    trace = open_trace(path)
    assert trace.origin.status == Status.TRUNCATED
    assert trace.origin.reasons == ("the log ends at line 171279 in the middle of a free of 8 bytes",)
    assert trace.origin.lacks_end
    check = checks_of(trace)
    assert (check["method"], check["checked"], check["differing"]) == ("replayed", 2291, 0)
    events = events_of(trace)
    for kind, word in ((Kind.ALLOCATE, "AllocateRaw"), (Kind.FREE, "DeallocateRaw")):
        logged = re.findall(rf"\[mem-debug\] {word},\w+,(\d+),0x([0-9a-f]+),", text)
        found = events[events["kind"] == kind]
        assert [(int(size), int(at, 16)) for size, at in logged] == list(
            zip(found["requested"].tolist(), found["address"].tolist(), strict=True)
        )
    (extend,) = events[events["kind"] == Kind.EXTEND]
    assert (int(extend["address"]), int(extend["size"])) == (0x556775438EC0, 2 * MIB)
    peaks = re.findall(r"New Peak memory usage of (\d+) bytes", text)
    model = Model(trace)
    model.seek(len(trace))
    assert model.stats().peak_bytes_in_use == int(peaks[-1])


@pytest.mark.parametrize("named_threads", [True, False])
@pytest.mark.parametrize("allow_growth", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_stream_is_replayed_exactly(
    path: Path, seed: int, *, allow_growth: bool, named_threads: bool
) -> None:
    heap, maker = RecordingBFC(300 * MIB, allow_growth), VlogMaker(named_threads=named_threads)
    maker.create(NAME)
    live = random_run(maker, heap, NAME, 400, seed=seed)
    trace = read(path, maker.text())
    assert (trace.origin.status, trace.origin.reasons) == (Status.COMPLETE, ())
    assert (checks_of(trace)["method"], checks_of(trace)["checked"]) == ("replayed", 400)
    assert trace.origin.pools[0].options["allow_growth"] is allow_growth
    view = view_of(events_of(trace))
    assert view.in_use == heap.in_use
    assert view.in_use.keys() == live.keys()
    events = events_of(trace)
    names = {trace.labels.name(int(each)) for each in events["label"][events["kind"] == Kind.ALLOCATE]}
    assert names == {f"Op{number}" for number in range(5)}
    assert (events["by"] > 0).all() == named_threads


def test_the_stack_is_kept_and_the_times_count_from_the_first_record(path: Path) -> None:
    maker = VlogMaker()
    maker.create(NAME)
    maker.begin(NAME, 100)
    maker.extend(NAME, BASE, 2 * MIB)
    maker.allocate(NAME, 100, BASE, kernel=KERNEL)
    trace = read(path, maker.text())
    event = events_of(trace)[-1]
    assert (event["kind"], event["address"], event["size"]) == (Kind.ALLOCATE, BASE, 256)
    label = trace.labels[int(event["label"])]
    assert label.name == "BinaryOp<add<float>>"
    stack = label.details["stack"].splitlines()
    assert (len(stack), stack[-1]) == (4, "_start")
    assert event["time"] == 6000  # the sixth microsecond
    assert trace.origin.details["threads"] == {"1": "12500"}


def test_without_addresses_of_frees_distinct_sizes_are_enough(path: Path) -> None:
    heap, maker = RecordingBFC(64 * MIB), VlogMaker(level=3)
    maker.create(NAME)
    live: dict[int, int] = {}
    for number in range(200):
        requested = 10 + number * 300
        if number % 3 == 2:
            address, size = live.popitem()
            maker.free(NAME, size, address)
            heap.deallocate(address)
        maker.begin(NAME, requested)
        known = len(heap.granted)
        address, _ = heap.allocate(requested, BASE + (heap.extensions << 30))
        for start, size in heap.granted[known:]:
            maker.extend(NAME, start, size)
        maker.allocate(NAME, requested, address)
        live[address] = requested
    trace = read(path, maker.text())
    assert (trace.origin.status, checks_of(trace)["method"]) == (Status.COMPLETE, "replayed")
    assert view_of(events_of(trace)).in_use == heap.in_use


@pytest.mark.parametrize("seed", range(3))
def test_without_addresses_of_frees_guesses_are_counted(path: Path, seed: int) -> None:
    heap, maker = RecordingBFC(300 * MIB), VlogMaker(level=3)
    maker.create(NAME)
    random_run(maker, heap, NAME, 600, seed=seed)
    trace = read(path, maker.text())
    kinds = kinds_of(trace)
    assert kinds.count(Kind.ALLOCATE) + kinds.count(Kind.FREE) == 600
    is_guessed = any("frees could be of several chunks" in reason for reason in trace.origin.reasons)
    assert is_guessed or view_of(events_of(trace)).in_use == heap.in_use


@pytest.mark.parametrize("level", [1, 2])
def test_low_levels_hold_regions_only_and_say_how_to_run_again(path: Path, level: int) -> None:
    heap, maker = RecordingBFC(300 * MIB), VlogMaker(level=level)
    maker.create(NAME)
    random_run(maker, heap, NAME, 300, seed=1)
    assert (holds_regions(maker.text()), holds_requests(maker.text())) == (True, False)
    trace = read(path, maker.text())
    events = events_of(trace)
    assert [(int(e["address"]), int(e["size"])) for e in events] == heap.granted
    assert "TF_CPP_VMODULE=bfc_allocator=4" in trace.origin.reasons[0]
    assert set(trace.origin.details["facts"][0].values()) == {None}  # type: ignore[index]


def test_two_allocators_become_two_heaps_in_one_order(path: Path) -> None:
    heaps, maker = [RecordingBFC(300 * MIB), RecordingBFC(200 * MIB, allow_growth=False)], VlogMaker()
    names = ["GPU_0_bfc", "gpu_host_bfc"]
    streams = []
    for number, name in enumerate(names):
        maker.create(name)
        one = VlogMaker(first_thread=100 * number)
        random_run(one, heaps[number], name, 200, seed=number, base=(number + 1) << 42)
        streams.append(one.lines)
    for pair in zip_longest(*streams, fillvalue=""):
        maker.lines += pair
    trace = read(path, maker.text())
    assert [pool.name for pool in trace.origin.pools] == names
    assert [checks_of(trace, pool)["differing"] for pool in range(2)] == [0, 0]
    for pool, heap in enumerate(heaps):
        assert view_of(events_of(trace), pool).in_use == heap.in_use


def one_chunk(maker: VlogMaker, name: str = NAME) -> None:
    maker.create(name)
    maker.begin(name, MIB)
    maker.extend(name, BASE, 2 * MIB)
    maker.allocate(name, MIB, BASE)


def test_a_second_run_in_the_file_is_another_heap(path: Path) -> None:
    maker = VlogMaker()
    one_chunk(maker)
    one_chunk(maker)
    trace = read(path, maker.text())
    assert [pool.name for pool in trace.origin.pools] == [NAME, f"{NAME} (run 2)"]
    assert trace.origin.reasons == ()


@pytest.mark.parametrize("level", [2, 3, 4])
def test_a_failed_request_is_an_oom_event(path: Path, level: int) -> None:
    maker = VlogMaker(level)
    one_chunk(maker)
    maker.fail(NAME, 5 * MIB + 3)
    trace = read(path, maker.text())
    event = events_of(trace)[-1]
    (failure,) = recorded_failures(trace.origin.details)
    assert (event["kind"], failure.event) == (Kind.OOM, len(trace) - 1)
    assert (failure.op, failure.rounded, failure.is_exact) == ("model/conv", 5 * MIB + 256, level > 2)
    assert event["requested"] == (5 * MIB + 3 if level > 2 else 5 * MIB)
    if level > 2:
        assert (event["address"], event["size"]) == (MIB, MIB)  # free bytes and largest free chunk
        assert trace.origin.status == Status.COMPLETE


def test_an_optional_request_that_fails_is_no_oom(path: Path) -> None:
    maker = VlogMaker()
    one_chunk(maker)
    maker.fail(NAME, 5 * MIB, soft=True)
    maker.begin(NAME, 300)
    maker.allocate(NAME, 300, BASE + MIB)
    trace = read(path, maker.text())
    assert Kind.OOM not in kinds_of(trace)
    assert trace.origin.details["failures"] == []
    assert trace.origin.status == Status.COMPLETE


def test_after_ten_optional_failures_others_are_uncertain(path: Path) -> None:
    maker = VlogMaker()
    one_chunk(maker)
    for _ in range(10):
        maker.fail(NAME, 5 * MIB, soft=True)
    maker.fail(NAME, 5 * MIB)
    trace = read(path, maker.text())
    assert kinds_of(trace).count(Kind.OOM) == 1
    assert trace.origin.reasons[0].startswith("1 failed requests may have been optional")


def test_garbage_collection_releases_a_region(path: Path) -> None:
    """A heap of 7 MiB: 2 MiB are allocated and freed, then 6 MiB need the whole pool."""
    maker = VlogMaker()
    maker.create(NAME)
    maker.begin(NAME, 2 * MIB)
    maker.extend(NAME, BASE, 2 * MIB)
    maker.allocate(NAME, 2 * MIB, BASE)
    maker.free(NAME, 2 * MIB, BASE)
    maker.begin(NAME, 6 * MIB)
    maker.put(2, f"Deallocate region with ptr = {BASE:#x}")
    maker.extend(NAME, 2 * BASE, 7 * MIB)
    maker.allocate(NAME, 6 * MIB, 2 * BASE)
    trace = read(path, maker.text())
    assert checks_of(trace)["method"] == "replayed"
    assert kinds_of(trace) == [
        Kind.EXTEND, Kind.ALLOCATE, Kind.FREE, Kind.RELEASE, Kind.EXTEND, Kind.ALLOCATE
    ]  # fmt: skip
    assert trace.origin.pools[0].options["garbage_collection"] is True


def test_what_differs_from_a_replay_is_placed_where_it_was(path: Path) -> None:
    maker = VlogMaker()
    one_chunk(maker)
    maker.begin(NAME, 700)
    maker.allocate(NAME, 700, BASE + MIB + 512)  # the heap would take BASE + MIB
    maker.begin(NAME, 300)
    maker.allocate(NAME, 300, BASE + MIB)  # the rest of 512 bytes is not split
    trace = read(path, maker.text())
    assert trace.origin.status == Status.DEGRADED
    assert (checks_of(trace)["method"], checks_of(trace)["differing"]) == ("tiled", 2)
    assert "the sizes of 3 chunks were computed by TensorFlow's rules" in trace.origin.reasons[0]
    assert view_of(events_of(trace)).in_use == {BASE: MIB, BASE + MIB: 512, BASE + MIB + 512: 768}


def test_a_stream_from_the_middle_says_that_sizes_are_rounded_requests(path: Path) -> None:
    heap, maker = RecordingBFC(300 * MIB), VlogMaker()
    maker.create(NAME)
    random_run(maker, heap, NAME, 400, seed=1)
    lines = maker.text().splitlines(keepends=True)
    begin = next(at for at in range(len(lines) // 2, len(lines)) if "] AllocateRaw" in lines[at])
    trace = read(path, "".join(lines[begin:]))
    assert trace.origin.status == Status.DEGRADED
    assert "the log does not hold its creation" in trace.origin.reasons[0]
    assert trace.origin.details["facts"][0]["bytes_in_use"] is None  # type: ignore[index]
    model = Model(trace)
    model.seek(len(trace))
    chunks = model.chunks()
    assert set(chunks["address"][chunks["in_use"]].tolist()) <= heap.in_use.keys()


def test_threads_without_names_that_interleave_are_told_apart_by_size_and_address(path: Path) -> None:
    maker = VlogMaker(named_threads=False)
    maker.create(NAME)
    maker.begin(NAME, 400)
    maker.begin(NAME, 500)
    maker.extend(NAME, BASE, 2 * MIB)
    maker.put(4, f"Returning: {BASE:#x}")
    maker.put(4, f"Returning: {BASE + 512:#x}")
    maker.put(3, f"AllocateRaw {NAME}  500 {BASE + 512:#x}")
    maker.put(3, f"AllocateRaw {NAME}  400 {BASE:#x}")
    maker.put(4, f"[mem-debug] AllocateRaw,{NAME},400,{BASE:#x},")
    maker.put(4, f"[mem-debug] AllocateRaw,{NAME},500,{BASE + 512:#x},")
    maker.put(3, f"DeallocateRaw {NAME} 400")
    maker.put(3, f"DeallocateRaw {NAME} 500")
    maker.put(4, f"[mem-debug] DeallocateRaw,{NAME},500,{BASE + 512:#x},")
    maker.put(4, f"[mem-debug] DeallocateRaw,{NAME},400,{BASE:#x},")
    trace = read(path, maker.text())
    events = events_of(trace)
    assert (trace.origin.reasons, checks_of(trace)["method"]) == ((), "replayed")
    assert events["address"][events["kind"] == Kind.ALLOCATE].tolist() == [BASE, BASE + 512]
    assert events["address"][events["kind"] == Kind.FREE].tolist() == [BASE, BASE + 512]


def test_an_allocation_is_named_by_the_kernel_that_another_record_names(path: Path) -> None:
    maker = VlogMaker(level=3)
    one_chunk(maker)
    memory = (
        f'requested_bytes: {MIB} allocated_bytes: {MIB} allocator_name: "{NAME}" allocation_id: 1 ptr: {BASE}'
    )
    maker.put(
        0,
        '__LOG_MEMORY__ MemoryLogTensorAllocation { step_id: 8 kernel_name: "conv1" tensor { dtype: DT_FLOAT '
        f"shape {{ dim {{ size: 512 }} dim {{ size: 512 }} }} allocation_description {{ {memory} }} }} }}",
        file="log_memory.cc:34",
    )
    trace = read(path, maker.text())
    label = trace.labels[int(events_of(trace)["label"][-1])]
    assert (label.name, dict(label.details)) == ("conv1", {"data_type": "float", "shape": "[512,512]"})


def test_impossible_numbers_are_counted(path: Path) -> None:
    maker = VlogMaker()
    one_chunk(maker)
    maker.put(3, f"AllocateRaw {NAME}  {1 << 63} 0x1000")
    maker.put(1, "Allocated memory at 0x2000 to 0x1000")
    maker.put(3, f"AllocateRaw {NAME}  99999999999999999999 0xffffffffffffffff")
    trace = read(path, maker.text())
    assert trace.origin.status == Status.DEGRADED
    reasons = " ".join(trace.origin.reasons)
    assert "left out: 2 allocations of impossible sizes or addresses" in reasons
    assert "left out: 1 grants of memory" in reasons
    assert kinds_of(trace).count(Kind.ALLOCATE) == 1


def test_a_log_without_a_heap_is_an_error(path: Path) -> None:
    with pytest.raises(FileError, match="without a heap"):
        read(path, "I0000 00:00:1.0 1 bfc_allocator.cc:89] Creating new BFCAllocator named: x\n")


def placed(*operations: tuple[str, int, int]) -> tuple[PlacedVlogFrees, list[int]]:
    """Addresses of the frees; an operation is `a` or `f`, its address and its size."""
    acts = {"a": Act.ALLOCATE, "f": Act.FREE}
    made = [VlogOperation(acts[act], order, at, size) for order, (act, at, size) in enumerate(operations)]
    result = place_frees(made)
    return result, [each.address for each in made if each.act is Act.FREE]


def test_a_size_that_is_in_use_once_is_certain() -> None:
    assert placed(("a", 256, 10), ("a", 512, 20), ("f", 0, 20)) == ((0, 0), [512])


def test_memory_that_is_allocated_again_was_freed_before() -> None:
    history = (("a", 256, 10), ("a", 512, 10), ("f", 0, 10), ("a", 512, 30))
    assert placed(*history) == ((0, 0), [512])


def test_an_allocation_over_the_middle_of_chunks_frees_them_too() -> None:
    history = (
        ("a", 256, 300),
        ("a", 768, 300),
        ("a", 8192, 300),
        ("f", 0, 300),
        ("f", 0, 300),
        ("a", 512, 1000),
    )
    assert placed(*history) == ((1, 0), [256, 768])


def test_what_remains_open_is_the_oldest_and_counted() -> None:
    assert placed(("a", 256, 10), ("a", 512, 10), ("f", 0, 10)) == ((1, 0), [256])


def test_if_all_of_a_size_were_freed_the_last_one_is_certain() -> None:
    assert placed(("a", 256, 10), ("a", 512, 10), ("f", 0, 10), ("f", 0, 10)) == ((1, 0), [256, 512])


def test_a_free_of_a_size_that_is_not_in_use_is_unknown() -> None:
    assert placed(("f", 0, 10), ("a", 256, 10)) == ((0, 1), [0])


def test_known_addresses_stay() -> None:
    assert placed(("a", 256, 10), ("a", 512, 10), ("f", 512, 10), ("f", 0, 10)) == ((0, 0), [512, 256])


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("tensorflow::CastOpBase", "CastOpBase"),
        ("tensorflow::(anonymous namespace)::SliceOp<Eigen::GpuDevice, float>", "SliceOp<float>"),
        (
            "tensorflow::UnaryOp<Eigen::ThreadPoolDevice, tensorflow::functor::sign<float> >",
            "UnaryOp<sign<float>>",
        ),
    ],
)
def test_the_name_is_the_kernel_that_computes(kernel: str, name: str) -> None:
    labels = Labels()
    number = VlogLabels(labels, Limits("log", 0)).label(STACK.format(kernel=kernel))
    assert labels.name(number) == name


def test_without_a_kernel_it_is_the_function_that_allocated() -> None:
    labels = Labels()
    stack = "*** Begin stack trace ***\n\ttensorflow::EagerContext::CreateTensor(int)\n\tmain\n"
    number = VlogLabels(labels, Limits("log", 0)).label(stack)
    assert labels.name(number) == "EagerContext::CreateTensor"


def test_equal_stacks_are_one_label_and_no_stack_is_none() -> None:
    labels = Labels()
    stacks = VlogLabels(labels, Limits("log", 0))
    assert stacks.label(STACK) == stacks.label(STACK) == 1
    assert stacks.label("") == stacks.label("*** Begin stack trace ***\n\n*** End stack trace ***") == 0


def test_more_text_than_a_file_of_this_size_may_hold_is_an_error() -> None:
    stacks = VlogLabels(Labels(), Limits("log", 0))
    most = TEXT.floor // len("name\n") // 9000
    texts = [
        f"*** Begin stack trace ***\n\tframe{number}\n" + "\tname\n" * 9000 for number in range(most + 2)
    ]
    with pytest.raises(FileError, match=TEXT.what):
        list(map(stacks.label, texts))

"""Logs that are cut, mixed, repeated or broken: one error, or a trace that says what is missing."""

import random
import re
import time
from itertools import zip_longest
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.importers.bfc_log.log_maker import ERAS, SETTINGS, MadeChunk, MadeHeap, heaps, make_log
from unit.importers.bfc_log.test_read import made, opened, shown

import bfcviz
from bfcviz.errors import FileError
from bfcviz.events.origin import MAX_POOLS, Status, check_details
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace

FILES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def example(seed: int, count: int = 30) -> MadeHeap:
    rng = random.Random(seed)
    sizes = [256 * rng.randint(1, 5000) for _ in range(count)]
    chunks = [MadeChunk(size, size - 6, n % 3 != 1, "Fill") for n, size in enumerate(sizes)]
    return MadeHeap([(0x7F0000000000 + (seed << 36), chunks)], 3 << 20, name=f"GPU_{seed}_bfc")


def test_several_dumps_of_several_allocators(tmp_path: Path) -> None:
    names = [("2.14", 0), ("2.14", 1), ("1.4", 0), ("2.0", 0)]
    trace = opened(tmp_path, "".join(make_log(example(seed), ERAS[era]) for era, seed in names))
    assert [pool.name for pool in trace.origin.pools] == [
        "GPU_0_bfc",
        "GPU_1_bfc",
        "GPU_0_bfc (dump 2)",
        "GPU_0_bfc (dump 3)",
    ]
    assert [pool.options["dump"] for pool in trace.origin.pools] == [1, 1, 2, 3]
    for place, (_, seed) in enumerate(names):
        assert shown(trace, place) == made(example(seed))
    assert trace.origin.status is Status.COMPLETE


def test_two_processes_with_tags_line_by_line(tmp_path: Path) -> None:
    parts = [
        [
            f"[{seed}] {line}\n"
            for line in make_log(example(seed), ERAS["2.14"]).splitlines()
            if "follows" not in line
        ]
        for seed in (0, 1)
    ]
    cut = [part.index(next(line for line in part if "Stats" in line)) for part in parts]
    mixed = [
        line for pair in zip_longest(parts[0][: cut[0]], parts[1][: cut[1]], fillvalue="") for line in pair
    ]
    trace = opened(tmp_path, "".join([*mixed, *parts[0][cut[0] :], *parts[1][cut[1] :]]))
    assert [pool.name for pool in trace.origin.pools] == ["GPU_0_bfc [0]", "GPU_1_bfc [1]"]
    assert [shown(trace, place) for place in (0, 1)] == [made(example(0)), made(example(1))]
    assert trace.origin.reasons == ()


def test_two_processes_without_tags_are_counted(tmp_path: Path) -> None:
    first = make_log(example(0), ERAS["2.14"]).splitlines(keepends=True)
    shifted = re.sub(
        r"at 7f0([0-9a-f]+)", lambda m: f"at {0x7F0000000000 + int(m[1], 16) + 64:x}", "".join(first)
    )
    chunk = next(place for place, line in enumerate(first) if "InUse at" in line)
    other = [line for line in shifted.splitlines(keepends=True) if " at 7f0" in line]
    trace = opened(tmp_path, "".join([*first[: chunk + 5], *other, *first[chunk + 5 :]]))
    assert trace.origin.status is Status.DEGRADED
    assert any("overlap others" in reason for reason in trace.origin.reasons)
    assert trace.origin.details["totals"][0]["left_out"] > 0


def test_repeated_lines_are_left_out(tmp_path: Path) -> None:
    lines = make_log(example(0), ERAS["2.14"]).splitlines(keepends=True)
    trace = opened(
        tmp_path, "".join(line * 2 if " next " in line or "Bin (" in line else line for line in lines)
    )
    assert shown(trace) == made(example(0))
    assert "30 chunk lines repeat another one" in trace.origin.reasons[0]
    assert "21 lines of bins" in trace.origin.reasons[1]


def test_a_dump_that_is_cut_off_is_truncated(tmp_path: Path) -> None:
    text = make_log(example(0), ERAS["2.14"])
    place = [found.start() for found in re.finditer("2017-", text)]
    chunk = next(n for n, at in enumerate(place) if "InUse at" in text[at : at + 150])
    trace = opened(tmp_path, text[: place[chunk + 10]])
    assert trace.origin.status is Status.TRUNCATED
    assert trace.origin.reasons == (
        "GPU_0_bfc: the dump ends after 10 chunk lines; its end is not in the log",
    )
    assert shown(trace) == made(example(0))[:10]
    # All chunk lines are there, as the bins confirm: only sums are missing.
    whole = opened(tmp_path, text[: text.index("     Summary") - 95])
    assert (whole.origin.status, shown(whole)) == (Status.COMPLETE, made(example(0)))


@pytest.mark.parametrize(
    ("pattern", "instead", "reason"),
    [
        (r"InUse: .*", "InUse:             12345", "Stats say 12345"),
        (r"(\d+) Chunks of size", r"9\1 Chunks of size", "the summary by size differ in"),
        (r"Total bytes in pool: \d+", "Total bytes in pool: 5", "the log says 5"),
        (r"Total Chunks: 0,", "Total Chunks: 3,", "bin lines differ"),
        (r".* next 3\n", "", "of the regions are in no chunk line"),
        (r"of size \d+ next 4", "of size 0 next 4", "1 chunk lines describe an impossible chunk"),
    ],
)
def test_contradictions_are_reported(tmp_path: Path, pattern: str, instead: str, reason: str) -> None:
    trace = opened(tmp_path, re.sub(pattern, instead, make_log(example(0), ERAS["2.14"])))
    assert trace.origin.status is Status.DEGRADED
    assert any(reason in each for each in trace.origin.reasons), trace.origin.reasons


def test_eras_that_do_not_list_all_chunks(tmp_path: Path) -> None:
    heap = example(0)
    old = opened(tmp_path, make_log(heap, ERAS["0.7"]))
    assert shown(old) == made(heap)[: len(shown(old))]
    assert (old.origin.status, len(shown(old))) == (Status.DEGRADED, 30)
    assert "gaps between them are shown as free chunks" in old.origin.reasons[0]
    older = opened(tmp_path, make_log(heap, ERAS["0.5"]))
    assert (shown(older), older.origin.status) == ([], Status.DEGRADED)
    assert older.origin.details["failures"][0]["has_heap"] is False


SOFT = (
    "2017-11-06 08:55:20.919712: W tensorflow/core/common_runtime/bfc_allocator.cc:239] Allocator (GPU_0_bfc) ran out "
    "of memory trying to allocate 1,04GiB with freed_by_count=0. The caller indicates that this is not a failure, but "
    "may mean that there could be performance gains if more memory were available.\n"
)
COLLECTION = (
    "2017-11-06 08:55:21.919712: W tensorflow/core/common_runtime/bfc_allocator.cc:343] Garbage collection: deallocate "
    "free memory regions (i.e., allocations) so that we can re-allocate a larger region to avoid OOM\n"
)
REFUSED = (
    "2017-11-06 08:55:22.919712: I tensorflow/stream_executor/cuda/cuda_driver.cc:739] failed to allocate 2.12G "
    "(2282521344 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
)


@pytest.mark.parametrize("dump", [True, False])
def test_lines_that_are_no_failures_are_marks(tmp_path: Path, dump: bool) -> None:
    trace = opened(tmp_path, SOFT + COLLECTION + REFUSED + make_log(example(0), ERAS["2.14"]) * dump)
    events = trace.read(0, len(trace))
    assert events["kind"][:3].tolist() == [Kind.MARK] * 3
    assert (events["kind"] == Kind.OOM).sum() == dump
    assert events["size"][:3].tolist() == [round(1.04 * (1 << 30)), 0, 2_282_521_344]
    assert [trace.labels.name(n).split(":")[0] for n in events["label"][:3].tolist()] == [
        "a request for 1.04GiB found no memory (not a failure)",
        "garbage collection",
        "the device had no memory for a region",
    ]
    assert events["time"][:3].tolist() == [0, 10**9, 2 * 10**9]
    assert len(trace.origin.pools) == 1


def test_an_error_without_a_dump_is_a_failure_once(tmp_path: Path) -> None:
    error = "Error: OOM when allocating tensor with shape[8,1024] and type half on /job:x by allocator cpu\n"
    trace = opened(tmp_path, "Traceback\n" + error * 3 + " [[{{node dense/MatMul}}]]\n")
    [failure] = trace.origin.details["failures"]
    assert (failure["tensor"], failure["op"], failure["has_heap"]) == ("half [8,1024]", "dense/MatMul", False)
    assert (trace.read(0, 1)["requested"][0], trace.origin.pools[0].name) == (16384, "cpu")


def test_more_dumps_than_a_trace_has_pools(tmp_path: Path) -> None:
    line = "W a/bfc_allocator.cc:1] Allocator (GPU_0_bfc) ran out of memory trying to allocate 5B.\n"
    trace = opened(tmp_path, line * 300)
    assert len(trace.origin.pools) == MAX_POOLS
    assert "at least 44 from line 257 on were left out" in trace.origin.reasons[-1]


def check(folder: Path, text: str | bytes) -> Trace | None:
    begin = time.process_time()
    try:
        trace = opened(folder, text)
    except FileError as error:
        assert str(error).count("\n") == 0  # noqa: PT017
        return None
    finally:
        assert time.process_time() - begin < 10
    check_details(
        trace.origin.details, len(trace.origin.pools), guessed=trace.origin.status is Status.DEGRADED
    )
    for pool in range(len(trace.origin.pools)):
        shown(trace, pool)
    if trace.origin.status in {Status.DEGRADED, Status.TRUNCATED}:
        assert trace.origin.reasons
    return trace


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A log of some era with pieces cut out, repeated, moved, and with flipped bits."""
    eras = draw(st.lists(st.sampled_from(sorted(ERAS)), min_size=1, max_size=2))
    text = "".join(make_log(draw(heaps()), ERAS[era]) for era in eras)
    data = bytearray(SETTINGS[draw(st.sampled_from(sorted(SETTINGS)))](text).encode())
    for _ in range(draw(st.integers(0, 4))):
        start, length = draw(st.integers(0, len(data))), draw(st.integers(0, 3000))
        piece = data[start : start + length]
        if draw(st.booleans()):
            del data[start : start + length]
        at = draw(st.integers(0, len(data)))
        data[at:at] = piece * draw(st.integers(0, 2))
    for place in draw(st.lists(st.integers(0, max(0, len(data) - 1)), max_size=30)):
        if data:
            data[place % len(data)] ^= 1 << draw(st.integers(0, 7))
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


def test_a_log_of_powershell_and_a_traceback_are_logs(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("x" * 70_000 + "\r\n" + make_log(example(0), ERAS["2.14"]), encoding="utf-16")
    assert shown(bfcviz.open(path)) == made(example(0))
    path.write_text("Error: OOM when allocating tensor with shape[4] and type float\n")
    assert bfcviz.open(path).origin.details["failures"][0]["tensor"] == "float [4]"


@FILES
@given(damaged())
def test_a_damaged_log_gives_a_trace_or_one_error(tmp_path: Path, data: bytes) -> None:
    check(tmp_path, data)


@FILES
@given(heaps(), st.data())
def test_a_lost_line_never_passes_unnoticed(tmp_path: Path, heap: MadeHeap, data: st.DataObject) -> None:
    lines = make_log(heap, ERAS["2.14"]).splitlines(keepends=True)
    chunks = [place for place, line in enumerate(lines) if " at " in line and " next " in line]
    del lines[data.draw(st.sampled_from(chunks))]
    trace = check(tmp_path, "".join(lines))
    assert trace is not None
    assert trace.origin.status is Status.DEGRADED


PIECES = [
    "InUse at ",
    "of size 1",
    " ",
    "\n",
    "Allocator (",
    "9",
    "a/bfc_allocator.cc:1] ",
    " by op ",
    "[",
    '{"a":',
    "\\n",
]
PIECES += [
    "Bin (256): \tTotal Chunks: ",
    "Garbage collection: ",
    "OOM when allocating tensor with shape[",
    "{{node ",
    "*",
]
PIECES += [
    "I a/bfc_allocator.cc:1] InUse at 7f00 of size 256 by op ",
    "out of memory",
    "Buffer 1:",
    "Stats: \nLimit: ",
]


@pytest.mark.parametrize("piece", PIECES)
def test_the_time_is_proportional_to_the_length(tmp_path: Path, piece: str) -> None:
    check(tmp_path, "I a/bfc_allocator.cc:1] " + piece * (300_000 // len(piece)))


def test_the_regions_of_a_trace_are_limited(tmp_path: Path) -> None:
    lines = (f"I a/bfc_allocator.cc:1] Chunk at 0x{n * 1024:x} of size 256\n" for n in range(1, 70_000))
    with pytest.raises(FileError, match="69999 regions"):
        opened(tmp_path, "".join(lines))

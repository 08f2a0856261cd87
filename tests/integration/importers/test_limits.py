"""Small files that unpack to large data: each becomes one FileError quickly, or a trace that says what is wrong."""

import gzip
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from unit.importers.pprof_maker import made
from unit.importers.profile_maker import PlaneMaker, chunk, memory, number, varint
from unit.importers.rmm_lines import current
from unit.importers.tensorflow.dump_maker import BASE, mem_chunk
from unit.importers.vma_dump import DUMP

from bfcviz.cli.info import info
from bfcviz.errors import FileError
from bfcviz.importers import file_content
from bfcviz.importers.open_trace import open_trace
from bfcviz.importers.tensorflow.memory_dump import read_memory_dump
from bfcviz.importers.torch.allocation_history import HistoryRows
from bfcviz.importers.torch.pickle_reader import PickleReader

ALLOCATE, FREE = "MemoryAllocation", "MemoryDeallocation"
MiB = 1 << 20
MAX_SECONDS = 30  # 5 are enough on a machine with nothing else to do
MAX_BYTES = 500 * MiB

# Opens each file with 1 GiB of address space beyond what it starts with, and says how that went.
OPENER = """
import json, resource, sys
from bfcviz.errors import FileError
from bfcviz.importers.open_trace import open_trace

def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

open_trace(sys.argv[1])  # an honest one: everything is imported now
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
before = used()
for path in sys.argv[2:]:
    start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    try:
        found = str(open_trace(path).origin.status)
    except FileError as error:
        found = f"FileError {error}"
    except BaseException as error:
        found = repr(error)
    print(json.dumps([found, used() - before, resource.getrusage(resource.RUSAGE_SELF).ru_utime - start]))
"""


def maker() -> PlaneMaker:
    plane = PlaneMaker()
    plane.event(ALLOCATE, 0, memory("a", 512, 256, 256, tf_op="op", shape="[1]"))
    plane.event(FREE, 0, {})
    return plane


def filled(field: int, payload: bytes, size: int) -> bytes:
    """A profile with one plane, which names memory events and repeats `payload` up to `size` bytes."""
    plane = maker()
    many = payload * max(1, size // len(payload))
    plane.lines = chunk(field, many) if field else many
    return plane.to_bytes()


def distinct_names(count: int) -> bytes:
    return with_names_and_lines(count, 0)


def with_names_and_lines(names: int, lines: int) -> bytes:
    plane = maker()
    plane.lines = b"".join(chunk(5, number(1, key + 1000)) for key in range(names))
    plane.lines += b"\x1a\x02\x08\x01" * lines
    return plane.to_bytes()


def labels_of_one_long_name(length: int, count: int) -> bytes:
    """Each label with the same name and another type; its text is not ASCII, so that every label has a copy."""
    plane = maker()
    name = "\u00e9" * length
    events = [
        (ALLOCATE, at, memory("a", 512 * (at + 1), 256, 256, tf_op=name, data_type=at + 200))
        for at in range(count)
    ]
    plane.line("t", events)
    return plane.to_bytes()


def allocators(count: int) -> bytes:
    plane = maker()
    plane.line("t", [(ALLOCATE, at, memory(f"heap {at}", 512, 256, 256)) for at in range(count)])
    return plane.to_bytes()


def free_pieces(count: int) -> bytes:
    """Requests that leave many free chunks."""
    plane = maker()
    whole = memory("a", MiB, 1 << 40, 3)
    events = [(ALLOCATE, 0, whole), (FREE, 1, whole)]
    events += [
        (ALLOCATE, 2 + at, memory("a", MiB + (at * 7919 % count + 1) * 4096, 256, 3)) for at in range(count)
    ]
    plane.line("t", events)
    return plane.to_bytes()


MEMORY_EVENT = maker().event(ALLOCATE, 0, memory("a", 512, 256, 256, tf_op="op", shape="[1]"))
REFUSED: dict[str, Callable[[], bytes]] = {
    "planes": lambda: b"\x0a\x00" * (15 * MiB),
    "few planes": lambda: b"\x0a\x00" * (2 * MiB - 16),
    "lines": lambda: filled(0, b"\x1a\x00", 5 * MiB),
    "fewer lines": lambda: filled(0, b"\x1a\x00", 3 * MiB),
    "events": lambda: filled(3, b"\x22\x00", 5 * MiB),
    "fewer events": lambda: filled(3, b"\x22\x00", 3 * MiB),
    "memory events": lambda: filled(3, MEMORY_EVENT, 5 * MiB),
    "empty memory events": lambda: filled(3, b"\x22\x02\x08\x01", 4 * MiB - 9000),
    "stats": lambda: filled(3, chunk(4, number(1, 1) + b"\x22\x00" * 400_000), 4 * MiB - 9000),
    "long event": lambda: filled(3, chunk(4, number(1, 1) + b"\x22\x00" * 1_200_000), 4 * MiB - 9000),
    "unknown fields of a plane": lambda: filled(0, b"\x38\x01", 4 * MiB - 9000),
    "unknown fields of a line": lambda: filled(3, b"\x38\x01", 4 * MiB - 9000),
    "names": lambda: filled(0, b"\x2a\x00", 4 * MiB - 9000),
    "different names": lambda: distinct_names(200_000),
    "names and lines": lambda: with_names_and_lines(40_000, 40_000),
    "long name": lambda: labels_of_one_long_name(MiB, 10),
    "labels of a long name": lambda: labels_of_one_long_name(30_000, 300),
    "labels": lambda: labels_of_one_long_name(2, 16_500),
    "allocators": lambda: allocators(300),
    "nothing but a length": lambda: b"\x0a" + varint((1 << 63) - 1) + bytes(MiB),
}
OPENED: dict[str, Callable[[], bytes]] = {"free pieces": lambda: free_pieces(3_000)}


@pytest.mark.timeout(120)
def test_small_files_that_unpack_to_much_cost_little_time_and_memory(tmp_path: Path) -> None:
    honest = tmp_path / "honest"
    honest.write_bytes(filled(3, MEMORY_EVENT, len(MEMORY_EVENT)))
    paths = []
    for name, make in {**REFUSED, **OPENED}.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(gzip.compress(make(), 1))
        assert paths[-1].stat().st_size < 500_000, name
    done = subprocess.run(
        [sys.executable, "-c", OPENER, honest, *paths], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for path, (found, num_bytes, seconds) in zip(paths, lines, strict=True):
        if path.name in REFUSED:
            assert found.startswith(f"FileError {path}: "), (path.name, found)
        else:
            assert found == "degraded"
        assert num_bytes < MAX_BYTES, path.name
        assert seconds < MAX_SECONDS, path.name


def test_the_error_tells_the_cap_and_the_file_size(tmp_path: Path) -> None:
    path = tmp_path / "planes"
    path.write_bytes(gzip.compress(b"\x0a\x00" * MiB * 4))
    with pytest.raises(FileError, match="4,194,304 unpacked bytes") as caught:
        open_trace(path)
    assert "8." in str(caught.value)  # KiB
    assert caught.value.path == str(path)


def test_an_unpacked_profile_may_hold_what_a_packed_one_may_not(tmp_path: Path) -> None:
    data = labels_of_one_long_name(20_000, 120)
    path = tmp_path / "profile"
    path.write_bytes(gzip.compress(data))
    with pytest.raises(FileError, match="characters of names"):
        open_trace(path)
    path.write_bytes(data + chunk(2, bytes(MiB)))  # an error message of the profiler, which is not read
    assert len(open_trace(path).labels) > 120


@pytest.mark.parametrize("available", [5, 1 << 61, (1 << 63) - 1])
def test_sizes_of_many_exbibytes_give_a_trace_or_one_error(tmp_path: Path, available: int) -> None:
    plane = PlaneMaker()
    plane.line("t", [(ALLOCATE, 0, memory("a", 512, 1 << 62, 1 << 62, bytes_available=available))])
    (tmp_path / "large").write_bytes(plane.to_bytes())
    trace = open_trace(tmp_path / "large")
    assert info(trace)["allocators"][0]["bytes_in_use"] in (1 << 62, None)  # type: ignore[index]


@pytest.mark.parametrize("path", ["/proc/kmsg", "/proc/self/mem", "/proc/self/pagemap", "/dev/zero", "a\0b"])
def test_what_is_no_file_on_a_disk_is_one_error_and_is_not_read(path: str) -> None:
    if path.startswith("/") and not Path(path).exists():
        pytest.skip("not on this machine")
    with pytest.raises(FileError):
        open_trace(path)


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        (lambda: b'{"traceEvents": [' + b" " * 50_000_000, "unpacked bytes"),
        (lambda: json.dumps([{"name": "[memory]", "ph": 0, "ts": 0}] * 100_000).encode(), "memory events"),
        (
            lambda: made([]) + 20 * chunk(2, chunk(1, varint(1) * 60_000) + chunk(2, varint(1) * 2)),
            "the limit",
        ),
        (lambda: made([]) + b"\x12\x00" * 200_000, "the limit"),
        ((current([]) + "1,10:00:00.1,free,0x1,2,0\n" * 150_000).encode, "memory events"),
    ],
    ids=["blanks", "chrome events", "pprof locations", "pprof samples", "rmm lines"],
)
def test_a_bomb_of_another_format_is_one_error(
    tmp_path: Path, content: Callable[[], bytes], limit: str
) -> None:
    (tmp_path / "bomb").write_bytes(gzip.compress(content()))
    with pytest.raises(FileError, match=limit):
        open_trace(tmp_path / "bomb")


def test_more_regions_than_a_trace_holds_are_one_error(tmp_path: Path) -> None:
    dump = DUMP | {"DefaultPools": {"Type 0": {"DedicatedAllocations": [{"Size": 1}] * 70_000}}}
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    with pytest.raises(FileError, match="70000 regions were given"):
        open_trace(tmp_path / "dump.json")


def test_more_threads_than_a_trace_holds_are_one_error(tmp_path: Path) -> None:
    plane = PlaneMaker()
    event = plane.event(ALLOCATE, 0, memory("a", 512, 256, 256))
    plane.lines = b"".join(chunk(3, number(1, i) + event) for i in range(65_536))
    (tmp_path / "threads").write_bytes(plane.to_bytes())
    with pytest.raises(FileError, match="65536 threads"):
        open_trace(tmp_path / "threads")


def test_too_many_chunks_for_the_size_of_a_memory_dump(tmp_path: Path) -> None:
    many = file_content.CHUNKS.floor + 1
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(chunk(1, b"GPU_0_bfc") + mem_chunk(BASE, 1) * many))
    with pytest.raises(FileError, match=f"more than {file_content.CHUNKS.floor:,} chunks"):
        read_memory_dump(path)


PICKLES = {
    "lists": b"\x80\x04" + b"]" * 500_000,
    "memo": b"\x80\x04N" + b"\x94" * 500_000,
    "tuples": b"\x80\x04)" + b"\x85" * 250_000,
    "nested lists": b"\x80\x02" + b"]" * 250_000 + b"a" * 249_999 + b".",
    "marks": b"\x80\x04" + b"(" * 250_000,
    "texts": b"\x80\x04(" + b"".join(b"\x8c\x04%04x" % number for number in range(1 << 16)),
    "numbers": b"\x80\x04(" + b"M\xff\xff" * 175_000,
}


@pytest.mark.parametrize("name", PICKLES)
def test_the_memory_that_a_pickle_takes_is_bounded_by_the_file(name: str) -> None:
    data = PICKLES[name]
    tracemalloc.start()
    try:
        with suppress(FileError):  # or the file is cut off
            PickleReader("file", data, HistoryRows()).read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(data) + (16 << 20), peak

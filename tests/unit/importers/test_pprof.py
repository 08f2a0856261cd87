import gzip
from collections import Counter
from pathlib import Path

import pytest
from shared import SHARED, needs_shared
from unit.importers.pprof_maker import HOLDERS, made, said_to_be_cut

from bfcviz.cli.info import info
from bfcviz.errors import FileError
from bfcviz.events.trace import Status, Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.model import Model

REAL = SHARED / "real" / "other" / "jax_microjax_2a10943c.prof"


def numbers(packed: bytes) -> list[int]:
    """The numbers of a packed list."""
    found, value, shift = [], 0, 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return found


def fields(message: bytes, wanted: int) -> list:
    """The values of a field, read without bfcviz: numbers, or bytes."""
    found, at = [], 0
    while at < len(message):
        stops = [n for n in range(at, min(at + 20, len(message))) if message[n] < 0x80]
        tag, value = numbers(message[at : stops[0] + 1])[0], numbers(message[stops[0] + 1 : stops[1] + 1])[0]
        at = stops[1] + 1
        is_text = tag & 7 == 2
        if tag >> 3 == wanted:
            found.append(message[at : at + value] if is_text else value)
        at += value if is_text else 0
    return found


def opened(path: Path, data: bytes) -> Trace:
    (path / "memory.prof").write_bytes(data)
    return open_trace(path / "memory.prof")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_each_holder_is_a_chunk_of_its_device(tmp_path: Path, pack) -> None:
    trace = opened(tmp_path, pack(made(HOLDERS)))
    assert [pool.name for pool in trace.origin.pools] == ["no device", "cuda:0", "cuda:1"]
    assert trace.origin.details["totals"] == [
        {"holders": 1, "allocations": 2, "bytes": 5000},
        {"holders": 3, "allocations": 5, "bytes": 7096},
        {"holders": 1, "allocations": 1, "bytes": 64},
    ]
    model = Model(trace, 1)
    model.seek(len(trace))
    chunks = model.chunks()
    assert chunks["size"].tolist() == [3000, 4096]
    assert chunks["in_use"].all()
    label = trace.labels[int(chunks[0]["label"])]
    assert label.name == "train.py:7 step"
    assert dict(label.details) == {
        "kind": "buffer",
        "allocations": "3",
        "stack": "compile (/jax/compiler.py:288)\nstep (/my/train.py:7)\nmain (/my/train.py:90)",
    }
    assert trace.origin.status == Status.DEGRADED
    assert trace.origin.reasons[0] == "left out: 1 holders of 0 bytes"
    assert trace.origin.details["framework"] == "jax"


def test_what_the_profile_does_not_say_is_unknown(tmp_path: Path) -> None:
    trace = opened(tmp_path, made(HOLDERS))
    for found in (trace, open_trace(trace.save(tmp_path / "saved.parquet"))):
        for allocator in info(found)["allocators"]:  # type: ignore[attr-defined]
            unknown = {name for name, value in allocator.items() if value is None}
            assert unknown >= {"pool_bytes", "free_bytes", "largest_free_chunk", "external_fragmentation"}
            assert unknown >= {"requested_bytes_in_use", "peak_bytes_in_use", "regions", "chunks_free"}
            assert allocator["bytes_in_use"]


@needs_shared
def test_the_real_profile_is_exact() -> None:
    trace = open_trace(REAL)
    data = gzip.decompress(REAL.read_bytes())
    texts = [text.decode() for text in fields(data, 6)]
    expected = Counter[str]()
    for sample in fields(data, 2):
        values = fields(sample, 2)[0]
        tags = dict([texts[int(fields(tag, n)[0])] for n in (1, 2)] for tag in fields(sample, 3))
        expected[tags.get("device", "no device")] += numbers(values)[1]
    allocators: list[dict[str, int]] = info(trace)["allocators"]  # type: ignore[assignment]
    assert {each["name"]: each["bytes_in_use"] for each in allocators} == expected
    totals: list[dict[str, int]] = trace.origin.details["totals"]  # type: ignore[assignment]
    assert sum(each["holders"] for each in totals) == 87
    stacks = [trace.labels[number].details["stack"] for number in range(1, len(trace.labels))]
    assert all("/jax/_src/" in stack for stack in stacks)


def test_profiles_of_other_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"other values .*samples, cpu.*save_device_memory_profile"):
        opened(tmp_path, made([], ("samples", "cpu")))


def test_a_cut_profile_is_one_error_or_says_so(tmp_path: Path) -> None:
    data = made(HOLDERS)
    assert said_to_be_cut(tmp_path, data, range(len(data) - 40, len(data)))
    packed = gzip.compress(data)
    assert "gzip file is cut off" in opened(tmp_path, packed[:-4]).origin.reasons[0]


def test_impossible_numbers_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = opened(tmp_path, made([("buffer", "cuda:0", 1, (1 << 64) - 5), ("buffer", "cuda:0", 1, 7)]))
    assert "left out: 1 holders with impossible numbers" in trace.origin.reasons
    assert info(trace)["allocators"][0]["bytes_in_use"] == 7  # type: ignore[index]
    many = opened(tmp_path, made([("buffer", f"cuda:{n}", 1, 8) for n in range(300)]))
    assert len(many.origin.pools) == 256
    assert "left out: 44 holders on devices after the first 256" in many.origin.reasons

"""Logs of every era, made from a heap, and the ways in which a log is damaged on its way to a reader."""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st


class MadeChunk(NamedTuple):
    size: int
    requested: int
    in_use: bool
    op: str = ""


@dataclass
class MadeHeap:
    """Chunks of each region, with the region's address; and the request that fails."""

    regions: list[tuple[int, list[MadeChunk]]]
    request: int
    name: str = "GPU_0_bfc"
    op: str = "model/dense/MatMul"
    lines: list[str] = field(default_factory=list)

    def chunks(self) -> list[tuple[int, MadeChunk]]:
        found = []
        for start, chunks in self.regions:
            address = start
            for chunk in chunks:
                found.append((address, chunk))
                address += chunk.size
        return found

    @property
    def pool(self) -> int:
        return sum(chunk.size for _, chunk in self.chunks())

    @property
    def in_use(self) -> int:
        return sum(chunk.size for _, chunk in self.chunks() if chunk.in_use)


class Era(NamedTuple):
    name: str
    prefix: str  # {level} {line}
    header: str
    late_header: bool = False
    old_bins: bool = False
    dump_for: bool = False
    region_line: bool = False
    chunk: str = "InUse at {address:x} of size {size} next {next}"
    free: str = "Free  at {address:x} of size {size} next {next}"
    free_after: bool = False
    lists_chunks: bool = True
    lists_free: bool = True
    pool_line: str = ""
    limit: bool = True
    human: bool = False
    more_stats: bool = False
    strip: bool = True


TIME = "2017-11-06 08:55:24.919712: "
OLD = "{level} tensorflow/core/common_runtime/bfc_allocator.cc:{line}] "
NAMED = (
    "Allocator ({name}) ran out of memory trying to allocate {human}.  Current allocation summary follows."
)
ROUNDED = "Allocator ({name}) ran out of memory trying to allocate {human} (rounded to {rounded})"
BY_OP = (
    "requested by op {op}\nIf the cause is memory fragmentation maybe the environment variable "
    "'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation. \n"
    "Current allocation summary follows.\nCurrent allocation summary follows."
)
LATE = "Ran out of memory trying to allocate {human}.  See logs for memory state."
OLD_CHUNKS = {
    "chunk": "Chunk at 0x{address:x} of size {size}",
    "free": "Free at 0x{address:x} of size {size}",
}
REGION_POOL = "memory_limit_: {limit} available bytes: {left} curr_region_allocation_bytes_: {next}"
XLA_POOL = (
    "Allocator memory summary: rounded request {request_h}, total free in pool {free_h}, largest free chunk usable by "
    "lower end {largest_h}, unallocated bytes {left_h}, pool size {pool_h}, pool limit {limit_h}"
)
DEBUG = " by op {op} action_count 7 step 3"

ERAS = {
    era.name: era
    for era in (
        Era("0.5", OLD, LATE, late_header=True, old_bins=True, lists_chunks=False, strip=False, limit=False),
        Era(
            "0.7",
            OLD,
            LATE,
            late_header=True,
            old_bins=True,
            lists_free=False,
            strip=False,
            limit=False,
            **OLD_CHUNKS,
        ),
        Era("0.8", OLD, LATE, late_header=True, old_bins=True, free_after=True, **OLD_CHUNKS),
        Era("1.1", TIME + OLD, NAMED, old_bins=True, free_after=True, **OLD_CHUNKS),
        Era("1.4", TIME + OLD, NAMED, free_after=True, **OLD_CHUNKS),
        Era(
            "1.8 windows",
            TIME
            + "{level} T:\\src\\github\\tensorflow\\tensorflow\\core\\common_runtime\\bfc_allocator.cc:{line}] ",
            NAMED,
            chunk="Chunk at {address:016X} of size {size}",
            free="Free  at {address:016X} of size {size}",
        ),
        Era(
            "2.0",
            TIME + OLD,
            ROUNDED + ".  Current allocation summary follows.",
            region_line=True,
            chunk="InUse at 0x{address:x} next {next} of size {size}",
            free="Free  at 0x{address:x} next {next} of size {size}",
            pool_line="total_region_allocated_bytes_: {pool} " + REGION_POOL,
        ),
        Era(
            "2.5 debug",
            TIME + OLD,
            ROUNDED + BY_OP,
            dump_for=True,
            region_line=True,
            chunk="InUse at {address:x} of size {size}" + DEBUG + " next {next}",
            free="Free  at {address:x} of size {size}" + DEBUG + " next {next} freed_at_count 9",
            pool_line="total_region_allocated_bytes_: {pool} " + REGION_POOL,
            more_stats=True,
        ),
        Era(
            "2.14",
            TIME + "{level} tensorflow/tsl/framework/bfc_allocator.cc:{line}] ",
            ROUNDED + BY_OP,
            dump_for=True,
            region_line=True,
            pool_line="Total bytes in pool: {pool} " + REGION_POOL,
            more_stats=True,
        ),
        Era(
            "2.21",
            "{level}0000 00:00:1509958524.919712   10659 bfc_allocator.cc:{line}] ",
            ROUNDED + BY_OP,
            dump_for=True,
            region_line=True,
            pool_line="Total size in pool: {pool_h} memory_limit_: {limit_h} available size: {left_h} "
            "curr_region_allocation_bytes_: {next_h}",
            human=True,
            more_stats=True,
        ),
        Era(
            "xla 2026",
            "{level}1106 08:55:24.919712   10659 bfc_allocator.cc:{line}] ",
            ROUNDED + " from the lower end requested by op {op}\nCurrent allocation summary follows.",
            dump_for=True,
            region_line=True,
            chunk="InUse at {address:x} of size {size} tag lower"
            " allocation_annotation step{{n=1, k=a b}} / {op} next {next}",
            free="Free  at {address:x} of size {size} tag lower next {next}",
            pool_line=XLA_POOL,
            human=True,
            more_stats=True,
        ),
    )
}


def human(size: int) -> str:
    if size < 1 << 10:
        return f"{size}B"
    if size < 1 << 20:
        return f"{size / (1 << 10):.1f}KiB"
    for power, unit in ((20, "M"), (30, "G"), (40, "T")):
        if size < 1 << (power + 10):
            return f"{(size >> (power - 10)) / 1024:.2f}{unit}iB"
    raise AssertionError(size)


def make_log(heap: MadeHeap, era: Era) -> str:
    """The lines of one dump."""
    warning, info = (era.prefix.format(level=level, line=line) for level, line in (("W", 219), ("I", 643)))
    rounded = -(-heap.request // 256) * 256
    header = warning + era.header.format(
        name=heap.name,
        human=human(heap.request if not era.late_header else rounded),
        rounded=rounded,
        op=heap.op,
    )
    lines = [] if era.late_header else [header]
    if era.dump_for:
        lines.append(f"{info}BFCAllocator dump for {heap.name}")
    lines += [info + line for line in bin_lines(heap, era)]
    lines.append(f"{info}Bin for {human(rounded)} was {human(bin_of(rounded))}, Chunk State: ")
    if era.lists_chunks:
        lines += [info + line for line in chunk_lines(heap, era)]
        lines.append(f"{info}     Summary of in-use Chunks by size: ")
        counts = Counter(chunk.size for _, chunk in heap.chunks() if chunk.in_use)
        lines += [
            f"{info}{count} Chunks of size {size} totalling {human(size * count)}"
            for size, count in sorted(counts.items())
        ]
        lines.append(f"{info}Sum Total of in-use chunks: {human(heap.in_use)}")
    lines += [info + line for line in tail_lines(heap, era)]
    if era.strip:
        lines.append(warning + "*" * 50 + "_" * 47 + "xx*")
    return "\n".join([*lines, *([header] if era.late_header else [])]) + "\n"


def bin_of(size: int) -> int:
    return 256 << min(20, max(0, (size // 256).bit_length() - 1))


def bin_lines(heap: MadeHeap, era: Era) -> list[str]:
    lines = []
    for size in (256 << number for number in range(21)):
        here = [chunk for _, chunk in heap.chunks() if bin_of(chunk.size) == size]
        used = [chunk for chunk in here if chunk.in_use]
        if era.old_bins:
            here, used = [chunk for chunk in here if not chunk.in_use], []
        total, use, asked = (
            sum(numbers)
            for numbers in ([c.size for c in here], [c.size for c in used], [c.requested for c in used])
        )
        old = f"{human(0)} client-requested for chunks. " if era.old_bins else ""
        lines.append(
            f"Bin ({size}): \tTotal Chunks: {len(here)}, Chunks in use: {len(used)}{'' if era.old_bins else '.'} "
            f"{human(total)} allocated for chunks. {old}{human(use)} in use in bin. "
            f"{human(asked)} client-requested in use in bin."
        )
    return lines


def chunk_lines(heap: MadeHeap, era: Era) -> list[str]:
    lines = []
    number = 0
    for start, chunks in heap.regions:
        address = start
        if era.region_line:
            lines.append(f"Next region of size {sum(chunk.size for chunk in chunks)}")
        used, free = [], []
        for chunk in chunks:
            number += 1
            following = number if chunk is not chunks[-1] else (1 << 64) - 1
            shape = era.chunk if chunk.in_use else era.free
            text = shape.format(address=address, size=chunk.size, next=following, op=chunk.op or "unused")
            if chunk.in_use or era.lists_free:
                (free if era.free_after and not chunk.in_use else used).append(text)
            address += chunk.size
        lines += used + free
    return lines


def tail_lines(heap: MadeHeap, era: Era) -> list[str]:
    free = [chunk.size for _, chunk in heap.chunks() if not chunk.in_use]
    numbers = {
        "pool": heap.pool,
        "limit": heap.pool,
        "left": 0,
        "next": 2 * heap.pool,
        "free": sum(free),
        "largest": max(free, default=0),
        "request": heap.request,
    }
    words = numbers | {f"{name}_h": human(number) for name, number in numbers.items()}
    stats = {"Limit": heap.pool} if era.limit else {}
    stats |= {
        "InUse": heap.in_use,
        "MaxInUse": heap.in_use + 256,
        "NumAllocs": 77,
        "MaxAllocSize": heap.in_use,
    }
    if era.more_stats:
        stats |= {"Reserved": 0, "PeakReserved": 0, "LargestFreeBlock": 0}
    lines = [era.pool_line.format(**words)] if era.pool_line else []
    text = "".join(
        f"{name + ':':<15}{human(number) if era.human and name != 'NumAllocs' else number:>20}\n"
        for name, number in stats.items()
    )
    return [*lines, "Stats: \n" + text]


def in_notebook(text: str) -> str:
    output = {"name": "stderr", "output_type": "stream", "text": text.splitlines(keepends=True)}
    return json.dumps(
        {"cells": [{"cell_type": "code", "outputs": [output], "source": ["train()"]}]}, indent=1
    )


def in_docker(text: str) -> str:
    return "".join(
        json.dumps({"log": line, "stream": "stderr"}) + "\n" for line in text.splitlines(keepends=True)
    )


def wrapped(text: str, width: int = 80) -> str:
    lines = []
    for line in text.splitlines():
        lines += [line[start : start + width] for start in range(0, len(line), width)] or [""]
    return "\n".join(lines) + "\n"


SETTINGS = {
    "plain": str,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "quoted": lambda text: "".join(f"> {line}\n" for line in text.splitlines()),
    "indented": lambda text: "".join(f"    {line}\n" for line in text.splitlines()),
    "tag": lambda text: "".join(f"[1,0]<stderr>: {line}\n" for line in text.splitlines()),
    "tqdm": lambda text: f"51%|##| 481/938 [00:02<2:44:35,  2.47s/it]{text}Traceback\n",
    "ansi": lambda text: "".join(f"\x1b[33m{line}\x1b[0m\n" for line in text.splitlines()),
    "comma": lambda text: text.replace(".0KiB", ",0KiB").replace("0MiB", "0MiB"),
    "notebook": in_notebook,
    "docker": in_docker,
    "wrapped": wrapped,
    "blanks for tabs": lambda text: text.replace("\t", "        "),
}
"""Where a log comes from: name -> text as it is found there."""


def heap_of(rng: random.Random) -> MadeHeap:
    """Regions with gaps between them; each begins with a chunk in use, so that no gap is ambiguous."""
    regions, address = [], rng.choice((0x880, 0x7F0000000000))
    for _ in range(rng.randint(1, 3)):
        chunks = []
        for _ in range(rng.randint(1, 9)):
            units = rng.choice((1, 2, 4, 1 << 20, rng.randint(1, 9), rng.randint(1, 1 << 21)))
            used = not chunks or rng.random() < 0.5
            op = rng.choice(("", "Fill", "model/dense/MatMul")) if used else ""
            unused = rng.choice((0, 255, rng.randint(0, 255)))
            chunks.append(MadeChunk(256 * units, 256 * units - unused, used, op))
        regions.append((address, chunks))
        address += sum(chunk.size for chunk in chunks) + 256 * rng.choice((1, rng.randint(1, 1 << 20)))
    return MadeHeap(regions, rng.choice((1, 256, 257, rng.randint(1, 1 << 16), rng.randint(1, 1 << 33))))


def heaps() -> st.SearchStrategy[MadeHeap]:
    return st.integers(0, (1 << 32) - 1).map(lambda seed: heap_of(random.Random(seed)))

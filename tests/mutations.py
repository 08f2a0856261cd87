"""Break each rule of the heap on purpose, and see which test notices: `python tests/mutations.py`.

A mutation is one edit of the source: of a rule of TensorFlow's heap, or of a place where this heap leaves a defect of it
out. Each runs uncompiled in a copy of the source: first against the recorded runs of TensorFlow's own class, then, if those
do not notice, against the tests of the heap. Prints a Markdown table: rule, what noticed, seconds. Exit status: 1 if a
mutation was not noticed, or does not fit the source any more.

One rule has no mutation, because none could be noticed: the heap never lets a chunk that is not safe merge by itself.
"""

# ruff: noqa: E501  each mutation is a row of a table

import argparse
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from built_copy import copy_source, environment

GOLDEN = ("tests/conformance/compare.py", "tests/data/golden")
TESTS = [
    f"tests/unit/allocator/test_{name}.py"
    for name in (
        "tensorflow_behaviour",
        "defects",
        "deferred_merge",
        "sizes",
        "options",
        "rules",
        "bfc_allocator",
        "queries",
    )
]
PATIENCE_S = 60  # of processor time of one run; a rule that keeps a loop from ending is noticed, too
LONGEST_S = 200  # of a run: one that waits for a lock uses no processor

HEAP, CHUNKS = "bfcviz/allocator/heap.py", "bfcviz/allocator/chunks.py"
NATIVE, BFC, MAP = "bfcviz/native.py", "bfcviz/allocator/bfc_allocator.py", "bfcviz/allocator/queries.py"
TENSORFLOW = "bfcviz/formats/tensorflow.py"


class Mutation(NamedTuple):
    """One edit.

    Attributes:
        rule: what it breaks.
        file: the source.
        old: text that stands there once.
        new: what replaces it.
    """

    rule: str
    file: str
    old: str
    new: str


_ASCENDING = """            if not self.space.is_free(i):
                i += 1
                continue
            address = self.space.regions.regions[i].address
            size = self.space.regions.regions[i].size
            self.space.release(i)
"""

MUTATIONS = [
    # Sizes, bins, search
    Mutation("a request of 0 bytes changes nothing", HEAP, "if requested == 0:\n            return 0", "if requested == 0:\n            requested = 1"),
    Mutation("freeing address 0 changes nothing", BFC, "if where == 0:\n            return", "if where == 1:\n            return"),
    Mutation("sizes are rounded up to 256", HEAP, "(num_bytes + native.MIN_CHUNK - 1) // native.MIN_CHUNK", "(num_bytes + native.MIN_CHUNK) // native.MIN_CHUNK"),
    Mutation("a bin for each power of two", NATIVE, "(size | MIN_CHUNK).bit_length() - 9", "(size | MIN_CHUNK).bit_length() - 8"),
    Mutation("the last bin has no end", NATIVE, "- 9, NUM_BINS - 1)", "- 9, NUM_BINS)"),
    Mutation("the smallest chunk that fits, exact fits included", HEAP, "h = self.space.bins.at_least(rounded, 0)", "h = self.space.bins.at_least(rounded + 1, 0)"),
    Mutation("of equal sizes the lowest address", CHUNKS, "k.size == size and k.address < address", "k.size == size and k.address > address"),
    Mutation("chunks freed later than freed_before are skipped", HEAP, "c.freed_at <= freed_before", "c.freed_at < freed_before"),
    Mutation("a chunk of twice the size is split", HEAP, "if c.size >= rounded * 2 or", "if c.size > rounded * 2 or"),
    Mutation("a chunk is split if it would waste the limit", HEAP, "c.size - rounded >= self.max_waste", "c.size - rounded > self.max_waste"),
    Mutation("the limit of waste is 128 MiB", TENSORFLOW, "WASTE: Final = 128 << 20", "WASTE: Final = 64 << 20"),
    Mutation("a share of the memory is the limit instead", TENSORFLOW, "max(int(fraction * limit), 1) if 0 < fraction <= 1 else", "max(int(fraction * limit), 1) if fraction > 1 else"),
    Mutation("the share is cut off to a whole number", TENSORFLOW, "max(int(fraction * limit), 1) if", "max(round(fraction * limit), 1) if"),
    Mutation("any other chunk is handed out whole", HEAP, "if c.size >= rounded * 2 or", "if c.size > rounded or"),
    Mutation("the front part has exactly the rounded size", HEAP, "self.space.put_in_bin(self.space.split(h, rounded, 0))", "self.space.put_in_bin(self.space.split(h, rounded + native.MIN_CHUNK if c.size > rounded + native.MIN_CHUNK else rounded, 0))"),
    Mutation("the remainder inherits freed_at", CHUNKS, "o.freed_at = c.freed_at\n", "o.freed_at = 0\n"),
    Mutation("the remainder is not merged", HEAP, "self.space.put_in_bin(self.space.split(h, rounded, 0))", "self.space.put_in_bin(self.coalesce(self.space.split(h, rounded, 0), True))"),
    # Numbers of an allocation
    Mutation("ids begin with 1", CHUNKS, "self.next_id = 1", "self.next_id = 2"),
    Mutation("each success has the next id", CHUNKS, "self.next_id += 1", "self.next_id += 2"),
    Mutation("num_allocs counts successes", CHUNKS, "self.num_allocs += 1", "self.num_allocs += 2"),
    Mutation("bytes_in_use counts the chunk", CHUNKS, "self.bytes_in_use += c.size", "self.bytes_in_use += requested"),
    Mutation("peak_bytes_in_use is the highest", CHUNKS, "if self.bytes_in_use > self.peak_in_use", "if self.bytes_in_use >= 0"),
    Mutation("largest_alloc_size is of chunks", CHUNKS, "self.largest_alloc = c.size", "self.largest_alloc = requested"),
    # The order of a request
    Mutation("safe chunks are merged before the search", HEAP, "if self.held.count > 0:\n            self.merge_held(0)", "if self.held.count < 0:\n            self.merge_held(0)"),
    Mutation("the pool is extended before held chunks are merged", HEAP, "if h == native.NONE and self.extend(rounded, alignment):\n                h = self.find", "if h == native.NONE and self.held.count > 0 and self.merge_held(rounded):\n                h = self.find(rounded, alignment, freed_before)\n            if h == native.NONE and self.extend(rounded, alignment):\n                h = self.find"),
    Mutation("held chunks are not merged for freed_before", HEAP, "if h == native.NONE and freed_before == 0 and self.held.count", "if h == native.NONE and self.held.count"),
    Mutation("the pool is extended before regions are released", HEAP, "if h == native.NONE and self.extend(rounded, alignment):\n                h", "if h == native.NONE and self.collect(rounded) >= 0 and self.extend(rounded, alignment):\n                h"),
    # Growth
    Mutation("what is available is rounded down to 256", HEAP, "native.wrap_64(self.limit - self.space.pool_bytes) // native.MIN_CHUNK * native.MIN_CHUNK", "native.wrap_64(self.limit - self.space.pool_bytes)"),
    Mutation("a pool beyond the limit is not limited", HEAP, "native.wrap_64(self.limit - self.space.pool_bytes) // native", "max(self.limit - self.space.pool_bytes, 0) // native"),
    Mutation("a request of all that is available is served", HEAP, "if rounded > available or", "if rounded >= available or"),
    Mutation("the limit is on the pool, not on what is in use", HEAP, "native.wrap_64(self.limit - self.space.pool_bytes) //", "native.wrap_64(self.limit - self.space.bytes_in_use) //"),
    Mutation("the first region has 2 MiB with allow_growth", HEAP, "min(limit, first_region) if allow_growth", "min(limit, first_region // 2) if allow_growth"),
    Mutation("the first region has the limit without it", HEAP, "if allow_growth else limit", "if allow_growth else limit // 2"),
    Mutation("the first region is rounded up to 256", HEAP, "self.next_region = round_up(first)", "self.next_region = first // native.MIN_CHUNK * native.MIN_CHUNK"),
    Mutation("the next size doubles only below the request", HEAP, "while rounded > self.next_region", "while rounded >= self.next_region"),
    Mutation("a doubling stays after a refusal", HEAP, "            if num_bytes < rounded:\n", "            if num_bytes < rounded:\n                self.next_region = self.first_region\n"),
    Mutation("a region has at most what is available", HEAP, "self.next_region if self.next_region < available else available", "self.next_region"),
    Mutation("the back-off is nine tenths", NATIVE, "np.float32(x) * np.float32(0.9)", "np.float32(x) * np.float32(0.8)"),
    Mutation("the back-off is in single precision", NATIVE, "int(np.float32(x) * np.float32(0.9))", "x * 9 // 10"),
    Mutation("the back-off is rounded up", HEAP, "less = round_up(native.nine_tenths(num_bytes))", "less = native.nine_tenths(num_bytes) // native.MIN_CHUNK * native.MIN_CHUNK"),
    Mutation("the back-off goes down to the request", HEAP, "            if num_bytes < rounded:\n", "            if num_bytes <= rounded:\n"),
    Mutation("the sub-allocator gets the alignment", HEAP, "self.source.grant(alignment, num_bytes)", "self.source.grant(native.MIN_CHUNK, num_bytes)"),
    Mutation("a region doubles the next size", HEAP, "if not increased:", "if increased:"),
    Mutation("a size that was doubled for a request is not doubled again", HEAP, "if not increased:", "if True:"),
    Mutation("each extension begins with the full size again", HEAP, "        if not increased:\n", "        self.next_region = num_bytes\n        if not increased:\n"),
    Mutation("the pool counts what was received", HEAP, "self.space.extend(address, self.source.received, rounded,", "self.space.extend(address, num_bytes, rounded,"),
    Mutation("peak_pool_bytes is the highest", CHUNKS, "if self.pool_bytes > self.peak_pool:", "if self.pool_bytes >= 0:"),
    Mutation("regions are in the order of addresses", CHUNKS, "while i > 0 and self.regions[i - 1].address > address:", "while i > 0 and self.regions[i - 1].address < address:"),
    Mutation("a region that follows another joins it", CHUNKS, "if r.address + r.size == address:", "if r.address + r.size == address + 1:"),
    Mutation("regions join only if the sub-allocator says so", HEAP, "rounded, self.source.supports_coalescing)", "rounded, True)"),
    Mutation("a new chunk merges with a free last one", HEAP, "self.space.put_in_bin(self.coalesce(h, False))\n        return True", "self.space.put_in_bin(h)\n        return True"),
    # Free and merge
    Mutation("requested_size is not cleared by a free", CHUNKS, "        c.allocation_id = 0\n        c.freed_at = freed_at\n", "        c.allocation_id = 0\n        c.requested = 0\n        c.freed_at = freed_at\n"),
    Mutation("a freed chunk merges with the next one", HEAP, "if self.mergeable(c.next, ignore_held):", "if self.mergeable(native.NONE, ignore_held):"),
    Mutation("bytes_in_use loses the chunk", CHUNKS, "self.bytes_in_use -= c.size", "self.bytes_in_use -= c.requested"),
    Mutation("a freed chunk merges with the one before", HEAP, "if self.mergeable(c.prev, ignore_held):", "if self.mergeable(native.NONE, ignore_held):"),
    Mutation("the next one first", HEAP, "        if self.mergeable(c.next, ignore_held):\n            self.space.take_from_bin(c.next)\n            self.space.merge_next(h)\n        if self.mergeable(c.prev, ignore_held):\n            p = c.prev\n            self.space.take_from_bin(p)\n            self.space.merge_next(p)\n            return p\n", "        p = h\n        if self.mergeable(c.prev, ignore_held):\n            p = c.prev\n            self.space.take_from_bin(p)\n            self.space.merge_next(p)\n            c = heap_memory.chunk_at(self.space.table.chunks, p)\n        if self.mergeable(c.next, ignore_held):\n            self.space.take_from_bin(c.next)\n            self.space.merge_next(p)\n        return p\n"),
    Mutation("handles are reused, the last one first", CHUNKS, "        self.chunks[h].next = self.unused\n        self.unused = h\n", "        self.chunks[h].next = self.unused\n"),
    Mutation("a reused handle keeps the requested size", CHUNKS, "            self.unused = self.chunks[h].next\n", "            self.unused = self.chunks[h].next\n            self.chunks[h].requested = 0\n"),
    Mutation("a new handle has none", CHUNKS, "            self.chunks[h].requested = 0\n", "            self.chunks[h].requested = 1\n"),
    # Garbage collection
    Mutation("regions are released only with the option", HEAP, "if not self.collects or", "if"),
    Mutation("regions are released only if that is enough", HEAP, "if total == 0 or rounded > native.wrap_64(self.limit - self.space.pool_bytes + total):", "if total == 0:"),
    Mutation("regions are released if that is just enough", HEAP, "if total == 0 or rounded > native", "if total == 0 or rounded >= native"),
    Mutation("only wholly free regions are released", CHUNKS, "if self.table.chunks[h].allocation_id != 0:\n                return False", "if self.table.chunks[h].allocation_id != 0:\n                return self.table.chunks[h].next == native.NONE"),
    Mutation("all of them are released", HEAP, "            self.space.release(i)\n            self.return_region(address, size)", "            self.space.release(i)\n            self.return_region(address, size)\n            break"),
    Mutation("they are released in the order of addresses", HEAP, _ASCENDING, _ASCENDING.replace("i)", "self.space.regions.count - 1 - i)").replace("[i]", "[self.space.regions.count - 1 - i]")),
    Mutation("the pool loses the released bytes", CHUNKS, "self.pool_bytes -= r.size", "self.pool_bytes -= 0"),
    Mutation("the next size stays after a collection", HEAP, "        self.release_free_regions()\n        return self.has_room()", "        self.release_free_regions()\n        self.next_region = self.first_region\n        return self.has_room()"),
    Mutation("handles of a region are deleted in the order of addresses", CHUNKS, "            self.table.delete(h)\n            h = following\n", "            if h != r.first:\n                self.table.delete(h)\n            h = following\n        self.table.delete(r.first)\n"),
    # Timestamps
    Mutation("the first free has number 1", HEAP, "            self.timing_count += 1\n            self.space.mark_free(h, self.timing_count)\n", "            self.space.mark_free(h, self.timing_count)\n            self.timing_count += 1\n"),
    Mutation("a held chunk goes to its bin unmerged", HEAP, "            self.space.put_in_bin(h)\n            self.held.push(h)\n", "            self.space.put_in_bin(self.coalesce(h, True))\n            self.held.push(h)\n"),
    Mutation("the frontier never goes down", HEAP, "if count > self.frontier:", "if count >= 0:"),
    Mutation("safe is below the frontier, not at it", HEAP, "if c.freed_at < frontier:", "if c.freed_at <= frontier:"),
    Mutation("a safe chunk has no number any more", HEAP, "                c.freed_at = 0\n            if c.freed_at == 0", "                c.freed_at = 1\n            if c.freed_at == 0"),
    Mutation("unsafe chunks merge only for a request", HEAP, "if c.freed_at == 0 or every:", "if c.freed_at == 0:"),
    Mutation("for a request they merge with unsafe neighbours", HEAP, "self.coalesce(h, needed > 0)", "self.coalesce(h, False)"),
    Mutation("chunks that are gone leave the queue", HEAP, "                continue  # merged, allocated or released since\n", "                pass\n"),
    Mutation("the rest is kept once a request has enough", HEAP, "if needed > 0 and satisfied:", "if needed > 0 and needed == 0:"),
    Mutation("enough is the rounded size", HEAP, "if needed > 0 and c.size >= needed:", "if needed > 0 and c.size > needed:"),
    Mutation("a merged chunk that is not safe is queued again", HEAP, "if needed > 0 and merged != h and c.freed_at > 0:", "if needed > 0 and merged != h and c.freed_at < 0:"),
    Mutation("the queue is served from the front", HEAP, "            h = self.held.due[i]\n", "            h = self.held.due[count - 1 - i]\n"),
    Mutation("an unsafe neighbour is not merged", HEAP, "(ignore_held or c.freed_at == 0)", "(ignore_held or c.freed_at >= 0)"),
    Mutation("a merge keeps the later number", CHUNKS, "o.freed_at if o.freed_at > c.freed_at else c.freed_at", "c.freed_at"),
    Mutation("the number stays when a chunk is allocated", CHUNKS, "        c.allocation_id = self.next_id\n", "        c.allocation_id = self.next_id\n        c.freed_at = 0\n"),
    # Stats and dumps
    Mutation("clear_stats: the count is 0", HEAP, "self.space.num_allocs = 0\n", "self.space.num_allocs = 1\n"),
    Mutation("clear_stats: the peak is what is in use", HEAP, "self.space.peak_in_use = self.space.bytes_in_use\n", "self.space.peak_in_use = 0\n"),
    Mutation("clear_stats: the largest is 0", HEAP, "self.space.largest_alloc = 0\n", "self.space.largest_alloc += 0\n"),
    Mutation("clear_stats: ids go on", HEAP, "self.space.num_allocs = 0\n", "self.space.num_allocs = 0\n        self.space.next_id = 1\n"),
    Mutation("the limit is told as it was given", MAP, "largest_alloc, heap.limit, pool,", "largest_alloc, heap.limit // native.MIN_CHUNK * native.MIN_CHUNK, pool,"),
    Mutation("a chunk in use has bin -1 in a map", MAP, '    chunks["bin"][chunks["in_use"]] = -1\n', ""),
    # Where TensorFlow hangs, corrupts itself or aborts
    Mutation("A: the back-off always steps down", HEAP, "return less if less < num_bytes else num_bytes - native.MIN_CHUNK", "return less"),
    Mutation("B: the next size stops at 2^63", HEAP, "return num_bytes if num_bytes >= native.HALF_SPACE else num_bytes * 2", "return native.wrap_64(num_bytes * 2)"),
    Mutation("C: an exact fit is never split", TENSORFLOW, "max(int(fraction * limit), 1) if", "int(fraction * limit) if"),
    Mutation("D, E: no size above 2^62", HEAP, "if requested > native.MAX_REQUEST:", "if requested > native.MAX_REQUEST * 8:"),
    Mutation("F: a double free is one", CHUNKS, "        return native.FREE_DOUBLE", "        return native.FREE_INTERIOR"),
    Mutation("F: an interior pointer is one", CHUNKS, "            return native.FREE_INTERIOR", "            return native.FREE_DOUBLE"),
    Mutation("F: a foreign pointer is one", CHUNKS, "            return native.FREE_FOREIGN", "            return native.FREE_DOUBLE"),
]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2, help="copies that run at once")
    parser.add_argument("--only", default="", help="mutations whose rule has this text")
    asked = parser.parse_args()
    chosen = [each for each in MUTATIONS if asked.only in each.rule]
    print("| rule that was broken | noticed by | s |\n|---|---|---:|")
    missed = 0
    with tempfile.TemporaryDirectory(prefix="bfcviz-mutations-") as place:
        copies = SimpleQueue()
        for number in range(asked.workers):
            copies.put(copy_source(Path(place, str(number))))
        if why := tried(Mutation("none", HEAP, "class Heap:", "class Heap:"), copies)[0]:
            raise SystemExit(f"the source fails without a mutation: {why}")
        with ThreadPoolExecutor(asked.workers) as workers:
            for each, (why, seconds) in zip(
                chosen, workers.map(lambda one: tried(one, copies), chosen), strict=True
            ):
                missed += not why
                print(f"| {each.rule} | {why or '**nothing**'} | {seconds:.0f} |", flush=True)
    print(f"\n{len(chosen)} mutations, {missed} not noticed")
    return int(missed > 0)


def tried(mutation, copies):
    """What noticed a mutation, and after how many seconds; empty: nothing did."""
    folder = copies.get()
    begun = time.monotonic()
    path = folder / mutation.file
    before = path.read_text()
    if before.count(mutation.old) != 1:
        raise SystemExit(
            f"{mutation.rule}: {mutation.file} has its text {before.count(mutation.old)} times: mend the table"
        )
    after = before.replace(mutation.old, mutation.new)
    compile(after, mutation.file, "exec")  # else any test would notice it
    path.write_text(after)
    try:
        return noticed(folder), time.monotonic() - begun
    finally:
        path.write_text(before)
        copies.put(folder)


def noticed(folder):
    """The first recorded run or test that fails in a copy; empty: none."""
    said, status = call(folder, *GOLDEN)
    if status:
        found = re.search(
            r"^(\w+): \d+ operations, [1-9]|^(?:\w+\.)*(\w+(?:Error|Invariant))\b", said, re.MULTILINE
        )
        what = f"recorded run {found[1] or found[2]}" if found else "recorded runs"
        return what if status > 0 else "recorded runs: no end"
    said, status = call(folder, "-m", "pytest", "-n0", "-x", "-q", "-p", "no:cacheprovider", *TESTS)
    found = re.search(r"^FAILED \S*/(\S+?)(?:\[| |$)", said, re.MULTILINE)
    return "" if status == 0 else f"`{found[1]}`" if found else "tests: no end" if status < 0 else "tests"


def call(folder, *words):
    """What a plain Python says in a copy, and its exit status; below 0: it did not end in time."""
    try:
        done = subprocess.run(
            ["bash", "-c", f'ulimit -t {PATIENCE_S}; exec "$@"', "bash", sys.executable, *words],
            cwd=folder,
            env=environment(folder, BFCVIZ_UNCOMPILED="1"),
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_S,
        )
    except subprocess.TimeoutExpired:
        return "", -1
    return done.stdout + done.stderr, done.returncode


if __name__ == "__main__":
    sys.exit(main())

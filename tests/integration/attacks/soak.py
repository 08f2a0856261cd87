"""Attack: heaps, threads, readers and recordings at work for long, with a fault in each case; then all must agree.

A case is one round of a soak (`python tests/soak.py`): some heaps with random options, over sub-allocators that refuse,
raise and lie, used by several threads. What goes wrong beside it is the way of the case:

=========  ============================================================================================
rings      readers are lapped: the rings are small, and their readers sleep
recorded   nothing: all heaps write into one recording, which is read meanwhile
full       the disk of the recording is full, or the file reaches the limit of its size
removed    the folder of the recording is removed
observed   the clock of an observed allocator steps back
killed     the process is killed, or stopped for a while and then killed
drained    a drain beside the process packs what it records; the drain is killed again and again, then both are
stopped    the process is stopped (SIGSTOP) again and again while its recording is read
=========  ============================================================================================

At the end of a case: the books of the users == the heap == the model of its events == the recording. A worker process
runs many cases, one after another: it must not get more files, threads, mappings or memory.
"""

import contextlib
import ctypes
import gc
import json
import mmap
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
from heaps import KIB, MIB, assert_shows, new_heap
from integration.attacks.children import ended, expect, shared_memory, start, wait_for
from integration.attacks.threads import REFUSED, Unreliable, close, keeps_books
from processes import COMPILED
from threads import in_threads

import bfcviz
from bfcviz.errors import FileError
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.events.storage import drain, label_file
from bfcviz.events.storage.folder import BLOCKS_FILE, LABELS_FILE, is_locked
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.live.observed_heap import ObservedHeap
from bfcviz.model import Model
from bfcviz.model.trace_from_source import trace_of
from bfcviz.model.trace_index import IndexBuilder

IN_ONE_PROCESS = ("rings", "recorded", "full", "removed", "observed")
PR_SET_PDEATHSIG = 1  # of linux/prctl.h
WAYS = (*IN_ONE_PROCESS, "killed", "drained", "stopped")
if not COMPILED:  # a plain drain falls behind, and takes longer than a child may
    WAYS = tuple(way for way in WAYS if way != "drained")
ROUNDS = 400  # operations of a thread
ENDLESS = 1 << 30  # operations: the thread is killed before
MOST_THREADS = 4  # of one process
SIZES = (1, 300, 5000, 70_000, MIB)
DISK = 3 << 20  # bytes of a disk that gets full
PACKED_LABELS = 8192  # bytes that a drain packs at least


def case(number, rng, folder):
    way = WAYS[number % len(WAYS)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(rng.choice((1e-5, 1e-3)))
    try:
        counts = globals()[f"_{way}"](rng, folder)
    finally:
        sys.setswitchinterval(before)
    with (folder.parent / "tally.jsonl").open("a") as file:
        file.write(json.dumps({"way": way, **counts}) + "\n")
    GROWTH.check()
    return way


# ------------------------------------------------------------------------------
# Growth: what this process has, after each case.


class Growth:
    """Compares the files, threads, mappings and memory of this process with those after its first cases."""

    FIRST = 14  # cases in which caches and arenas fill
    PATIENCE_S = 10
    ROOM = {"files": 0, "threads": 0, "mappings": 40, "memory": 64 << 20}  # noqa: RUF012  constant

    def __init__(self):
        self.cases, self.most = 0, dict.fromkeys(self.ROOM, 0)

    def now(self):
        gc.collect()
        return {
            "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208  a path would open another
            "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208
            "mappings": Path("/proc/self/maps").read_text().count("\n"),
            "memory": int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize(),
        }

    def grown(self):
        return {
            name: (self.most[name], now)
            for name, now in self.now().items()
            if now > self.most[name] + self.ROOM[name]
        }

    def check(self):
        self.cases += 1
        if self.cases <= self.FIRST:
            self.most = {name: max(self.most[name], now) for name, now in self.now().items()}
            return
        until = time.monotonic() + self.PATIENCE_S
        while (grown := self.grown()) and time.monotonic() < until:  # the kernel still ends a joined thread
            time.sleep(0.01)
        assert not grown, f"after {self.cases} cases this process has grown: {grown}"


GROWTH = Growth()


# ------------------------------------------------------------------------------
# Work: threads that use heaps, and the books of what they hold.


class Work:
    """Some heaps over unreliable sub-allocators, and what threads hold of them.

    Args:
        rng: chooses all.
        log: makes the log of each heap.
        labels: their table; None: each its own.
    """

    def __init__(self, rng, log, labels=None):
        self.seeds = [rng.random() for _ in range(rng.randint(1, MOST_THREADS))]
        share = rng.choice((0, 0.05, 0.3))
        self.sources = [Unreliable(random.Random(rng.random()), share) for _ in range(rng.randint(1, 3))]
        self.heaps = [
            new_heap(
                rng.choice((4, 16)) * MIB + rng.choice((0, 1000)), source, log=log(), labels=labels,
                allow_growth=rng.random() < 0.8, garbage_collection=rng.random() < 0.5,
                timestamps=rng.random() < 0.2, exact_growth=rng.random() < 0.3,
                honour_alignment=rng.random() < 0.5, fragmentation_fraction=rng.choice((0.0, 0.01, 0.5)),
                first_region=rng.choice((256, 2 * MIB)),
            )
            for source in self.sources
        ]  # fmt: skip
        self.live = [{} for _ in self.heaps]
        self.served = [0] * len(self.seeds)
        self.errors = []

    def run(self, rounds=ROUNDS, tell=None):
        """Use the heaps; `tell(thread, count)` is called after each allocation of a thread."""

        def guarded(thread):
            try:
                self._use(thread, random.Random(self.seeds[thread]), rounds, tell)
            except BaseException as error:  # noqa: BLE001  raised again below
                self.errors.append(error)

        in_threads(guarded, len(self.seeds))
        if self.errors:
            raise self.errors[0]

    def _use(self, thread, own, rounds, tell):
        mine = []
        while rounds:
            rounds -= 1
            number = own.randrange(len(self.heaps))
            heap, dice = self.heaps[number], own.random()
            if dice < 0.45 and mine:
                number, address = mine.pop(own.randrange(len(mine)))
                del self.live[number][address]
                self.heaps[number].free(address)
            elif dice < 0.96:
                self._allocate(thread, own, number, mine, tell)
            else:
                frontier = own.randrange(ROUNDS)
                with contextlib.suppress(*REFUSED):
                    own.choice((heap.trim, heap.moment, partial(heap.set_safe_frontier, frontier)))()

    def _allocate(self, thread, own, number, mine, tell):
        size = own.choice(SIZES)
        try:
            label = f"{thread} {self.served[thread] + 1} {size}"
            address = self.heaps[number].allocate(size, own.choice((1, 256, 4096)), label=label)
        except REFUSED:
            return
        assert self.live[number].setdefault(address, size) == size, "one address was given twice"
        mine.append((number, address))
        self.served[thread] += 1
        if tell is not None:
            tell(thread, self.served[thread])

    def check(self):
        """The heaps, the books and the sub-allocators agree."""
        for heap, source, live in zip(self.heaps, self.sources, self.live, strict=True):
            keeps_books(heap, source, live)

    def check_trace(self, trace):
        """The trace of all heaps agrees, too."""
        for heap in self.heaps:
            model = Model(trace, heap.pool)
            model.seek(len(trace))
            assert_shows(model, heap)

    def close(self):
        for heap, source in zip(self.heaps, self.sources, strict=True):
            close(heap, source)

    @property
    def counts(self):
        """Numbers for the report."""
        logs = {id(heap.log): heap.log.head for heap in self.heaps}
        return {"heaps": len(self.heaps), "threads": len(self.seeds), "events": sum(logs.values())}


@contextlib.contextmanager
def beside(look):
    """Call `look` again and again in a thread of its own; its error is raised at the end."""
    over, errors = threading.Event(), []

    def watch():
        try:
            while not over.is_set():
                look()
                over.wait(0.002)
        except BaseException as error:  # noqa: BLE001  raised below
            errors.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if errors:
        raise errors[0]


# ------------------------------------------------------------------------------
# The ways, in one process.


def _rings(rng, _folder):
    work = Work(rng, lambda: EventLog(rng.choice((64, 256, 4096))))
    traces = [trace_of(heap, keep=512) for heap in work.heaps]
    models = [Model(trace) for trace in traces]

    def look():
        for trace, model in zip(traces, models, strict=True):
            trace.refresh()
            model.seek(len(trace))

    with beside(look):
        work.run()
    work.check()
    look()
    for model, heap in zip(models, work.heaps, strict=True):
        assert model.step == heap.log.head
        assert_shows(model, heap)
    work.close()
    return {**work.counts, "lapped": sum(trace.source.gaps for trace in traces)}


def _recorded(rng, folder):
    with Recording(folder / "run") as recording:
        work = Work(rng, lambda: recording.log, recording.labels)
        reader = _Reader(folder / "run")
        with beside(reader.look):
            work.run()
        work.check()
        work.check_trace(recording.trace())
        head = recording.log.head
    trace = reader.last(head, Status.COMPLETE)
    assert len(trace.origin.pools) == max(int(trace.read(0, head)["pool"].max(initial=0)) + 1, 1)
    work.close()
    return work.counts


class _Reader:
    """Follows a recording, at a random pool, as a dashboard of another process does."""

    def __init__(self, folder):
        self.folder, self.trace, self.looks = folder, None, 0

    def look(self):
        if self.trace is None:
            if not (self.folder / "origin.json").exists():
                return
            self.trace = Trace.open(self.folder)
        self.trace.refresh()
        self.looks += 1
        model = Model(self.trace, self.looks % len(self.trace.origin.pools))
        model.seek(len(self.trace))

    def last(self, events, *allowed):
        """The whole trace at the end: so many events (None: any number), and one of these states."""
        if self.trace is not None:
            self.look()
            assert not self.trace.following
        trace = bfcviz.open(self.folder)
        trace.source.cut_at_damage()
        assert trace.origin.status in allowed, trace.origin
        assert events is None or len(trace) == events, (len(trace), events)
        assert self.trace is None or len(trace) == len(self.trace)
        for pool in range(len(trace.origin.pools)):
            model = Model(trace, pool)
            model.seek(len(trace))
            model.seek(0)
        return trace


@contextlib.contextmanager
def small_disk(folder):
    """A disk of 3 MiB; where none can be mounted, a limit of the size of files."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", folder], capture_output=True, check=False
    )
    if made.returncode == 0:
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _full(rng, folder):
    with small_disk(folder / "disk"):
        recording = Recording(folder / "disk" / "run")
        work = Work(rng, lambda: recording.log, recording.labels)
        while recording.log.error == 0:
            for number in range(len(work.seeds)):
                work.seeds[number] = rng.random()
            for live, heap in zip(work.live, work.heaps, strict=True):
                while live:
                    heap.free(live.popitem()[0])
            work.run(5 * ROUNDS)
        work.check()
        with contextlib.suppress(FileError):  # the origin has no room either: the recording ends early
            recording.close()
        on_disk = recording.log.on_disk
        trace = _Reader(folder / "disk" / "run").last(on_disk, Status.TRUNCATED)
        assert 0 < len(trace) < recording.log.head
        del trace
        gc.collect()
    work.close()
    return work.counts


def _removed(rng, folder):
    recording = Recording(folder / "run")
    work = Work(rng, lambda: recording.log, recording.labels)
    work.run(ROUNDS // 4)
    shutil.rmtree(folder / "run")
    work.run(ROUNDS // 4)
    with contextlib.suppress(FileError):
        recording.close()
        raise AssertionError("a recording whose folder is gone was closed without an error")
    work.run(ROUNDS // 4)
    for heap, source in zip(work.heaps, work.sources, strict=True):
        heap.check_invariants()
        close(heap, source)
    return work.counts


def _observed(rng, folder):
    with Recording(folder / "run") as recording:
        heaps = [ObservedHeap(recording, name=f"device {n}", unit=rng.choice((1, 512))) for n in range(2)]
        seeds = [rng.random() for _ in range(3)]

        def report(thread):
            own, held, clock = random.Random(seeds[thread]), [], own_clock(seeds[thread])
            base = (thread + 1) << 32
            for number in range(ROUNDS):
                if held and own.random() < 0.45:
                    heap, address = held.pop(own.randrange(len(held)))
                    heap.free(address, next(clock))
                    continue
                heap, address = own.choice(heaps), base + number * 64 * KIB
                heap.allocate(address, own.randrange(1, 64 * KIB), label=f"thread {thread}", time=next(clock))
                held.append((heap, address))

        in_threads(report, len(seeds))
        head = recording.log.head
    trace = _Reader(folder / "run").last(head, Status.COMPLETE)
    times = trace.read(0, head)["time"]
    assert (times[1:] >= times[:-1]).all()
    for heap in heaps:
        model = Model(trace, heap.pool)
        model.seek(len(trace))
        chunks = heap.moment().chunks
        assert (
            model.chunks()[["address", "size", "in_use"]].tolist()
            == chunks[["address", "size", "in_use"]].tolist()
        )
        assert not any(vars(heap.inconsistencies).get(name) for name in ("overlaps", "unknown_frees"))
    return {"heaps": len(heaps), "threads": len(seeds), "events": head}


def own_clock(seed):
    """Nanoseconds that mostly rise, and step back by up to a second."""
    own, now = random.Random(seed), 10**9
    while True:
        now += own.randrange(-(10**9), 1000) if own.random() < 0.02 else own.randrange(1000)
        yield max(now, 0)


# ------------------------------------------------------------------------------
# The ways with a process of their own.


def _killed(rng, folder):
    return _with_child(rng, folder, is_killed=True)


def _stopped(rng, folder):
    return _with_child(rng, folder, is_killed=False)


def _with_child(rng, folder, *, is_killed):
    """A child records; it is stopped some times, and killed at a random moment, or it ends by itself."""
    child, done = _recorder(rng, folder / "run", 4 * ROUNDS)
    reader, stops = _Reader(folder / "run"), 0
    for _ in range(rng.randrange(3) if is_killed else 4):
        time.sleep(rng.random() * 0.02)
        os.kill(child, signal.SIGSTOP)
        try:
            reader.look()
        finally:  # a child that stays stopped keeps the pipes of this process open after its end
            os.kill(child, signal.SIGCONT)
        stops += 1
    kills = 0
    if is_killed:
        time.sleep(rng.random() ** 2 * 0.1)
        kills = _kill(child, 0)
    else:
        expect(ended(child), 0)
    trace = reader.last(None, Status.TRUNCATED, Status.COMPLETE)
    assert is_killed or trace.origin.status is Status.COMPLETE
    return {**_acknowledged(trace, done), "stops": stops, "kills": kills}


def _drained(rng, folder):
    """A child records until it is killed, and a drain packs; at the end either may be killed first."""
    run = folder / "run"
    child, done = _recorder(rng, run, ENDLESS)
    packer, reader, drain_kills = start(lambda: _drain(run)), _Reader(run), 0

    def has_packed():
        return (run / BLOCKS_FILE).is_file() and (run / BLOCKS_FILE).stat().st_size > before

    for _ in range(rng.randrange(1, 4)):
        before = (run / BLOCKS_FILE).stat().st_size if drain_kills else 0
        assert wait_for(packer, has_packed), expect(ended(packer))
        time.sleep(rng.random() ** 2 * 0.05)
        drain_kills += _kill(packer)
        packer = start(lambda: _drain(run))
        reader.look()
    many = rng.choice((0, 10_000))  # so that the log writes to what the drain has freed
    assert wait_for(child, lambda: sum(done) >= many), expect(ended(child))
    if rng.random() < 0.5:  # much is left as it was written
        drain_kills += _kill(packer)
        _kill(child)
    else:
        _kill(child)
        expect(ended(packer), 0)
        labels = (run / LABELS_FILE).stat()
        assert labels.st_blocks * 512 < max(labels.st_size // 2, 2 * PACKED_LABELS), labels
    trace = reader.last(None, Status.TRUNCATED)
    return {**_acknowledged(trace, done), "kills": 1, "drain kills": drain_kills}


def _recorder(rng, folder, rounds):
    """Start a child that records; returns it, and how many allocations of each thread it has acknowledged."""
    shared = shared_memory()
    done = (ctypes.c_int64 * MOST_THREADS).from_buffer(mmap.mmap(-1, mmap.PAGESIZE))
    child = start(lambda: _record(rng, folder, rounds, shared, done))
    assert wait_for(child, lambda: shared.begun), expect(ended(child), 0)
    return child, done


def _kill(child, *allowed):
    """Kill a child, which may have ended before with a status that is allowed; returns how many were killed."""
    os.kill(child, signal.SIGKILL)
    status = ended(child)
    expect(status, -signal.SIGKILL, *allowed)
    return int(status == -signal.SIGKILL)


def _acknowledged(trace, done):
    """All that was acknowledged is there, by its label, too; returns numbers for the report."""
    events = trace.read(0, len(trace))
    made = events[events["kind"] == Kind.ALLOCATE]
    names = [trace.labels.name(number).split() for number in made["label"].tolist()]
    thread, which, size = np.array(names, np.int64).reshape(-1, 3).T
    assert np.array_equal(made["requested"], size)
    for number, acknowledged in enumerate(done):
        own = which[thread == number]
        assert len(own) in {acknowledged, acknowledged + 1}, (number, len(own), acknowledged)
        assert np.array_equal(own, np.arange(1, len(own) + 1))
    return {"heaps": len(trace.origin.pools), "events": len(trace), "acknowledged": sum(done)}


def _record(rng, folder, rounds, shared, done):
    """A child's life, which ends with its parent's: a stopped orphan would keep the pipes of the soak open for ever."""
    end_with_parent()
    with Recording(folder) as recording:
        work = Work(rng, lambda: recording.log, recording.labels)
        shared.begun = 1

        def tell(thread, count):
            done[thread] = count

        work.run(rounds, tell)
        work.check()


def _drain(folder):
    """The life of a drain: it packs small blocks until the program beside it has ended."""
    end_with_parent()
    drain.MOST_EVENTS, label_file._LEAST, label_file._PIECE = 2048, PACKED_LABELS, 8 * PACKED_LABELS
    place = drain.Drain(folder, IndexBuilder)
    while not place.step(has_ended=not is_locked(folder / LABELS_FILE)):
        time.sleep(0.001)


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

"""Drain: packs the events of a recording while another process writes them, and frees the space that they took.

::

    events.bin   [ window 5 | window 6 | free | window 3 | window 4 ]    the log writes; `event_file` has the rules
    events.bfc   [ block ][ block ][ block ]                             the drain appends

A block is complete in the second file before its events are freed in the first, so a kill of either process at any
moment loses nothing: what is in both is read once. Where the drain is slow, the first file grows. At the end of a
complete recording all events are packed, and the first file is removed. `label_file` says how labels are packed.

A drain that keeps only the newest events makes a hole at the beginning of the second file, too: up to a block that has
a keyframe, the state from which its events can be understood. Readers see by it what was dropped.
"""

import os
import platform
import sys
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Thread
from time import monotonic
from typing import Final, NamedTuple

import numpy as np

from bfcviz.errors import FileError
from bfcviz.events.event_file import EventFile
from bfcviz.events.log_memory import SLOT
from bfcviz.events.memory_samples import PROCESS_FILE, SAMPLE_EVERY_S, sample_process
from bfcviz.events.schema import EVENT
from bfcviz.events.storage.block_codec import MOST_EVENTS, EventCodec
from bfcviz.events.storage.blocks import BlockFile, Describe, event_section, is_keyframe_stored
from bfcviz.events.storage.files import PRIVATE_FILE, free_space, try_lock
from bfcviz.events.storage.folder import (
    BLOCKS_FILE,
    EVENTS_FILE,
    ORIGIN_FILE,
    RECORD,
    nothing_dropped_text,
    read_origin,
    recordings_in,
)
from bfcviz.events.storage.label_file import LabelPacker
from bfcviz.terminal import say

MakeDescribe = Callable[[int], Describe]
"""Given the number of heaps at first, returns what describes the blocks of a recording, and may get more heaps."""

_PAGE: Final = 4096


class _DrainedBlock(NamedTuple):
    """A block that a drain made, as bytes: the step after its last event, and whether it has a keyframe."""

    stop: int
    section: bytes
    has_keyframe: bool


class DrainMemory:
    """What a drain needs to pack one block at a time, about 60 MiB: drains in one thread share it."""

    def __init__(self) -> None:
        self.codec, self.events = EventCodec(), np.empty(MOST_EVENTS, EVENT)


class Drain:
    """A drain of one recording, which it packs; `step` does what there is to do.

    Args:
        folder: of the recording, which has begun.
        make_describe: what to store with the blocks; None: nothing.
        keep: bytes of blocks to keep, the newest; those from the last keyframe on stay in any case. None: all.
        memory: of its own by default.

    Attributes:
        packed: how many events are packed.
        undescribed: the first step that nothing describes, so that it and later ones cannot be dropped; None: none.

    Raises:
        FileError: another process drains the recording, or its files cannot be read or written.
    """

    def __init__(
        self,
        folder: Path,
        make_describe: MakeDescribe | None = None,
        keep: int | None = None,
        memory: DrainMemory | None = None,
    ) -> None:
        self.folder, self._keep = folder, keep
        try:
            fd = os.open(folder / BLOCKS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        except OSError as error:
            raise FileError(folder / BLOCKS_FILE, "", f"cannot be written: {error.strerror}") from error
        self._out = FileIO(fd, "r+b")
        if not try_lock(fd):
            self._out.close()
            raise FileError(folder, "", "is being packed by another process")
        known = BlockFile(folder / BLOCKS_FILE)
        self.packed, self._most_lost, end = known.stop, known.most_lost, known.append_place
        os.ftruncate(fd, end)  # a drain that was killed may have left a part of a block
        os.lseek(fd, end, os.SEEK_SET)
        self._memory = memory or DrainMemory()
        # The describer needs all events before a block: a second drain stores none.
        pools = len(read_origin(folder).origin.pools)
        self._describe = None if make_describe is None or end else make_describe(pools)
        self.undescribed: int | None = None
        self._keyframes = known.keyframe_places()
        self._unwritten: _DrainedBlock | None = None
        self._labels = LabelPacker(folder)

    def step(self, *, has_ended: bool = False) -> bool:
        """Pack every whole block that the drain finds; at the end the rest, too. Returns whether it ended.

        Args:
            has_ended: nothing is recorded any more. Otherwise only an origin with the number of events tells: on a file
                system without locks a recording at work looks as one that was killed.

        Raises:
            FileError: a file cannot be read, or the disk is full; a later call continues.
        """
        stored = read_origin(self.folder).events
        has_ended = has_ended or stored is not None
        path = self.folder / EVENTS_FILE
        if not path.exists():
            return has_ended
        try:
            file = EventFile(path)
            end = file.find_end(self.packed, self._most_lost)
            self.packed = file.skip_lost(self.packed, self._most_lost)
            while self.packed + (1 if has_ended else MOST_EVENTS) <= end:
                if not self._pack(file, min(self.packed + MOST_EVENTS, end)):
                    return True
            if has_ended and stored == self.packed:
                path.unlink()
        except OSError as error:
            raise FileError(path, "", f"cannot be packed: {error.strerror or error}") from error
        return has_ended

    def close(self) -> None:
        """End the drain; what is not packed stays as it is."""
        self._out.close()
        self._labels.close()

    def _pack(self, file: EventFile, stop: int) -> bool:
        """Pack the events up to `stop`; False if they are damaged, and stay as they are."""
        # A block that could not be written is written first: the describer has seen its events.
        made = self._unwritten = self._unwritten or self._make(file, stop)
        if made is None:
            return False
        rest, place = memoryview(made.section), self._out.tell()
        try:
            while rest:
                rest = rest[self._out.write(rest) :]
        except OSError:
            self._out.truncate(place)
            self._out.seek(place)
            raise
        self._unwritten, self.packed = None, made.stop
        with suppress(OSError):  # without it the file grows until the end
            file.free(made.stop)
        if made.has_keyframe:
            self._keyframes.append(place)
        if self._keep is not None:
            self._drop_oldest(self._out.tell() - self._keep)
        with suppress(OSError, FileError):  # without it their file grows
            self._labels.pack()
        return True

    def _drop_oldest(self, begin: int) -> None:
        """Free the drained blocks before byte `begin`, and those up to the next keyframe, or else the last."""
        places = self._keyframes
        at = min(bisect_left(places, begin), len(places) - 1)
        if begin > 0 and at >= 0:
            with suppress(OSError):
                _free_beginning(self.folder / BLOCKS_FILE, places[at])
            self._keyframes = places[at:]

    def _make(self, file: EventFile, stop: int) -> "_DrainedBlock | None":
        """The drain's block of the events up to `stop`; None if they are damaged."""
        events = self._memory.events[: stop - self.packed]
        if file.copy_into(events, self.packed) < len(events):
            return None
        index, keyframe = (b"", b"") if self._describe is None else self._describe(events)
        if not index and self._describe is not None and self.undescribed is None:
            self.undescribed = self.packed
        return _DrainedBlock(
            stop, event_section(self._memory.codec, events, index, keyframe), is_keyframe_stored(keyframe)
        )


class FolderDrain:
    """Packs all long recordings in a folder in the background: those with more events than a block holds.

    At the end also the shorter ones, with more events than a slot.

    A recording that cannot be packed stays as it is; the program that writes it goes on. Also samples the memory of the
    processes that write.

    Args:
        folder: of `bfcviz record`: a recording itself, or one in each subfolder.
        make_describe, keep: as for `Drain`, for each recording.
    """

    def __init__(self, folder: Path, make_describe: MakeDescribe, keep: int | None = None) -> None:
        self._folder, self._make_describe, self._keep = folder, make_describe, keep
        self._drains: dict[Path, Drain] = {}
        self._memory = DrainMemory()
        self._processes: dict[Path, int | None] = {}  # None: not known, or it has ended
        self._next_sample = 0.0
        self._growing: set[Path] = set()  # those of which nothing is dropped any more
        self._process = os.getpid()
        self._has_ended = Event()
        self._thread = Thread(target=self._run, name="bfcviz-drain", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the drain with the program: pack what is left. A process forked meanwhile packs nothing."""
        if os.getpid() != self._process or self._has_ended.is_set():
            return
        self._has_ended.set()
        self._thread.join()
        self._look(has_ended=True)
        for drain in self._drains.values():
            drain.close()
        for place in self._processes:
            if not (place / ORIGIN_FILE).exists():  # it was discarded while its process was sampled
                with suppress(OSError):
                    (place / PROCESS_FILE).unlink(missing_ok=True)
                    place.rmdir()

    def _run(self) -> None:
        wait_s = SAMPLE_EVERY_S
        while not self._has_ended.wait(wait_s):
            wait_s = 0 if self._look() else SAMPLE_EVERY_S

    def _look(self, *, has_ended: bool = False) -> bool:
        """Drain what there is; returns whether there was anything, and so may be more by now."""
        before, most_left = self._num_packed(), min(SLOT, MOST_EVENTS) if has_ended else MOST_EVENTS
        if is_time := monotonic() >= self._next_sample:
            self._next_sample = monotonic() + SAMPLE_EVERY_S
        for place in recordings_in(self._folder).values():
            if is_time:
                self._sample(place)
            try:
                if place not in self._drains and _num_recorded(place) > most_left:
                    self._drains[place] = Drain(place, self._make_describe, self._keep, self._memory)
                if (drain := self._drains.get(place)) is not None:
                    drain.step(has_ended=has_ended)
                    self._say_if_growing(drain)
            except (FileError, OSError):
                # The disk is full, the folder is gone, or another process packs: what is not packed stays as it is, and
                # the next look tries again.
                continue
        return self._num_packed() > before

    def _num_packed(self) -> int:
        return sum(drain.packed for drain in self._drains.values())

    def _say_if_growing(self, drain: Drain) -> None:
        if self._keep is None or drain.undescribed is None or drain.folder in self._growing:
            return
        self._growing.add(drain.folder)
        say(
            f"bfcviz: {drain.folder}: {nothing_dropped_text(drain.undescribed)}; end the program before the disk is "
            "full, and use the flight recorder (bfcviz record --on-oom), which keeps the newest events in memory",
            file=sys.stderr,
        )

    def _sample(self, place: Path) -> None:
        if place not in self._processes:
            with suppress(FileError, OSError):  # it is being written: look again
                details = read_origin(place).origin.details
                found, host = details.get("process"), details.get("host", platform.node())
                self._processes[place] = found if isinstance(found, int) and host == platform.node() else None
        try:
            if (process := self._processes.get(place)) is not None:
                sample_process(process, place)
        except (OSError, ValueError, IndexError):
            self._processes[place] = None  # it has ended, or runs where this process does not see it


def _num_recorded(place: Path) -> int:
    """Events to drain: those that the file of a recording has room for."""
    path = place / EVENTS_FILE
    return path.stat().st_size // RECORD if path.is_file() else 0


def check_can_free_space(folder: Path, option: str) -> None:
    """Raise FileError where a drain cannot free the beginning of a file in this folder, as `option` needs."""
    with TemporaryFile(dir=folder) as file:
        file.write(bytes(_PAGE))
        file.flush()
        if not free_space(file.fileno(), 0, _PAGE):
            raise FileError(
                folder,
                "",
                f"is on a file system that cannot free the beginning of a file, as {option} needs; choose another "
                f"folder, or leave {option} out",
            )


def _free_beginning(path: Path, end: int) -> None:
    """Make a hole of the drained first bytes of a file, up to a page before `end`."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        free_space(fd, 0, end // _PAGE * _PAGE)
    finally:
        os.close(fd)

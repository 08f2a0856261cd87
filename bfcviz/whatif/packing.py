"""Offsets of blocks with known lifetimes: one block after the other, or by a complete search below a given height."""

import numpy as np
from numpy.typing import NDArray

from bfcviz import native

# ------------------------------------------------------------------------------
# Offsets of blocks with known lifetimes, one block after the other in a given order; and whether any two overlap.


class Skyline:
    """The skyline of a packing: the highest offset that is used at each time; it only rises.

    A tree of maxima over times: `_best` has the highest value within each node's times, `_all` a value that all of its
    times have at least. A range is O(log n) nodes.

    Args:
        times: number of times.
    """

    def __init__(self, times: int) -> None:
        self._leaves = 1
        while self._leaves < times:
            self._leaves *= 2
        self._best = np.zeros(2 * self._leaves, np.int64)
        self._all = np.zeros(2 * self._leaves, np.int64)

    def top(self, start: int, stop: int) -> int:
        """The skyline's highest offset in [start, stop), which is not empty."""
        low, high, found = start + self._leaves, stop + self._leaves, 0
        while low < high:
            if low % 2:
                found = max(found, self._best[low])
                low += 1
            if high % 2:
                high -= 1
                found = max(found, self._best[high])
            low //= 2
            high //= 2
        for end in (start, stop - 1):
            node = end + self._leaves
            while node > 1:
                node //= 2
                found = max(found, self._all[node])
        return found

    def lift(self, start: int, stop: int, value: int) -> None:
        """Let no offset of the skyline in [start, stop), which is not empty, be lower than `value`."""
        low, high = start + self._leaves, stop + self._leaves
        while low < high:
            if low % 2:
                self._lift_node(low, value)
                low += 1
            if high % 2:
                high -= 1
                self._lift_node(high, value)
            low //= 2
            high //= 2
        for end in (start, stop - 1):
            node = end + self._leaves
            while node > 1:
                node //= 2
                self._best[node] = max(self._best[node], value)

    def _lift_node(self, node: int, value: int) -> None:
        self._all[node] = max(self._all[node], value)
        self._best[node] = max(self._best[node], value)


def fill_gaps(
    start: NDArray[np.int64], stop: NDArray[np.int64], size: NDArray[np.int64], offset: NDArray[np.int64]
) -> None:
    """Place each block in the lowest gap between those before it that live at some time with it.

    The time grows with the square of their number.

    Args:
        start: int64[n], when each block begins to live.
        stop: int64[n], when it no longer lives; above `start`.
        size: int64[n], above 0.
        offset: int64[n]; receives the offsets.
    """
    count = len(size)
    placed = np.zeros((4, count), np.int64)  # start, stop, offset and end of those placed, by offset
    for block in range(count):
        low = 0
        at = 0
        while at < block:
            if placed[0, at] < stop[block] and placed[1, at] > start[block]:
                if placed[2, at] >= low + size[block]:
                    break
                low = max(low, placed[3, at])
            at += 1
        offset[block] = low
        at = block
        while at > 0 and placed[2, at - 1] > low:
            for row in range(4):
                placed[row, at] = placed[row, at - 1]
            at -= 1
        placed[0, at], placed[1, at] = start[block], stop[block]
        placed[2, at], placed[3, at] = low, low + size[block]
        if block % 1024 == 0:
            native.check_signals()


def stack(
    skyline: Skyline,
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    size: NDArray[np.int64],
    offset: NDArray[np.int64],
) -> None:
    """Place each block above all of the skyline that live at some time with it, and add it; as `fill_gaps` else."""
    for block in range(len(size)):
        low = skyline.top(start[block], stop[block])
        skyline.lift(start[block], stop[block], low + size[block])
        offset[block] = low
        if block % 65536 == 0:
            native.check_signals()


def first_overlap(
    skyline: Skyline,
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    offset: NDArray[np.int64],
    end: NDArray[np.int64],
) -> int:
    """In a packing: the first block that shares bytes at some time with one before it; -1: none does.

    Args:
        skyline: a new one; receives the blocks.
        start: int64[n], when each block begins to live.
        stop: int64[n], when it no longer lives; above `start`.
        offset: int64[n], ascending.
        end: int64[n], above `offset`.
    """
    for block in range(len(start)):
        if skyline.top(start[block], stop[block]) > offset[block]:
            return block
        skyline.lift(start[block], stop[block], end[block])
    return -1


# ------------------------------------------------------------------------------
# Search for offsets of blocks with known lifetimes below a given height: complete, and in steps.
#
# The method is that of Moffitt, MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning
# (ASPLOS 2023). Blocks are placed one after the other, each at its lowest offset above the placed blocks that it shares
# time with::
#
#     offset
#       |        +----+        section: a set of blocks that live at one time, and that is part of no other such set
#       |  +-----+ b  |        floor: no further block of the section can be placed lower
#       |  |  a  +----+--+     left: bytes of the blocks of the section that are not placed yet
#       |  |     |   c   |
#       +--+-----+-------+---> sections
#
# - Canonical order: each next block has the same or a higher offset than the one before, and of equal offsets a later
#   place in the order of the blocks. Every plan can be made so, but in one way only.
# - Dominance: a block that another unplaced one fits below of is not placed yet; it would leave a hole.
# - Inference: where the floor of a section plus what is left of it exceed the height, no plan follows.
# - A block with nothing unplaced at its time is placed once; if that fails, so does all else.
# - Decomposition: times that no unplaced block connects any more are solved apart. If one of them has no plan, the
#   search returns at once to the block that separated them.
#
# Where MiniMalloc starts its orders again and again, each with more steps, a search here continues where it stopped.


SEARCHING = 0
FOUND = 1
IMPOSSIBLE = 2

_BEYOND = 1 << 62  # above all offsets


class PackingProblem:
    """The blocks to pack, with their sections and neighbours; searches share it and do not change it.

    Args:
        start: int64[n], when each block begins to live.
        stop: int64[n], when it no longer lives; above `start`.
        size: int64[n], above 0.

    Attributes:
        size: the argument.
        first: int64[n], the first section of each block.
        last: int64[n], the section after its last one.
        totals: int64[sections], bytes of each section.
        neighbours: blocks that share time with each block; those of block b are [neighbours_at[b], neighbours_at[b+1]).
        members: blocks of each section, in the same way by `members_at`.
    """

    def __init__(self, start: NDArray[np.int64], stop: NDArray[np.int64], size: NDArray[np.int64]) -> None:
        count = len(size)
        starts = np.repeat([False, True], count)
        order = np.lexsort((starts, np.concatenate((stop, start))))
        begins = starts[order]
        opens = begins & np.concatenate(([False], ~begins[: len(begins) - 1]))
        section = np.empty(2 * count, np.int64)
        section[order] = np.cumsum(opens)
        self.size = np.ascontiguousarray(size, np.int64)
        self.first = section[count:].copy()
        self.last = section[:count] + 1
        lengths = self.last - self.first
        blocks = np.repeat(np.arange(count), lengths)
        self.members, self.members_at = _canonical_blocks_by_group(
            _canonical_range_numbers(self.first, lengths), blocks, int(self.last.max(initial=0))
        )
        sums = np.concatenate(([0], np.cumsum(self.size[self.members])))
        self.totals = np.diff(sums[self.members_at])
        # Blocks in order of their first section: each shares time with those after it that begin before it ends.
        order = np.argsort(self.first, kind="stable")
        after = np.arange(1, count + 1)
        later = np.searchsorted(self.first[order], self.last[order]) - after
        one, other = np.repeat(order, later), order[_canonical_range_numbers(after, later)]
        self.neighbours, self.neighbours_at = _canonical_blocks_by_group(
            np.concatenate((one, other)), np.concatenate((other, one)), count
        )


def _canonical_range_numbers(begin: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """For `PackingProblem`: the numbers `begin`, `begin + 1`, ... of each range, one range after the other."""
    return np.arange(length.sum()) + np.repeat(begin - np.cumsum(length) + length, length)


def _canonical_blocks_by_group(
    group: NDArray[np.int64], block: NDArray[np.int64], groups: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For `PackingProblem`: blocks by ascending group, then number; and where each group begins."""
    begins = np.concatenate(([0], np.cumsum(np.bincount(group, minlength=groups))))
    return block[np.lexsort((block, group))].astype(np.int64), begins.astype(np.int64)


class Task:
    """Of a search for a packing: unplaced blocks of sections that no other unplaced block connects with others.

    Attributes:
        start, stop: where its pairs are in the list of the search.
        first, last: the range of sections.
        owner: depth of the frame that is tried again if this has no plan.
        after: the task to solve next.
    """

    def __init__(self, start: int, stop: int, first: int, last: int) -> None:
        self.start = start
        self.stop = stop
        self.first = first
        self.last = last
        self.owner = 0
        self.after: Task | None = None


_NO_TASK = Task(0, 0, 0, 0)


class Frame:
    """In the search for a packing: a place for one block, the choice of which is still open.

    Attributes:
        task: whose blocks these are.
        start, stop: where pairs are in the list of the search that have all its unplaced blocks, and others.
        end: where the list ended when the frame was opened.
        back: depth of the frame that is tried again if no choice leads to a plan.
        trail: length of the trail before the choice.
        offset, rank: of the block that is placed here, or of the one in the frame before: only later ones are tried.
        ceiling: some unplaced block fits below this offset: others are not placed above it.
        block: the one that is placed here.
        alone: it shares time with no unplaced one.
    """

    def __init__(self) -> None:
        self.task = _NO_TASK
        self.start = self.stop = self.end = self.back = self.trail = 0
        self.offset = self.rank = self.ceiling = self.block = 0
        self.alone = False


class CanonicalSearch:
    """One complete search for a packing of at most `height` bytes.

    Args:
        problem: the blocks.
        order: int64[n], the blocks in the order in which they are tried at equal offsets.
        by_total: whether blocks of a section with more bytes left come first, before that order.
        height: in bytes.

    Attributes:
        offset: int64[n]; offsets of the blocks, once `run` has returned FOUND.
    """

    def __init__(
        self, problem: PackingProblem, order: NDArray[np.int64], by_total: bool, height: int
    ) -> None:
        count, sections = len(problem.size), len(problem.totals)
        self._count = count
        self._size = problem.size
        self._first = problem.first
        self._last = problem.last
        self._neighbours = problem.neighbours
        self._neighbours_at = problem.neighbours_at
        self._members = problem.members
        self._members_at = problem.members_at
        self._by_total = by_total
        self._height = height
        self.offset = np.full(count, -1, np.int64)
        self._place_in_order = np.empty(count, np.int64)
        np.asarray(self._place_in_order)[order] = np.arange(count)
        self._low = np.zeros(count, np.int64)
        self._floor = np.zeros(sections, np.int64)
        self._left = problem.totals.copy()
        cuts = np.zeros(sections + 1, np.int64)
        np.add.at(cuts, problem.first, 1)
        np.add.at(cuts, problem.last - 1, -1)
        self._cuts = np.cumsum(
            cuts[:sections]
        )  # unplaced blocks that live in each section and in the next one
        self._most = np.zeros(
            count, np.int64
        )  # while a task is sorted: the most bytes left in a section of a block
        self._touched = np.zeros(sections, np.int64)
        self._stamps = np.zeros(sections, np.int64)
        self._stamp = 0
        self._trail = np.zeros(
            1024, np.int64
        )  # pairs: a block, or the number of blocks plus a section; its value
        self._trail_end = 0
        # pairs: a block, and its rank in the order of its task
        self._list = np.ravel(np.stack((order, np.arange(count)), axis=1))
        self._list_end = 2 * count
        self._frames = [Frame() for _ in range(count + 2)]
        self._depth = 1
        self._solved = self._begin(sections)

    def run(self, steps: int) -> int:
        """Try to pack at most so many blocks; returns SEARCHING, FOUND or IMPOSSIBLE."""
        if self._depth == 0:
            return IMPOSSIBLE
        step = 0
        while not self._solved:
            if step == steps:
                return SEARCHING
            step += 1
            frame = self._frames[self._depth]
            if self._choose(frame):
                if self._place(frame):
                    self._solved = self._descend(frame)
                else:
                    self._undo(frame)
            else:
                while self._depth > frame.back:
                    self._depth -= 1
                    if self._depth == 0:
                        return IMPOSSIBLE
                    self._undo(self._frames[self._depth])
        return FOUND

    def _begin(self, sections: int) -> bool:
        """Open the packing search's first frame: all blocks, in tasks that share no time; whether there are none."""
        root = self._frames[0]
        root.stop = self._list_end
        return self._start(self._tasks_of(Task(0, 0, 0, sections), root, 0))

    def _choose(self, frame: Frame) -> bool:
        """Take the next block to be packed: the lowest, of equal ones the first in the order."""
        block, offset, rank = -1, frame.ceiling, 0
        for at in range(frame.start, frame.stop, 2):
            other = self._list[at]
            low = self._low[other]
            if low > offset or low < frame.offset or self.offset[other] >= 0:
                continue
            place = self._list[at + 1]
            if low == frame.offset and place <= frame.rank:
                continue
            if low < offset or (block >= 0 and place < rank):
                block, offset, rank = other, low, place
        if block < 0:
            return False
        frame.block, frame.offset, frame.rank = block, offset, rank
        return True

    def _place(self, frame: Frame) -> bool:
        """Place the chosen block in the packing; whether all that is left still fits above it."""
        block, offset = frame.block, frame.offset
        top = offset + self._size[block]
        frame.trail = self._trail_end
        self._reserve_trail()
        self.offset[block] = offset
        frame.alone = True
        self._stamp += 1
        touched = 0
        for at in range(self._neighbours_at[block], self._neighbours_at[block + 1]):
            other = self._neighbours[at]
            if self.offset[other] >= 0:
                continue
            frame.alone = False
            if self._low[other] >= top:
                continue
            self._note(other, self._low[other])
            self._low[other] = top
            for section in range(self._first[other], self._last[other]):
                if self._stamps[section] != self._stamp:
                    self._stamps[section] = self._stamp
                    self._touched[touched] = section
                    touched += 1
        for section in range(self._first[block], self._last[block]):
            self._note(self._count + section, self._floor[section])
            self._floor[section] = top
            self._left[section] -= self._size[block]
            self._cuts[section] -= section + 1 < self._last[block]
        for at in range(touched):
            self._raise_floor(self._touched[at])
        task = frame.task
        for section in range(task.first, task.last):
            floor = self._floor[section]
            if (max(offset, floor)) + self._left[section] > self._height:
                return False
        return True

    def _raise_floor(self, section: int) -> None:
        """No block of the section can be placed below the lowest of those that are unplaced."""
        lowest = _BEYOND
        for at in range(self._members_at[section], self._members_at[section + 1]):
            other = self._members[at]
            if self.offset[other] < 0 and self._low[other] < lowest:
                lowest = self._low[other]
        if lowest != _BEYOND and lowest > self._floor[section]:
            self._note(self._count + section, self._floor[section])
            self._floor[section] = lowest

    def _undo(self, frame: Frame) -> None:
        """Remove the block that was packed last, and all that followed from it."""
        block = frame.block
        while self._trail_end > frame.trail:
            self._trail_end -= 2
            number, value = self._trail[self._trail_end], self._trail[self._trail_end + 1]
            if number < self._count:
                self._low[number] = value
            else:
                self._floor[number - self._count] = value
        for section in range(self._first[block], self._last[block]):
            self._left[section] += self._size[block]
            self._cuts[section] += section + 1 < self._last[block]
        self.offset[block] = -1
        self._list_end = frame.end
        if frame.alone:
            frame.offset = _BEYOND

    def _descend(self, frame: Frame) -> bool:
        """Go on to pack the next block, in smaller tasks if the placed one connected them; whether there is none."""
        task, block = frame.task, frame.block
        back = self._depth
        self._depth += 1
        for section in range(self._first[block], self._last[block] - 1):
            if self._cuts[section] == 0:
                return self._start(self._tasks_of(task, frame, back))
        self._open(frame.start, frame.stop, back)
        new = self._frames[self._depth]
        if new.ceiling == _BEYOND:
            return self._start(task.after)
        new.task, new.offset, new.rank = task, frame.offset, frame.rank
        return False

    def _start(self, task: "Task | None") -> bool:
        """Begin with the next task of the packing search; whether there is none."""
        if task is None:
            return True
        self._open(task.start, task.stop, task.owner)
        frame = self._frames[self._depth]
        frame.task, frame.offset, frame.rank = task, 0, -1
        return False

    def _open(self, start: int, stop: int, back: int) -> None:
        """Make the packing search's frame of this depth, for the unplaced ones of these blocks."""
        frame = self._frames[self._depth]
        unplaced, ceiling = 0, _BEYOND
        for at in range(start, stop, 2):
            block = self._list[at]
            if self.offset[block] < 0:
                unplaced += 2
                top = self._low[block] + self._size[block]
                ceiling = min(ceiling, top)
        if (
            2 * unplaced < stop - start
        ):  # a shorter list: all lists together have twice the length of the first one
            start = self._copy(start, stop, 0, _BEYOND)
            stop = self._list_end
        frame.start, frame.stop, frame.end = start, stop, self._list_end
        frame.ceiling = ceiling
        frame.back = back

    def _tasks_of(self, task: Task, frame: Frame, owner: int) -> "Task | None":
        """The unplaced blocks of a frame as tasks, parted where none connects two sections; then the next task."""
        found: Task | None = None
        last: Task | None = None
        first = task.first
        for section in range(task.first, task.last):
            if section + 1 < task.last and self._cuts[section] > 0:
                continue
            part = self._task_of(frame, first, section + 1)
            first = section + 1
            if part is None:
                continue
            part.owner = owner
            if last is None:
                found = part
            else:
                last.after = part
            last = part
        if last is None:
            return task.after
        last.after = task.after
        return found

    def _task_of(self, frame: Frame, first: int, last: int) -> "Task | None":
        """The unplaced blocks of these sections, which connect with no others; None: there are none."""
        start = self._copy(frame.start, frame.stop, first, last)
        if start == self._list_end:
            return None
        if self._by_total:
            self._sort_by_total(start, self._list_end)
        return Task(start, self._list_end, first, last)

    def _copy(self, start: int, stop: int, first: int, last: int) -> int:
        """Append the unplaced blocks that begin in these sections to the list; returns where they are."""
        end = self._list_end
        if end + stop - start > len(self._list):
            self._list = np.concatenate((self._list, np.zeros(end + stop - start, np.int64)))
        for at in range(start, stop, 2):
            block = self._list[at]
            if self.offset[block] < 0 and first <= self._first[block] < last:
                self._list[end] = block
                self._list[end + 1] = self._list[at + 1]
                end += 2
        start, self._list_end = self._list_end, end
        return start

    def _sort_by_total(self, start: int, stop: int) -> None:
        """Sort blocks by the most bytes left in one of their sections, then by the order; number them anew."""
        for at in range(start, stop, 2):
            block = self._list[at]
            most = 0
            for section in range(self._first[block], self._last[block]):
                most = max(most, self._left[section])
            self._most[block] = most
            place = at
            while place > start and self._before(block, most, self._list[place - 2]):
                self._list[place] = self._list[place - 2]
                place -= 2
            self._list[place] = block
        for at in range(start, stop, 2):
            self._list[at + 1] = at

    def _before(self, block: int, most: int, other: int) -> bool:
        if most != self._most[other]:
            return bool(most > self._most[other])
        return bool(self._place_in_order[block] < self._place_in_order[other])

    def _note(self, number: int, value: int) -> None:
        """Keep a value of the packing search that is about to change, for `_undo`."""
        self._trail[self._trail_end] = number
        self._trail[self._trail_end + 1] = value
        self._trail_end += 2

    def _reserve_trail(self) -> None:
        most = self._trail_end + 2 * (self._count + 2 * len(self._floor))
        if most > len(self._trail):
            self._trail = np.concatenate((self._trail, np.zeros(most, np.int64)))

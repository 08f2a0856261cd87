"""The view of a folder of recordings, without a cluster: workers that come, end, fail and cannot be read."""

import os

from heaps import MIB
from unit.watching.ranks import board, ranks, rows

from bfcviz.figures.worker_rows import WorkerRowState
from bfcviz.watching import workers_dashboard
from bfcviz.watching.workers_dashboard import follow_workers

__all__ = ["board", "ranks"]


def test_workers_that_begin_later_get_a_row(ranks, board):
    assert rows(board) == {}
    first = ranks("rank-0")
    first.heap.allocate(3 * MIB)
    board.refresh()
    ranks("rank-1").heap.allocate(2 * MIB)
    board.refresh()
    assert {name: row.in_use for name, row in rows(board).items()} == {"rank-0": 3 * MIB, "rank-1": 2 * MIB}
    assert board.menu.options == ("all workers", "rank-0", "rank-1")
    first.end()
    board.refresh()
    assert [row.state for row in rows(board).values()] == [WorkerRowState.ENDED, WorkerRowState.LIVE]


def test_the_numbers_are_those_of_the_heap(ranks, board):
    rank = ranks("rank-0")
    held = [rank.heap.allocate(MIB) for _ in range(6)]
    for pointer in held[::2]:
        rank.heap.free(pointer)
    rank.heap.try_allocate(100 * MIB)
    board.refresh()
    row, stats = rows(board)["rank-0"], rank.heap.stats()
    assert (row.in_use, row.pool, row.largest_free) == (
        stats.bytes_in_use,
        stats.pool_bytes,
        stats.largest_free_chunk,
    )
    assert (row.limit, row.failed, row.peak) == (8 * MIB, 1, 6 * MIB)
    assert row.head_room == max(stats.largest_free_chunk, 8 * MIB - stats.pool_bytes)


def test_the_worst_is_the_first_and_the_menu_changes_the_measure(ranks, board):
    ranks("a").heap.allocate(MIB)
    ranks("b").heap.allocate(7 * MIB)
    board.refresh()
    assert board._sorted == ["b", "a"]
    board.order.value = "name"
    assert board._sorted == ["a", "b"]


def test_a_recording_that_contradicts_itself_is_marked_and_the_others_go_on(ranks, board, tmp_path):
    for name in ("bad", "good"):
        ranks(name).heap.allocate(MIB)
    events = tmp_path / "bad" / "events.bin"
    with events.open("r+b") as file:
        os.pwrite(file.fileno(), events.read_bytes()[:8] + b"\xff" * 40, 0)
    board.refresh()
    found = rows(board)
    assert found["bad"].problem
    assert (found["good"].problem, found["good"].in_use) == ("", MIB)
    assert "unreadable" in board.page.html


def test_a_frame_reads_a_limited_number_of_events(ranks, board, monkeypatch):
    rank = ranks("a")
    for _ in range(100):
        rank.heap.free(rank.heap.allocate(MIB))
    extend = workers_dashboard.TimeTimeline.extend
    monkeypatch.setattr(workers_dashboard.TimeTimeline, "extend", lambda self, trace: extend(self, trace, 50))
    board.draw_frame()
    (worker,) = board.traces.workers
    assert worker.timeline.step == 50
    board.refresh()
    assert worker.timeline.step == len(worker.trace) > 200


def test_a_thread_draws_until_it_is_closed(ranks, tmp_path):
    ranks("a").heap.allocate(MIB)
    board = follow_workers(tmp_path)
    thread = board.renderer.thread
    assert board.renderer.running
    board.close()
    thread.join(60)
    assert not thread.is_alive()

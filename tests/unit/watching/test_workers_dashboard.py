"""The view of a folder of recordings, without a cluster: workers that come, end, fail and cannot be read."""

import os

import pytest
from heaps import MIB, new_heap

from bfcviz.cli import attach
from bfcviz.dashboard import LiveDashboard
from bfcviz.events.origin import Pool
from bfcviz.events.storage.recording import Recording
from bfcviz.figures.worker_rows import WorkerRowState
from bfcviz.watching import workers_dashboard
from bfcviz.watching.workers_dashboard import WorkersDashboard, follow_workers


class Rank:
    """A process that records: a heap of 8 MiB at most."""

    def __init__(self, folder, limit=8 * MIB):
        self.recording = Recording(folder, [Pool("numpy", limit)], details={"started_ns": 1})
        self.heap = new_heap(limit, log=self.recording.log, labels=self.recording.labels)

    def end(self):
        self.recording.close()


@pytest.fixture
def ranks(tmp_path):
    made = []

    def make(name, **options):
        made.append(Rank(tmp_path / name, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def board(tmp_path):
    found = WorkersDashboard(tmp_path, start=False)
    yield found
    found.close()


def rows(board):
    return {each.name: each.row() for each in board.traces.workers}


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


def test_one_worker_is_opened_and_replaced_by_another(ranks, board, tmp_path):
    for name in ("a", "b"):
        ranks(name).heap.allocate(MIB)
    board.refresh()
    board.show("a")
    first = board.detail
    assert (first.trace.path, board.shown) == (tmp_path / "a", "a")
    board.show("b")
    assert (first.closed, board.detail.trace.path) == (True, tmp_path / "b")
    board.show("nothing")
    assert board.shown == "b"
    board.close()
    assert (board.detail, board.closed, board.draw_frame()) == (None, True, False)


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


def test_attach_shows_several_processes_together_and_one_alone(ranks, tmp_path):
    ranks("one")
    ranks("many/rank-0")
    alone, together = (attach.dashboard(str(tmp_path / name), "dark") for name in ("one", "many"))
    assert (type(alone), type(together)) == (LiveDashboard, WorkersDashboard)
    together.refresh()
    together.show("rank-0")
    assert together.detail.inspector.theme == "dark"
    for each in (alone, together):
        each.close()
    assert attach._can_attach(tmp_path / "many")
    (tmp_path / "soon" / "rank-0").mkdir(parents=True)
    assert not attach._can_attach(tmp_path / "soon")

"""The view of a folder of recordings opens one worker, in a dashboard of its own."""

from heaps import MIB
from unit.watching.ranks import board, ranks

from bfcviz.cli import attach
from bfcviz.dashboard import LiveDashboard
from bfcviz.watching.dashboards import WorkersDashboard

__all__ = ["board", "ranks"]


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

"""The pane of the selected chunk."""

import pytest
from unit.dashboard.pages import messages
from unit.dashboard.side_html import Side
from unit.figures.odd_traces import assert_harmless
from unit.figures.synthetic import MiB, PlainHeap

from bfcviz.analysis import chunk_life
from bfcviz.dashboard.chunk_pane import ChunkPane
from bfcviz.events.schema import Kind
from bfcviz.figures.view_options import Look, Selected
from bfcviz.model import Model
from bfcviz.model.grouping import HolderChoice

TAGS = {"a", "b", "button", "code", "dd", "details", "div", "dl", "dt", "em", "pre", "span", "summary"}
STACK = "forward (/home/me/train.py:41)\n<module> (/home/me/train.py:90)"


class Shown:
    """A pane at a step of a trace; the heap allocated three chunks and freed the middle one."""

    def __init__(self, name="net/relu", **details):
        heap = PlainHeap(8 * MiB)
        heap.allocate(MiB, "first")
        self.address = heap.allocate(MiB - 200, name, **(details or {"stack": STACK, "shape": "[2,3]"}))
        heap.allocate(2 * MiB, "last")
        heap.free(self.address)
        self.trace = heap.trace()
        self.model = Model(self.trace)
        events = self.trace.read(0, len(self.trace))
        seqs = events["seq"][events["kind"] == Kind.ALLOCATE]
        self.born, self.freed = int(seqs[1]), int(events["seq"][events["kind"] == Kind.FREE][0])
        self.pane = ChunkPane()

    def at(self, step, born=True, address=None):
        self.model.seek(step)
        chosen = Selected(self.address if address is None else address, self.born if born else None)
        self.pane.show(self.model, Look(selected=chosen))
        found, name = {}, None
        for element in Side(self.pane.text.value).found:
            if element["tag"] == "dt":
                name = element["text"]
            if element["tag"] == "dd":
                found[name] = element["text"].replace("\u2068", "").replace("\u2069", "")
        return found

    @property
    def links(self):
        return [each["does"] for each in Side(self.pane.text.value).all("a")]


@pytest.fixture
def shown():
    return Shown()


def test_without_a_selection_there_is_a_hint(shown):
    shown.pane.show(shown.model, Look())
    assert [each["class"] for each in Side(shown.pane.text.value).all("div")] == ["none"]


def test_an_allocation_in_use(shown):
    facts = shown.at(shown.born + 2)
    assert list(facts)[:4] == ["size", "share", "allocated", "freed"]
    assert facts["share"].startswith("50.0%")
    assert "net/relu" in Side(shown.pane.text.value).all("div")[1]["text"]
    for text in ("1.0 MiB", "requested", "200 B wasted"):
        assert text in facts["size"]
    assert facts["code"].startswith("train.py:41")
    assert facts["shape"] == "[2,3]"
    assert facts["before"].endswith("first")
    assert facts["after"].endswith(" free")
    assert {"do": "step", "step": shown.born + 1} in shown.links
    assert {"do": "step", "step": shown.freed + 1} in shown.links


def test_the_whole_stack_is_there_with_python_first_and_compiled_frames_folded():
    compiled = [f"at::native::op{number}(long) (ops.cpp:0)" for number in range(40)]
    stack = "\n".join([*compiled[:20], *STACK.splitlines(), *compiled[20:]])
    shown = Shown(stack=stack)
    shown.at(shown.born + 1)
    python, folded = Side(shown.pane.text.value).all("pre")
    assert [line.strip("\u2068\u2069") for line in python["text"].splitlines()] == STACK.splitlines()
    assert "details" not in python["within"]
    assert [line.strip("\u2068\u2069") for line in folded["text"].splitlines()] == compiled
    assert "details" in folded["within"]


def test_what_uses_the_address_next_is_named_with_its_step():
    heap = PlainHeap(8 * MiB)
    address = heap.allocate(MiB, "first")
    heap.allocate(MiB, "between")
    heap.free(address)
    heap.allocate(MiB, "second")
    shown = Shown()
    shown.trace, shown.model = heap.trace(), Model(heap.trace())
    shown.address, shown.born = address, 2
    facts = shown.at(3)
    assert facts["next here"].startswith("second")
    assert {"do": "step", "step": len(shown.trace)} in shown.links


def test_without_a_chunk_the_holder_that_filters_is_told(shown):
    shown.model.seek(shown.freed)
    shown.pane.show(shown.model, Look(holder=HolderChoice("op", ("net",))))
    side = Side(shown.pane.text.value)
    assert side.all("div")[1]["text"].strip("\u2068\u2069") == "net"
    assert "25.0%" in side.all("dd")[0]["text"]
    assert side.all("dd")[1]["text"] == "1: 1 x 1.0 MiB"
    assert side.all("pre")[0]["text"].count("train.py") == 2
    shown.pane.show(shown.model, Look(holder=HolderChoice("op", ("nothing",))))
    assert len(Side(shown.pane.text.value).all("dd")) == 1


def test_neighbours_can_be_selected(shown):
    shown.at(shown.freed)
    selects = [link for link in shown.links if link["do"] == "select"]
    assert [int(link["address"]) for link in selects] == [shown.address - MiB, shown.address + MiB]


def test_an_allocation_that_was_freed_has_no_neighbours(shown):
    facts = shown.at(len(shown.trace))
    assert "after" not in facts
    assert "not in use" in facts["size"]


def test_a_free_chunk(shown):
    facts = shown.at(len(shown.trace), born=False)
    assert Side(shown.pane.text.value).all("div")[1]["text"] == "free chunk"
    assert facts["size"].endswith("free")
    assert "thread" not in facts
    assert {"do": "step", "step": shown.freed + 1} in shown.links


def test_a_chunk_that_does_not_exist_is_said_so(shown):
    assert shown.at(len(shown.trace), address=12345) == {}
    assert Side(shown.pane.text.value).all("div")[0]["class"] == "none"


def test_its_end_is_searched_once(shown, monkeypatch):
    searched = []
    search = chunk_life.life_of
    monkeypatch.setattr(
        "bfcviz.dashboard.chunk_pane.life_of", lambda *args: searched.append(1) or search(*args)
    )
    ages = [shown.at(step)["allocated"] for step in (shown.born + 1, shown.born + 2)]
    assert searched == [1]
    assert ages[0] != ages[1]
    assert "not in use" in shown.at(len(shown.trace))["size"]


def test_what_did_not_change_is_not_sent(shown, monkeypatch):
    shown.at(shown.born + 1)
    assert messages(monkeypatch, lambda: shown.at(shown.born + 1)) == []


def test_labels_cannot_inject():
    shown = Shown(
        "<img src=x onerror=alert(1)>' onclick='x", stack="' onclick='<b> (a.py:1)", **{"<b>": "<i>"}
    )
    shown.at(shown.born + 1)
    assert_harmless(shown.pane.text.value, TAGS)
    assert "<img src=x" in Side(shown.pane.text.value).all("div")[1]["text"]

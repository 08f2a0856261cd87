"""To add a figure is one file with a View, and one line that names it: every part of bfcviz then has it."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shared import sample_file, sample_trace
from unit.figures.synthetic import busy_trace

import bfcviz
from bfcviz.cli import main
from bfcviz.dashboard import Inspector
from bfcviz.dashboard.layouts import layouts, tabs
from bfcviz.figures import FIGURES, VIEWS, add_view
from bfcviz.figures.panel import Panel
from bfcviz.figures.view import DashboardPlace, View, ViewTab
from bfcviz.figures.view_options import Selected

# ------------------------------------------------------------------------------
# The new file: bytes in use of each stream, as bars.


@dataclass(frozen=True)
class Streams:
    """Bytes in use by stream."""

    numbers: list
    sizes: list


def streams_of(heap, _look):
    chunks = heap.model.in_use()
    numbers = sorted(set(chunks["stream"].tolist()))
    return Streams(numbers, [int(chunks["size"][chunks["stream"] == number].sum()) for number in numbers])


def streams_panel(streams, heap, look):
    return Panel(
        name="streams",
        title="Bytes by stream",
        caption=f"at step {heap.step}",
        traces=[
            {
                "type": "bar",
                "x": streams.numbers,
                "y": streams.sizes,
                "hovertext": [f"stream {number}" for number in streams.numbers],
                "marker": {"color": look.paints.in_use.fill},
            }
        ],
        xaxis={"range": [-1, max(streams.numbers, default=0) + 1]},
        yaxis={"range": [0, max(streams.sizes, default=1)]},
    )


VIEW = View(
    name="streams",
    title="bytes by stream",
    data=streams_of,
    panels=lambda streams, heap, look: [streams_panel(streams, heap, look)],
    table=lambda streams: pa.table({"stream": streams.numbers, "bytes_in_use": streams.sizes}),
    height=200,
    at=lambda _streams, heap, _look, _x, _y: Selected(int(heap.model.in_use()["address"][0])),
    dashboard=DashboardPlace(ViewTab("streams", "streams", was="queues"), height=100),
)

# ------------------------------------------------------------------------------


@pytest.fixture
def added():
    """The one line that names it."""
    add_view(VIEW)
    yield VIEW
    del VIEWS["streams"], FIGURES["streams"]


@pytest.fixture(scope="module")
def trace():
    return sample_trace("lstm")


def test_draw_makes_it_at_a_step(added, trace):
    picture = bfcviz.draw("streams", trace, 1000, theme="dark")
    model = bfcviz.Model(trace)
    model.seek(1000)
    assert (
        sum(picture.data[0].y) == model.table.bytes_in_use == sum(picture.table["bytes_in_use"].to_pylist())
    )
    assert picture.data[0].hovertext[0] == "stream 0"
    assert picture.notes[0].caption == "at step 1000"
    assert "step 1,000 of" in picture.facts


def test_the_command_exports_it(added, tmp_path):
    source = str(sample_file("lstm"))
    for suffix in (".csv", ".parquet", ".html"):
        out = tmp_path / f"streams{suffix}"
        assert main(["export", source, "--figure", "streams", "--step", "1000", "--out", str(out)]) == 0
    assert (tmp_path / "streams.csv").read_text().splitlines()[0] == '"stream","bytes_in_use"'
    assert pq.read_table(tmp_path / "streams.parquet").column_names == ["stream", "bytes_in_use"]
    assert "Bytes by stream" in (tmp_path / "streams.html").read_text()


def test_an_inspector_has_it_in_its_menu_its_tabs_and_its_page(added):
    inspector = Inspector(busy_trace(), 400, views="queues")
    assert inspector.views == "streams"
    assert dict(inspector.export_row.figure.options)["bytes by stream"] == "streams"
    figure, name = inspector.draw_for_export("streams")
    assert (name, figure.table.num_rows) == ("bfcviz-streams-step400", 1)
    assert tabs()["streams"] == "streams"
    assert ">streams</button>" in inspector.stage.tabs.value
    shown = inspector.view.stage.places["streams"]
    assert (shown.left, shown.right, shown.height) == (0.0, 1.0, 100)
    number = 1 + list(inspector.view.panels).index("streams")
    inspector.receive({"do": "click", "panel": number, "x": 0.0, "y": 1.0})
    assert inspector.look.selected is not None
    assert (("streams", 1.0),) in layouts()["everything"]
    inspector.close()


def test_without_that_line_it_is_unknown(trace):
    with pytest.raises(ValueError, match="no figure 'streams'"):
        bfcviz.draw("streams", trace)
    assert "streams" not in layouts()


@pytest.mark.parametrize(("was", "name"), [("memory", "active_memory"), ("events", "event_rate")])
def test_an_earlier_name_of_a_tab_is_accepted(was, name):
    inspector = Inspector(busy_trace(), 10, views=was)
    assert inspector.views == name
    inspector.views = "export"
    inspector.receive({"do": "views", "views": was})
    assert inspector.views == name
    inspector.receive({"do": "views", "views": "no such"})
    assert inspector.views == name
    inspector.close()

"""What other places than JupyterLab show: a notebook that was saved and converted, and marimo."""

from unittest import mock

import nbformat
import pytest
from heaps import MIB, new_heap
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook, new_output
from shared import sample_trace

import bfcviz
from bfcviz.errors import BfcvizError
from bfcviz.figures import FIGURES
from bfcviz.model.trace_from_source import trace_of

LOG = sample_trace("oom_log")


def displayed(picture):
    """What the picture displays, by the name of its format."""
    with mock.patch("IPython.display.display") as display:
        picture._ipython_display_()
    (bundle,) = display.call_args.args
    return bundle


@pytest.fixture(autouse=True)
def in_a_page(monkeypatch):
    """As in JupyterLab, where the page draws the figures."""
    picture = bfcviz.draw("failure", LOG)
    picture.still()
    from plotly.io._renderers import renderers  # noqa: PLC0415  as `show` does

    monkeypatch.setattr(renderers, "_default_name", "plotly_mimetype")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_there_without_its_script(name):
    bundle = displayed(bfcviz.draw(name, LOG, theme="dark"))
    assert bundle.keys() == {"application/vnd.plotly.v1+json", "image/svg+xml"}
    assert bundle["image/svg+xml"].startswith("<svg ")


def test_what_a_user_adds_is_drawn_by_plotly_alone():
    picture = bfcviz.draw("region_map", LOG)
    picture.add_pie(values=[1, 2])
    assert picture.still() == ""


def test_a_converted_notebook_has_the_picture():
    output = new_output("display_data", data=displayed(bfcviz.draw("region_map", LOG)))
    notebook = new_notebook(cells=[new_code_cell("bfcviz.draw('region_map', log)", outputs=[output])])
    nbformat.validate(notebook)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert 'src="data:image/svg+xml;base64,' in page


def test_an_inspector_shows_the_page_without_a_kernel_where_there_are_no_widgets_of_jupyter():
    shown = bfcviz.Inspector(LOG)._display_()._repr_html_()
    assert shown.startswith("<div><iframe ")
    assert shown.count("<") == 4  # the page is text in an attribute
    assert "id=&quot;app&quot;" in shown


def test_an_inspector_shows_its_first_screen_there_where_no_page_can_be_made():
    too_large = BfcvizError("addresses are too large for a page")
    with mock.patch("bfcviz.exporters.interactive_page.interactive_html", side_effect=too_large):
        shown = bfcviz.Inspector(LOG)._display_()._repr_html_()
    assert "bfcviz-failure" in shown
    assert "<svg " in shown


def test_a_converted_notebook_has_the_first_screen_of_an_inspector():
    bundle = bfcviz.Inspector(LOG)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    notebook = new_notebook(
        cells=[new_code_cell("bfcviz.Inspector(log)", outputs=[new_output("display_data", data=bundle)])]
    )
    nbformat.validate(notebook)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert "bfcviz-failure" in page
    assert "<svg " in page


def test_a_trace_that_grows_or_is_large_saves_no_screen(monkeypatch):
    heap = new_heap(64 * MIB)
    heap.allocate(MIB)
    growing = trace_of(heap)
    assert growing.following
    assert "text/html" not in bfcviz.Inspector(growing)._repr_mimebundle_()
    assert len(repr(bfcviz.Inspector(growing))) < 100
    monkeypatch.setattr("bfcviz.dashboard.inspector._MOST_SAVED", len(LOG) - 1)
    assert "text/html" not in bfcviz.Inspector(LOG)._repr_mimebundle_()

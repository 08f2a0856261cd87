"""The export row: links to figures as files, images rendered aside, the code, and errors that are shown."""

import base64
import html
import io
import re
import threading

import pytest
from pyarrow import parquet
from unit.figures.synthetic import busy_trace

from bfcviz.dashboard import export_row as exporter
from bfcviz.dashboard.export_row import ExportRow
from bfcviz.errors import BfcvizError
from bfcviz.figures import FORMATS, draw
from bfcviz.figures.export import IMAGES, TABLES, code_for

NAMES = {"region map": "region_map", "bin histogram": "bin_histogram"}


@pytest.fixture(scope="module")
def figure():
    return draw("region_map", busy_trace(), 300)


@pytest.fixture
def row(figure):
    return row_of(lambda name: (figure, f"run-{name}"), lambda name: code_for(name, None, 300))


def row_of(draw=lambda _: None, code=lambda _: "", page=lambda: ""):
    return ExportRow(NAMES, draw, code, page)


class SlowBrowser:
    """A stand-in for kaleido: renders a picture when `go` is set."""

    def __init__(self, monkeypatch, body=b"made"):
        self.go, self.thread, self._body = threading.Event(), None, body
        monkeypatch.setattr(exporter, "rendered", self._render)

    def _render(self, _figure, _suffix):
        self.thread = threading.current_thread()
        assert self.go.wait(60)
        if isinstance(self._body, Exception):
            raise self._body
        return self._body

    def finish(self):
        self.go.set()
        (thread,) = (one for one in threading.enumerate() if one.name == "bfcviz export")
        thread.join(60)


def content(row, file):
    found = re.fullmatch(
        r"<a download='(.*)' href='data:([^;]*);base64,([^']*)' .*>Download \1</a> \([^()]*B\)",
        row.link.value,
    )
    assert found[1] == file
    return found[2], base64.b64decode(found[3])


def test_there_is_a_button_for_every_format_the_code_and_the_page(row):
    assert [*row.buttons] == [*FORMATS, "code", "page"]
    assert all(
        f"bfcviz-export-{name.strip('.')}" in button._dom_classes for name, button in row.buttons.items()
    )


def test_numbers_are_linked_at_once(row, figure):
    row.buttons[".parquet"].click()
    media, body = content(row, "run-region_map.parquet")
    assert media == "application/vnd.apache.parquet"
    assert parquet.read_table(io.BytesIO(body)) == figure.table
    row.figure.value = "bin_histogram"
    row.buttons[".csv"].click()
    assert content(row, "run-bin_histogram.csv")[0] == "text/csv"


def test_several_figures_together_have_no_table_to_export(figure, monkeypatch):
    row = ExportRow(NAMES, lambda name: (figure, name), str, str, "region_map")

    def disabled():
        return {name for name, button in row.buttons.items() if button.disabled}

    assert disabled() == TABLES
    browser = SlowBrowser(monkeypatch)
    row.buttons[".png"].click()
    row.figure.value = "bin_histogram"
    assert disabled() == {*FORMATS, "page"}
    browser.finish()
    assert disabled() == set()
    row.figure.value = "region_map"
    assert disabled() == TABLES


@pytest.mark.parametrize("suffix", sorted(IMAGES))
def test_an_image_is_rendered_in_a_thread_and_nothing_waits_for_it(suffix, row, monkeypatch):
    browser = SlowBrowser(monkeypatch)
    row.buttons[suffix].click()
    assert f"rendering {suffix[1:].upper()}" in row.link.value
    assert all(row.buttons[form].disabled for form in FORMATS)
    assert not row.buttons["code"].disabled
    row.export(".csv")  # a click sent before the button was disabled
    assert "rendering" in row.link.value
    browser.finish()
    assert content(row, f"run-region_map{suffix}")[1] == b"made"
    assert not any(button.disabled for button in row.buttons.values())


def test_the_picture_is_the_one_of_the_click(monkeypatch):
    steps = [1]
    row = row_of(lambda name: (None, f"step{steps[0]}"))
    browser = SlowBrowser(monkeypatch)
    row.buttons[".pdf"].click()
    steps[0] = 2
    browser.finish()
    assert content(row, "step1.pdf")[1] == b"made"


@pytest.mark.parametrize("error", [BfcvizError("install <this>"), RuntimeError("install <this>")])
def test_a_failure_is_shown_and_the_next_export_works(error, row, monkeypatch):
    with monkeypatch.context() as patch:
        browser = SlowBrowser(patch, error)
        row.buttons[".png"].click()
        browser.finish()
    assert row.link.value == "<span role='alert'>install &lt;this&gt;</span>"
    row.buttons[".csv"].click()
    assert content(row, "run-region_map.csv")


def test_a_figure_that_cannot_be_drawn_shows_the_error():
    def fail(_name):
        raise BfcvizError("no <step>")

    row = row_of(fail, fail)
    row.buttons[".png"].click()
    assert row.link.value == "<span role='alert'>no &lt;step&gt;</span>"
    assert not row.buttons[".png"].disabled
    row.buttons["code"].click()
    assert row.code.value == "<span role='alert'>no &lt;step&gt;</span>"


def test_the_code_is_shown_and_hidden_again(row):
    row.buttons["code"].click()
    assert row.code.layout.display is None
    shown = re.search(r"<textarea readonly [^>]*>\n(.*)</textarea>", row.code.value, re.DOTALL)[1]
    assert html.unescape(shown) == code_for("region_map", None, 300)
    assert "<'" not in shown
    assert "not opened from a file" in row.code.value
    row.figure.value = "bin_histogram"
    row.buttons["code"].click()
    assert row.code.layout.display is None
    assert "bin_histogram" in row.code.value
    row.buttons["code"].click()
    assert row.code.layout.display == "none"
    assert row.code.value == ""


def test_a_hostile_path_stays_text_and_needs_no_note(tmp_path):
    hostile = tmp_path / "</textarea><script>alert(1)< "
    row = row_of(code=lambda name: code_for(name, hostile, 3))
    row.buttons["code"].click()
    assert row.code.value.count("<") == 2
    assert "not opened from a file" not in row.code.value


def test_the_page_of_all_steps_is_offered_as_a_file():
    row = row_of(page=lambda: "<!doctype html>é")
    row.buttons["page"].click()
    for thread in threading.enumerate():
        if thread.name == "bfcviz export":
            thread.join()
    assert content(row, "bfcviz-page.html")[1] == "<!doctype html>é".encode()
    assert not any(button.disabled for button in row.buttons.values())

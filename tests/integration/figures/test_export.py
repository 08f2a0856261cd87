import csv
import io
import re
import sys
import xml.etree.ElementTree as ET
from threading import Event

import kaleido
import plotly.graph_objects as go
import pytest
from integration.browser.lab import find_browser
from kaleido.errors import ChromeNotFoundError
from pyarrow import parquet
from shared import sample_trace
from unit.figures.drawn import region_map
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.errors import BfcvizError, MissingExtra
from bfcviz.figures import FIGURES, FORMATS, draw, export
from bfcviz.figures.plotly_script import is_drawn_by_it
from bfcviz.model import Model

needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome found")


@pytest.fixture(scope="module")
def figure():
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB, "</script><script>alert(1)</script>", note='say "hi", then\ngo')
    model = Model(heap.trace())
    model.seek(3)
    return region_map(model)


@pytest.fixture(scope="module")
def one_browser():
    """One browser for several pictures; otherwise each export starts its own, as in the test of PDF."""
    kaleido.start_sync_server(n=1, mathjax=False)
    yield
    kaleido.stop_sync_server()


def test_html_needs_nothing_from_outside(figure, tmp_path):
    text = export(figure, tmp_path / "map.html").read_text()
    assert 1_000_000 < len(text) < 2_000_000
    assert not re.search(r"<(script|link|img|iframe)[^>]*\b(src|href)=", text[: text.index("plotly.js v")])
    assert not re.search(r"""<script[^>]*\bsrc=["']?(https?:)?//""", text)
    assert "<script>alert(1)" not in text


def test_a_figure_of_the_users_own_has_all_of_plotly(tmp_path):
    pie = go.Figure(go.Pie(values=[1, 2]))
    assert export(pie, tmp_path / "pie.html").stat().st_size > 3_000_000


@pytest.mark.parametrize("name", FIGURES)
def test_our_figures_have_the_small_script(name):
    assert is_drawn_by_it(draw(name, busy_trace(60)).data)


def test_csv_holds_the_numbers_drawn(figure, tmp_path):
    rows = list(csv.DictReader(io.StringIO(export(figure, tmp_path / "map.csv").read_text())))
    assert [row["state"] for row in rows] == ["in use", "free"]
    assert rows[0]["size"] == str(MiB)
    assert rows[0]["label"] == "</script><script>alert(1)</script>"


def test_parquet_holds_the_same_numbers(figure, tmp_path):
    assert parquet.read_table(export(figure, tmp_path / "map.parquet")) == figure.table


@needs_browser
def test_pdf_is_one_page_with_room_for_its_margins(figure, tmp_path):
    pdf = export(figure, tmp_path / "map.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    (box,) = re.findall(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)\s*\]", pdf)
    width, height = map(float, box)
    assert (width / 0.75, height / 0.75) == pytest.approx(
        (1240, figure.layout.height + 40 + 22), abs=1
    )  # 22: the facts
    assert figure.layout.width is None  # it is as it was


@needs_browser
@pytest.mark.usefixtures("one_browser")
def test_png_and_svg_are_pictures(figure, tmp_path):
    png = export(figure, tmp_path / "map.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(png[16:20]) == 2400
    root = ET.fromstring(export(figure, str(tmp_path / "map.SVG")).read_text())  # noqa: S314  we made it
    assert root.tag.endswith("svg")
    assert root.attrib["width"] == "1200"


def facts_in(svg):
    """The text of a picture, without its markup."""
    return " ".join("".join(ET.fromstring(svg).itertext()).split())  # noqa: S314  we made it


@needs_browser
@pytest.mark.usefixtures("one_browser")
def test_pictures_and_pages_name_the_step_and_the_totals(tmp_path):
    figure = draw("ladder", busy_trace(), 300)
    assert "step 300 of 609" in figure.facts
    assert figure.facts in facts_in(export(figure, tmp_path / "ladder.svg").read_text())
    page = export(figure, tmp_path / "ladder.html").read_text()
    assert f"<title>{figure.facts}</title>" in page
    png = export(figure, tmp_path / "ladder.png").read_bytes()
    assert int.from_bytes(png[20:24]) > 2 * figure.layout.height  # it has a line more
    assert figure.layout.title.text is None  # it is as it was


@needs_browser
@pytest.mark.usefixtures("one_browser")
def test_a_picture_for_paper_is_a_vector_of_its_width_with_its_definitions(tmp_path):
    figure = draw("ladder", busy_trace(), 300, wanted="1KiB")
    svg = export(figure, tmp_path / "ladder.svg", style="paper", width_mm=84).read_text()
    root = ET.fromstring(svg)  # noqa: S314  we made it
    assert float(root.attrib["width"].removesuffix("mm")) == pytest.approx(84, abs=0.2)
    assert root.attrib["height"].endswith("mm")
    assert "<image" not in svg
    text = facts_in(svg).replace(" ", "")  # lines of one text have no space between them
    for said in (figure.notes[0].definition.replace("<br>", " "), figure.facts):
        assert said.replace(" ", "") in text
    pdf = export(figure, tmp_path / "ladder.pdf", style="paper", width_mm=174).read_bytes()
    (width,) = re.findall(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ", pdf)
    assert float(width) / 72 * 25.4 == pytest.approx(174, abs=0.5)


@needs_browser
@pytest.mark.usefixtures("one_browser")
def test_on_paper_the_legend_ends_below_the_title_of_the_axis(tmp_path):
    """Plotly would push the title up into the ticks, and says so in the picture."""
    figure = draw("failure", sample_trace("oom_log"))
    target = export(figure, tmp_path / "a.svg", style="paper", width_mm=84)
    titles = re.findall(r'<g class="g-x\d?title"([^>]*)>', target.read_text())
    assert len(titles) == 2
    assert not any("transform" in title for title in titles)


@pytest.mark.parametrize("suffix", [".html", ".png", ".csv"])
def test_paper_is_a_vector(figure, suffix, tmp_path):
    with pytest.raises(BfcvizError, match=r"\.svg, \.pdf"):
        export(figure, tmp_path / f"map{suffix}", style="paper")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_suffix_is_refused_with_those_that_work(figure, tmp_path):
    with pytest.raises(BfcvizError, match=r"\.html, \.png, \.svg, \.pdf, \.csv, \.parquet"):
        export(figure, tmp_path / "map.pptx")
    assert not list(tmp_path.iterdir())


def test_without_a_browser_it_says_what_to_install(figure, tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise ChromeNotFoundError

    monkeypatch.setattr(kaleido, "calc_fig_sync", refuse)
    with pytest.raises(
        BfcvizError, match=r"apt-get install chromium.*\.html, \.csv and \.parquet work without"
    ):
        export(figure, tmp_path / "map.png")
    assert not list(tmp_path.iterdir())


def test_a_browser_that_does_not_answer_is_started_once_more(figure, tmp_path, monkeypatch):
    calls, never = [], Event()

    def answer(*_args, **_kwargs):
        calls.append(1)
        if len(calls) == 1:
            never.wait()
        return b"<svg/>"

    monkeypatch.setattr(kaleido, "calc_fig_sync", answer)
    monkeypatch.setattr(sys.modules["bfcviz.figures.export"], "_ANSWER_S", 0.05)
    assert export(figure, tmp_path / "map.svg").read_bytes() == b"<svg/>"
    assert len(calls) == 2
    never.set()


def test_browsers_that_do_not_answer_are_named_and_nothing_is_written(figure, tmp_path, monkeypatch):
    never = Event()
    monkeypatch.setattr(kaleido, "calc_fig_sync", lambda *_args, **_kwargs: never.wait())
    monkeypatch.setattr(sys.modules["bfcviz.figures.export"], "_ANSWER_S", 0.05)
    with pytest.raises(BfcvizError, match=r"within 0\.05 s.*\.html"):
        export(figure, tmp_path / "map.svg")
    assert not list(tmp_path.iterdir())
    never.set()


def test_without_kaleido_it_names_the_extra(figure, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bfcviz\[lab\]'"):
        export(figure, tmp_path / "map.svg")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_figure_without_numbers_has_none_to_write(suffix, tmp_path):
    with pytest.raises(BfcvizError, match=f"no numbers for {suffix}"):
        export(go.Figure(), tmp_path / f"plain{suffix}")


def test_a_failed_export_leaves_the_old_file_alone(figure, tmp_path):
    (tmp_path / "map.csv").write_text("old")
    with pytest.raises(BfcvizError):
        export(go.Figure(), tmp_path / "map.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["map.csv"]
    assert (tmp_path / "map.csv").read_text() == "old"
    export(figure, tmp_path / "map.csv")
    assert (tmp_path / "map.csv").read_text() != "old"


def test_a_path_that_cannot_be_written_is_refused(figure, tmp_path):
    with pytest.raises(BfcvizError, match="cannot write"):
        export(figure, tmp_path / "nowhere" / "map.csv")


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_figure_can_be_drawn_by_name_and_has_numbers(name, theme, tmp_path):
    figure = draw(name, busy_trace(), 300, theme=theme)
    rows = list(csv.reader(io.StringIO(export(figure, tmp_path / "numbers.csv").read_text())))
    assert len(rows) == figure.table.num_rows + 1
    assert len(rows) > 2 or name == "mark_values"  # this trace has no marks with such values


def test_by_default_a_figure_shows_the_last_step():
    trace = busy_trace()
    assert draw("bin_histogram", trace).table == draw("bin_histogram", trace, len(trace)).table


def test_an_unknown_figure_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"region_map, active_memory, address_time"):
        draw("pie", busy_trace())
    assert FORMATS == (".html", ".png", ".svg", ".pdf", ".csv", ".parquet")

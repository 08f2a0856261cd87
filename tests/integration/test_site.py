"""The documentation as a site: it builds without a warning, asks no other host for anything, and its Python runs."""

import contextlib
import io
import os
import re
import subprocess
import sys

import pytest
from shared import ROOT, short_file

import bfcviz

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'bfcviz[docs]'")

DOCS = ROOT / "notebooks" / "site" / "docs"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
NEEDS_MORE = "# needs "
"""The first words of an example that needs what a test has not."""


def examples(page):
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the pages, built as a release does it: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    # It makes objects of the whole package and ends: to look for garbage among them takes a fifth of its time.
    code = "import gc; gc.disable(); from mkdocs.__main__ import cli; cli()"
    words = ["build", "--quiet", "-f", "notebooks/site/mkdocs.yml", "-d", str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_reference_has_every_public_name(site):
    found = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    assert [name for name in bfcviz.__all__ if f'id="bfcviz.{name}"' not in found] == []


def test_every_page_fills_in_what_it_takes_from_elsewhere(site):
    texts = {page: (site / page).with_suffix(".html").read_text() for page in PAGES}
    assert [page for page, text in texts.items() if re.search(r"\{\{ \w+: ", text)] == []
    pictures = re.findall(r"^\{\{ draw: ", (DOCS / "how_it_works.md").read_text(), re.MULTILINE)
    assert len(re.findall(r'<div class="drawn">', texts["how_it_works.md"])) == len(pictures) > 5


def test_the_pages_ask_no_other_host_for_anything(site):
    loads = r"<(?:script|img|iframe|source)[^>]* src=\"?(https?:)?//|<link[^>]* href=\"?https?://(?![^>]*canonical)"
    asked = [page.name for page in site.rglob("*.html") if re.search(loads, page.read_text())]
    styles = [
        page.name for page in site.rglob("*.css") if re.search(r"url\(\"?https?:|@import", page.read_text())
    ]
    assert (asked, styles) == ([], [])


@pytest.fixture
def short_runs(monkeypatch):
    """The bundled runs are their first events: the examples then run in half the time."""
    whole = bfcviz.sample
    short = {name: short_file(name) for name in ("conv", "lstm")}
    monkeypatch.setattr(bfcviz, "sample", lambda name: short.get(name) or whole(name))


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)])
def test_the_examples_of_a_page_run(page, tmp_path):
    session = {}
    with contextlib.chdir(tmp_path), contextlib.redirect_stdout(io.StringIO()):
        for code in examples(page):
            compiled = compile(code, page, "exec")
            if not code.startswith(NEEDS_MORE):
                exec(compiled, session)  # noqa: S102  our own text


def test_every_public_name_has_an_example():
    codes = "".join(code for page in PAGES for code in examples(page))
    assert {*bfcviz.__all__} - set(re.findall(r"\bbfcviz\.(\w+)", codes)) == set()

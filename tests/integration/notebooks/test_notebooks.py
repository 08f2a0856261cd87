"""Every notebook runs from the top, and is committed without what it printed."""

import re
from pathlib import Path

import nbformat
import pytest
from integration.browser.lab import find_browser
from nbclient import NotebookClient
from shared import ROOT

import bfcviz
from bfcviz.figures import FIGURES

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
IN_THE_BROWSER = ("01_step_through", "02_watch_live", "05_read_an_oom")
"""Those that tests/integration/browser runs from top to bottom, where there is a browser."""


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize(
    "notebook",
    [path for path in NOTEBOOKS if not (find_browser() and path.stem in IN_THE_BROWSER)],
    ids=lambda path: path.stem,
    indirect=True,
)
def test_it_runs(notebook, tmp_path, monkeypatch):
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv(
        "PYTHONPATH", str(Path(bfcviz.__file__).parents[1])
    )  # the kernel takes the same package
    work = tmp_path / "work"
    work.mkdir()
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(work)}})
    client.execute()
    printed = [
        output
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stderr"
    ]
    assert not printed


def test_the_others_run_in_the_browser():
    for stem in IN_THE_BROWSER:
        (test,) = (ROOT / "tests" / "integration" / "browser").glob(f"test_notebook_{stem[:2]}.py")
        assert f'"{stem}.ipynb"' in test.read_text()
        assert "printed_errors() == []" in test.read_text()


def test_it_is_committed_without_outputs(notebook):
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
    assert "widgets" not in notebook.metadata


def test_its_cells_are_short_and_each_is_introduced(notebook):
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds[0] == "markdown"
    assert kinds.count("markdown") >= kinds.count("code") / 2
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert len(cell.source.splitlines()) <= 15


def test_the_gallery_draws_every_figure():
    gallery = nbformat.read(ROOT / "notebooks" / "06_gallery.ipynb", as_version=4)
    code = "\n".join(cell.source for cell in gallery.cells if cell.cell_type == "code")
    drawn = re.findall(r'^(?:show|bfcviz\.draw)\("(\w+)"', code, re.MULTILINE)
    assert set(drawn) == set(FIGURES)


def test_the_tests_it_names_are_there(notebook):
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    named = re.findall(r"`([\w/]+/test_\w+\.py)`", text)
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []

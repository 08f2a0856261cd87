"""The page of the room is so: its example prints what it shows, its map names every file."""

import contextlib
import io
import re

from shared import ROOT

ROOM = ROOT / "bfcviz" / "devices"
PAGE = (ROOM / "README.md").read_text()


def test_the_example_prints_the_numbers_that_it_shows():
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102  our own text
    numbers = r"\d[\d.,]*(?: [KMG]iB)?\b|\w+/[\w/]+"
    assert re.findall(numbers, out.getvalue()) == re.findall(numbers, shown)


def test_the_map_names_every_file_and_no_other():
    named = set(re.findall(r"`(\w+\.py|\w+/)`", re.search(r"\| file \|.*?\n\n", PAGE, re.DOTALL)[0]))
    files = {path.name for path in ROOM.rglob("*.py") if path.name != "__init__.py"}
    folders = {f"{path.parent.name}/" for path in ROOM.glob("*/__init__.py")}
    assert named == files | folders


def test_the_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOM / target).exists()

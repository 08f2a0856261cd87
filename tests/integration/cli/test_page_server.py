"""The first scripts of a page of Voila, in one file."""

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bfcviz.cli import page_server
from bfcviz.cli.page_server import ENTRY, first_scripts
from bfcviz.dashboard.figure_widget import PlotlyScriptWidget

_CHUNK = re.compile(rb'\.push\(\[\["?(\d+)')


def test_it_has_what_voila_loads_first_and_its_own_script_last():
    static = next(
        folder
        for folder in map(Path, page_server.collect_static_paths(["voila", "nbconvert"], "lab"))
        if (folder / ENTRY).exists()
    )
    alone = first_scripts(static, [])
    assert alone.endswith((static / ENTRY).read_bytes())
    numbers = {number.decode() for number in _CHUNK.findall(alone)}
    assert 30 < len(numbers) < len([*static.glob(f"*.{ENTRY}")]) / 2
    assert all((static / f"{number}.{ENTRY}").read_bytes() in alone for number in numbers)


def test_only_chunks_of_an_extension_are_in_it(tmp_path):
    for name in (ENTRY, "1.voila.js", "2.abcdef01.js", "remoteEntry.abcdef01.js", "main.abcdef01.js"):
        (tmp_path / name).write_text(f"// {name}")
    assert first_scripts(tmp_path, [tmp_path, tmp_path / "none"]).decode().split("\n;") == [
        "// 1.voila.js",
        "// 2.abcdef01.js",
        "// voila.js",
    ]


def test_a_voila_that_names_its_chunks_otherwise_costs_time_only(tmp_path):
    (tmp_path / ENTRY).write_text("import('./a.js')")
    assert first_scripts(tmp_path, []) == b"import('./a.js')"


def test_the_page_knows_plotly_by_the_digest_that_its_kernel_names():
    found = page_server.page_scripts().result()
    assert found.plotly == PlotlyScriptWidget.shared().digest
    assert set(found.packed) == {found.plotly, found.first}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_page_finds_a_widget_that_came_while_it_was_busy():
    found = page_server.page_scripts().result()
    script = gzip.decompress(found.packed[found.first]).decode()
    (method,) = re.findall(r"async get_model\(.{1,400}?not found\"\)\}return \w+\}", script)
    busy = (
        f"class Manager {{ _models = {{}}; {method} }}\nconst manager = new Manager(); let now = 0;\n"
        "Date.now = () => now; globalThis.setTimeout = (go) => { now += 60000; manager._models.late = 7; go(); };\n"
        'manager.get_model("late").then(console.log);'
    )
    assert subprocess.run(["node", "-e", busy], capture_output=True, check=True).stdout == b"7\n"

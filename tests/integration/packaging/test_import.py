"""`import bfcviz` is fast: heavy and optional modules are imported on first use."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from shared import ROOT

import bfcviz

HEAVY = (
    "numpy",
    "plotly",
    "ipywidgets",
    "pyarrow",
    "pandas",
    "cupy",
    "kaleido",
    "IPython",
    "google.protobuf",
    "nbformat",
    "jsonschema",
    "rfc3987_syntax.syntax_helpers",
)


def loaded_by(code):
    """Modules, of those that are heavy, that Python holds after `code`."""
    return loaded_after(code)[0]


def loaded_after(*codes):
    """`loaded_by` after each of several parts of one program."""
    ask = f"\nprint(chr(0), *set({HEAVY!r}) & sys.modules.keys())\n"
    asked = "import sys\n" + "".join(code + ask for code in codes)
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [{*part.split()} for part in re.findall(r"\0(.*)", done.stdout)]


def test_each_part_of_a_program_loads_what_it_needs():
    imported, heap, reading, inspector, notebook = loaded_after(
        "import bfcviz; dir(bfcviz)",
        "bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 1 << 20).allocate(100)",
        "trace = bfcviz.open(bfcviz.sample('lstm')); bfcviz.Model(trace).seek(100)",
        "view = bfcviz.Inspector(trace)",
        "from plotly.io import _renderers; _renderers.nbformat.v4.new_notebook()",
    )
    assert imported == set()
    assert heap == {"numpy"}
    assert not reading & {"plotly", "ipywidgets", "cupy", "kaleido", "IPython"}
    assert not inspector & {"nbformat", "jsonschema", "pandas"}
    assert notebook >= {"nbformat"}


def test_a_picture_in_a_notebook_needs_no_nbformat():
    drawn = "import bfcviz; picture = bfcviz.draw('ladder', bfcviz.open(bfcviz.sample('oom_log')), 500)"
    loaded = loaded_by(f"{drawn}; picture.show('plotly_mimetype')")
    assert "IPython" in loaded
    assert not loaded & {"nbformat", "jsonschema"}


@pytest.mark.parametrize(
    "work", ["numpy.ones(9999)", "numpy.ones(1 << 30)"], ids=["it ends", "it runs out of memory"]
)
def test_a_training_script_loads_no_widgets(work):
    code = f"""
import bfcviz, numpy
try:
    with bfcviz.watch(numpy=True, limit="8MiB", alerts=[bfcviz.Alert("bytes_in_use", above="1MiB")]) as watched:
        {work}
except MemoryError as error:
    assert watched.failure and error.__notes__
assert watched.report().stats.bytes_in_use or watched.failure
"""
    assert not loaded_by(code) & {"plotly", "ipywidgets", "IPython", "kaleido"}


def test_the_server_of_a_page_needs_no_numbers_and_no_grammar():
    code = "import bfcviz.cli.view, bfcviz.cli.page_server"
    assert not loaded_by(code) & {"numpy", "plotly", "pyarrow", "pandas", "rfc3987_syntax.syntax_helpers"}


def test_every_public_name_is_there():
    for name in bfcviz.__all__:
        assert getattr(bfcviz, name) is not None
    assert {*bfcviz.__all__} <= {*dir(bfcviz)}


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(bfcviz.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {each.asname: (node.module, each.name) for node in block.body for each in node.names}
    assert seen == bfcviz._HOMES


def test_the_readme_lists_every_public_name_once():
    text = (ROOT / "bfcviz" / "README.md").read_text()
    section = text.partition("## Public names\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^- `(\w+)`: .+\.$", section, re.MULTILINE)
    assert sorted(listed) == sorted(bfcviz.__all__)

"""What works without any extra, and what names the extra that it needs."""

import json
import os
import re
import tomllib

import pytest
from processes import needs_compiled, run_code, run_python
from shared import ROOT, short_trace

import bfcviz

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OF_EXTRAS = (
    "pyarrow",
    "plotly",
    "ipywidgets",
    "anywidget",
    "duckdb",
    "pandas",
    "kaleido",
    "mcp",
    "distributed",
)
LOG = bfcviz.sample("oom_log")
SHORT = "short.bfc"
"""The first events of a run, in the folder where the commands run: a profile is read only once."""

WITHOUT_EXTRAS = {
    "why": ["why", LOG],
    "why, as JSON": ["why", LOG, "--json"],
    "a pasted message": [
        "why",
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)",
    ],
    "report, as Markdown": ["report", LOG, "--format", "md"],
    "report, as JSON": ["report", LOG, "--format", "json"],
    "info": ["info", bfcviz.sample("lstm")],
    "holders": ["holders", SHORT, "--step", "peak"],
    "leaks": ["holders", SHORT, "--leaks"],
    "whatif": ["whatif", SHORT, "--policy", "bfc"],
    "whatif, as JSON": ["whatif", SHORT, "--policy", "bfc", "--json"],
    "fit": ["fit", SHORT],
    "to Perfetto": ["convert", SHORT, "-o", "counters.json"],
    "to PyTorch": ["convert", SHORT, "-o", "snapshot.pickle"],
}
WITH_AN_EXTRA = {
    "a page": (["report", LOG, "-o", "page.html"], "plotly"),
    "export": (["export", LOG, "--figure", "region-map", "--out", "map.html"], "plotly"),
    "a picture of a what-if": (["whatif", SHORT, "--policy", "bfc", "-o", "picture.html"], "plotly"),
    "compare": (["compare", SHORT, SHORT], "pyarrow"),
    "a plan as a table": (["plan", SHORT, "-o", "plan.parquet"], "pyarrow"),
    "to Parquet": (["convert", SHORT, "-o", "trace.parquet"], "pyarrow"),
    "to CSV": (["convert", SHORT, "-o", "trace.csv"], "pyarrow"),
    "sql": (["sql", LOG, "select 1"], "duckdb"),
    "mcp": (["mcp", "."], "mcp"),
}
CALLS_WITH_AN_EXTRA = {
    "an Inspector": ("bfcviz.Inspector(trace)", "ipywidgets"),
    "a picture": ("bfcviz.draw('region_map', trace)", "plotly"),
    "a saved trace": ("trace.save('trace.parquet')", "pyarrow"),
    "a table": ("bfcviz.holders(trace, 1).to_arrow()", "pyarrow"),
    "a data frame": ("trace.to_pandas()", "pandas"),
    "SQL": ("bfcviz.sql(trace, 'select 1')", "duckdb"),
    "a sweep": ("bfcviz.sweep", "pyarrow"),
}


@pytest.fixture(scope="module")
def missing(tmp_path_factory):
    """A folder that, on the path of Python, hides the packages of extras from it and from its children."""
    folder = tmp_path_factory.mktemp("missing")
    for name in OF_EXTRAS:
        text = f"No module named {name!r}"
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError({text!r}, name={name!r})\n")
    return folder


@pytest.fixture(scope="module")
def answers(missing, tmp_path_factory):
    """Of each command or call: its exit status, or its kind of error, and what it said on standard error."""
    commands = [*WITHOUT_EXTRAS.values(), *(words for words, _ in WITH_AN_EXTRA.values())]
    calls = [code for code, _ in CALLS_WITH_AN_EXTRA.values()]
    folder = tmp_path_factory.mktemp("answers")
    short_trace("lstm").save(folder / SHORT)
    code = f"""
import contextlib, io, json, os
import bfcviz
from bfcviz.cli.command import main
os.chdir({str(folder)!r})
found = []
for words in {[[*map(str, words)] for words in commands]!r}:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    found.append((status, err.getvalue()))
trace = bfcviz.open({str(LOG)!r})
for call in {calls!r}:
    try:
        eval(call)
    except Exception as error:
        found.append((type(error).__name__, str(error)))
    else:
        found.append(("", ""))
print(json.dumps(found))
"""
    found = json.loads(run_code(code, PYTHONPATH=path_with(missing)))
    return dict(zip([*WITHOUT_EXTRAS, *WITH_AN_EXTRA, *CALLS_WITH_AN_EXTRA], found, strict=True))


def path_with(folder):
    return os.pathsep.join(map(str, (folder, ROOT, ROOT / "tests")))


def packages_of(extra):
    """The packages that `pip install 'bfcviz[EXTRA]'` brings by name."""
    found = set()
    for text in EXTRAS[extra]:
        inner = re.fullmatch(r"bfcviz\[(.*)\]", text)
        found |= {each for name in inner[1].split(",") for each in packages_of(name)} if inner else {text}
    return {re.match(r"[\w-]+", text)[0] for text in found}


@pytest.mark.parametrize("name", WITHOUT_EXTRAS)
def test_a_base_command_needs_no_extra(answers, name):
    assert answers[name] == [0, ""]


@pytest.mark.parametrize(("name", "package"), [(name, need) for name, (_, need) in WITH_AN_EXTRA.items()])
def test_a_command_names_the_extra_that_it_needs(answers, name, package):
    status, err = answers[name]
    assert status == 1
    (extra,) = re.findall(r"pip install 'bfcviz\[(\w+)\]'", err)
    assert package in packages_of(extra)


@pytest.mark.parametrize(
    ("name", "package"), [(name, need) for name, (_, need) in CALLS_WITH_AN_EXTRA.items()]
)
def test_a_call_names_the_extra_that_it_needs(answers, name, package):
    kind, text = answers[name]
    assert kind == "MissingExtra"
    (extra,) = re.findall(r"pip install 'bfcviz\[(\w+)\]'", text)
    assert package in packages_of(extra)


ELSEWHERE = """
import builtins, io, os, signal, sys
sys.platform = "darwin"
for module, names in ((os, "memfd_create sched_getaffinity pidfd_open eventfd posix_fadvise posix_fallocate fdatasync "
                       "pipe2 getrandom copy_file_range splice setns unshare"), (signal, "sigtimedwait sigwaitinfo")):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
real = io.open
def opened(path, *arguments, **options):
    if str(path).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "there is none", str(path))
    return real(path, *arguments, **options)
io.open = builtins.open = opened
import bfcviz
from bfcviz.cli.command import main
for words in (["info", LOG], ["why", LOG], ["report", LOG, "-o", "page.html"], ["convert", LOG, "-o", "trace.parquet"]):
    assert main(words) == 0, words
assert bfcviz.Inspector("trace.parquet").step > 0
"""


def test_viewing_needs_no_linux(tmp_path, monkeypatch):
    """As on macOS, as far as this can be acted here: what only Linux has is not there."""
    monkeypatch.chdir(tmp_path)
    run_code(f"LOG = {str(LOG)!r}\n{ELSEWHERE}")


@needs_compiled
def test_a_program_is_recorded_without_an_extra(missing, tmp_path):
    program = tmp_path / "train.py"
    program.write_text("import numpy as np\nhidden = [np.ones(1 << 20) for _ in range(4)]\n")
    words = ["-m", "bfcviz", "record", "-o", tmp_path / "run.bfc", "--", "python", program]
    done = run_python(*words, PYTHONPATH=path_with(missing))
    assert done.returncode == 0, done.stderr
    assert len(bfcviz.open(tmp_path / "run.bfc")) > 4

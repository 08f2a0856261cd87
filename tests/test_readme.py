"""What README and guide say is so: their Python runs and prints what they show, commands work, links lead somewhere."""

import contextlib
import gzip
import io
import os
import re
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from unittest import mock

import pytest
from shared import ROOT, short_file

import bfcviz
from bfcviz.cli.command import COMMANDS
from bfcviz.figures import FIGURES
from bfcviz.frameworks import FRAMEWORKS

README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "notebooks" / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README + GUIDE, re.DOTALL | re.MULTILINE)
SETS_UP = "python3 -m venv "


def fake_tensorflow():
    """As much of TensorFlow as the guide uses: its profiler leaves a real profile where the real one does."""

    def start(logdir, options):
        assert (options.host_tracer_level, options.python_tracer_level) == (2, 0)
        started.append(Path(logdir))

    def stop():
        place = started.pop() / "plugins" / "profile" / "2026_01_31_12_00_00"
        place.mkdir(parents=True)
        (place / "host.xplane.pb").write_bytes(bfcviz.sample("lstm").read_bytes())

    started = []
    experimental = types.SimpleNamespace(ProfilerOptions=types.SimpleNamespace, start=start, stop=stop)
    return types.SimpleNamespace(profiler=types.SimpleNamespace(experimental=experimental))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where the README's reader works."""
    return tmp_path_factory.mktemp("reader")


@pytest.fixture(scope="module")
def printed(place):
    """What each Python block of the README printed, after it ran in one session with those before it."""
    session = {"build_model": mock.MagicMock(), "load_data": mock.MagicMock()}
    outputs, whole, short = [], bfcviz.sample, short_file("conv")
    with contextlib.chdir(place), pytest.MonkeyPatch.context() as patch:
        # The run whose requests are served by several policies, in hundreds of orders.
        patch.setattr(bfcviz, "sample", lambda name: short if name == "conv" else whole(name))
        patch.setitem(sys.modules, "tensorflow", fake_tensorflow())
        for language, text in BLOCKS:
            out = io.StringIO()
            if language == "python":
                with contextlib.redirect_stdout(out):
                    exec(compile(text, "README.md", "exec"), session)  # noqa: S102  our own text
            outputs.append(out.getvalue())
    return outputs


def test_every_snippet_runs_and_leaves_what_it_promises(printed, place):
    assert sum(language == "python" for language, _ in BLOCKS) == 7
    made = {path.name for path in place.iterdir()}
    assert made == {"first_run", "map.html", "fragmentation.csv", "watched.parquet", "watched", "logs"}
    assert len(printed) == len(BLOCKS)


def test_run_again_the_snippet_shows_the_new_recording(tmp_path):
    (text,) = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    opened = []
    with contextlib.chdir(tmp_path):
        for _ in range(2):
            session = {}
            exec(compile(text, "README.md", "exec"), session)  # noqa: S102  our own text
            opened.append(session["trace"].path.name)
    assert opened == ["watched", "watched-2"]


def test_every_output_shown_has_the_sizes_and_names_of_the_output(printed):
    found = [(out, *follower) for out, follower in zip(printed, [*BLOCKS[1:], ("", "")], strict=True) if out]
    assert [language for _, language, _ in found] == ["text"]
    for out, _, shown in found:
        assert facts(shown) == facts(out)
        assert {"attention", "gradients", "40.0 MiB", "44.0 MiB"} <= facts(shown)


def facts(text):
    """The sizes and addresses in a sentence, and the labels of the README's heap; the wording may change."""
    return set(re.findall(r"\d[\d.]* [KMG]iB|0x[…\w]+|attention|gradients|weights|momentum", text))


def test_the_commands_work_on_what_the_snippets_made(printed, place):
    assert printed
    (block,) = [text for language, text in BLOCKS if language == "bash" and text.startswith("bfcviz info")]
    assert "24,697 recorded events" in run(block, place).stdout
    assert (place / "worst.html").read_text().startswith("<!doctype html>")


def test_the_commands_work_on_the_log_of_a_failure(tmp_path):
    (tmp_path / "train.log").write_bytes(gzip.decompress(bfcviz.sample("oom_log").read_bytes()))
    (block,) = [text for language, text in BLOCKS if language == "bash" and "bfcviz why train.log" in text]
    printed = run(block, tmp_path).stdout
    assert all(f"bfcviz {command} train.log" in block for command in ("why", "holders", "info"))
    for fact in ("failed to allocate 828.1 KiB", "10.1 MiB 100.0 %", "tensorflow-log"):
        assert fact in printed


@pytest.mark.parametrize("page", [README, GUIDE], ids=["README", "guide"])
def test_a_program_is_recorded_by_the_command(page, tmp_path):
    (tmp_path / "train.py").write_text("import numpy; held = [numpy.ones(1000) for _ in range(3)]")
    lines = [line for line in page.splitlines() if line.startswith("bfcviz record")]
    record = next(line for line in lines if "--on-oom" not in line)
    assert "run.bfc" in run(record.replace("python", sys.executable), tmp_path).stderr
    trace = bfcviz.open(tmp_path / "run.bfc")
    assert len(trace) > 3
    assert bfcviz.holders(trace, bfcviz.peak(trace)).names == ["in use", "train.py:1"]


def test_the_first_commands_open_what_they_made():
    (block,) = [text for language, text in BLOCKS if language == "bash" and "bfcviz view run.bfc" in text]
    commands = [line.partition("#")[0].split() for line in block.splitlines()]
    assert [command[:2] for command in commands] == [["bfcviz", word] for word in ("record", "view", "why")]


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 75


def run(commands, place):
    """Commands of the README, in a shell where `bfcviz` is the one tested."""
    shell = f'bfcviz() {{ "{sys.executable}" -m bfcviz "$@"; }}\nset -e\n{commands}'
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=place,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_two_commands_set_everything_up():
    commands = [line for line in README.splitlines() if line.startswith(SETS_UP)]
    assert [command.split(" && ")[-1] for command in commands] == [
        ".venv/bin/bfcviz demo",
        ".venv/bin/python -m pytest",
    ]


@pytest.mark.parametrize("page", ["README.md", "notebooks/README.md", "bfcviz/README.md", "tests/README.md"])
def test_links_and_the_pictures_lead_somewhere(page):
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text)
    files = [(ROOT / page).parent / (target or Path(page).name) for target, _ in links]
    assert [file.as_posix() for file in files if not file.exists()] == []
    for file, (_, part) in zip(files, links, strict=True):
        titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE) if part else []
        assert part in [
            "",
            *(re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles),
        ]


def test_the_list_of_notebooks_is_complete():
    listed = re.findall(r"^\| \[\w+\]\((\w+\.ipynb)\)", GUIDE, re.MULTILINE)
    assert listed == sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


def test_the_table_of_extras_is_complete():
    section = GUIDE.partition("## Install\n")[2].partition("\n## ")[0]
    listed = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert sorted(listed) == sorted(extras.keys() - {"dev", "docs"})


def test_every_command_and_framework_has_a_row():
    rows = set(re.findall(r"^\| (\w+) \|", GUIDE, re.MULTILINE))
    assert {framework.title for framework in FRAMEWORKS.values()} <= rows
    assert [
        name for name in COMMANDS if f"`bfcviz {name} " not in GUIDE and f"`bfcviz {name}`" not in GUIDE
    ] == []


def test_the_house_names_every_folder():
    text = (ROOT / "bfcviz" / "README.md").read_text()
    section = text.partition("## The house\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([\w/]+)/` \|", section, re.MULTILINE)
    folders = {path.parent for suffix in ("py", "h") for path in (ROOT / "bfcviz").rglob(f"*.{suffix}")}
    inside = {folder.relative_to(ROOT / "bfcviz").as_posix() for folder in folders} - {"."}
    assert sorted(named) == sorted(inside)


def test_the_recipes_name_files_that_exist():
    text = (ROOT / "tests" / "README.md").read_text()
    paths = re.findall(r"`((?:bfcviz|tests)/[\w/.]+)`", text)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
    folders = re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)
    assert [folder for folder in folders if not (ROOT / "tests" / folder).is_dir()] == []
    for path, names in {
        "bfcviz/importers/file_format.py": ("Format", "_BY_CONTENT", "READABLE"),
        "bfcviz/importers/open_trace.py": ("_READERS",),
        "bfcviz/importers/event_makers.py": ("events_of_state", "failed_request", "RecordedHistory"),
        "bfcviz/frameworks.py": ("Framework", "_ALL"),
        "bfcviz/live/heap_provider.py": ("HeapProvider",),
        "bfcviz/figures/panel.py": ("Panel",),
        "bfcviz/figures/view.py": ("View", "data", "panels", "table", "at", "dashboard", "add_view"),
        "bfcviz/figures/__init__.py": ("add_view",),
    }.items():
        source = (ROOT / path).read_text()
        assert [name for name in names if name not in text] == []
        assert [name for name in names if not re.search(rf"\b{name}\b", source)] == []


def test_the_figures_it_names_are_those_there_are():
    assert all(f"`{name}`" in GUIDE or f" {name}`" in GUIDE for name in FIGURES)

"""The files of the wheel, and its use after installation, compiled or not."""

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from setuptools.dist import Distribution
from shared import ROOT

import bfcviz
from bfcviz import samples
from bfcviz._build import BuildPy, refuse_free_threading
from bfcviz.cli.demo import NOTEBOOK
from bfcviz.cli.info import info

pytestmark = [pytest.mark.xdist_group("packaging"), pytest.mark.timeout(600)]

SAMPLE = bfcviz.sample("lstm")

CHURN = """
import hashlib, random
import bfcviz
from bfcviz.events.log import Reader
from bfcviz.events.schema import Kind

dice = random.Random(7)
options = bfcviz.AllocatorOptions(allow_growth=True, garbage_collection=True)
source = bfcviz.SimulatedSubAllocator("gapped")
with bfcviz.BFCAllocator(source, 200 << 20, options, log=bfcviz.EventLog(1 << 16)) as heap:
    reader, held = Reader(heap.log), []
    for _ in range(3000):
        if held and dice.random() < 0.45:
            heap.free(held.pop(dice.randrange(len(held))))
        elif (address := heap.try_allocate(int(2 ** dice.uniform(0, 24)), label=dice.choice("abc"))) is not None:
            held.append(address)
    for address in held:
        heap.free(address)
    heap.allocate(150 << 20)  # more than any region has: they are released for it
    events = reader.read()
events["time"] = 0
print(hashlib.sha256(events.tobytes()).hexdigest(), *sorted({Kind(kind).name for kind in events["kind"]}))
"""


def names_in(wheel):
    with zipfile.ZipFile(wheel) as file:
        return file.namelist()


def test_the_wheel_is_for_every_python_from_3_11(wheel):
    assert wheel.name.startswith(f"bfcviz-{bfcviz.__version__}-cp311-abi3-")


def test_the_wheel_holds_the_package_and_what_it_shows(wheel):
    names = {*names_in(wheel)}
    for path in (ROOT / "bfcviz").rglob("*.py"):
        assert path.relative_to(ROOT).as_posix() in names
    assert {"bfcviz/py.typed", f"bfcviz/notebooks/{NOTEBOOK}"} <= names
    assert {f"bfcviz/samples/{bfcviz.sample(name).name}" for name in samples.names()} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name for name in names if name.endswith(".so")} == {
        "bfcviz/_heap.abi3.so",
        "bfcviz/_live.abi3.so",
        "bfcviz/_model.abi3.so",
        "bfcviz/_packing.abi3.so",
        "bfcviz/_raster.abi3.so",
        "bfcviz/_shared.abi3.so",
        "bfcviz/_whatif.abi3.so",
        "bfcviz/_snapshot.abi3.so",
        "bfcviz/_storage.abi3.so",
    }


def test_the_wheel_holds_nothing_that_only_its_making_needs(wheel):
    left_over = [name for name in names_in(wheel) if name.endswith((".c", ".h", ".pxd", ".pyc", ".html"))]
    foreign = [name for name in names_in(wheel) if not name.startswith(("bfcviz/", "bfcviz-"))]
    assert (left_over, foreign) == ([], [])


def test_the_training_runs_have_a_wheel_of_their_own(samples_wheel, monkeypatch):
    second = {name.partition("/")[2] for name in names_in(samples_wheel)}
    command = BuildPy(Distribution({"package_data": {"bfcviz.samples": ["*.gz"]}}))
    command.ensure_finalized()
    command.manifest_files = {}  # of a source distribution
    monkeypatch.chdir(ROOT)
    both = {Path(path).name for path in command.find_data_files("bfcviz.samples", "bfcviz/samples")}
    monkeypatch.setenv("BFCVIZ_WITHOUT_PROFILES", "1")
    first = {Path(path).name for path in command.find_data_files("bfcviz.samples", "bfcviz/samples")}
    assert both - first == {bfcviz.sample(name).name for name in samples.run_names()} <= second


def test_free_threaded_python_is_refused(monkeypatch):
    monkeypatch.setattr("sysconfig.get_config_var", lambda _: 1)
    with pytest.raises(SystemExit, match="free-threaded"):
        refuse_free_threading()


def test_a_source_distribution_holds_the_c_that_its_making_needs(tree, tmp_path):
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, check=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    for suffix in ("pxd", "h"):
        assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "bfcviz").rglob(f"*.{suffix}")} <= names


def test_the_binaries_carry_no_debug_symbols(wheel):
    with zipfile.ZipFile(wheel) as file:
        binaries = {name: file.read(name) for name in file.namelist() if name.endswith(".so")}
    assert binaries
    sections = (b".debug_info", b".debug_line", b".symtab")
    assert [
        (name, section) for name, code in binaries.items() for section in sections if section in code
    ] == []


def test_generated_c_stays_out_of_the_tree(wheel, tree):
    del wheel  # only builds it
    assert [path for path in tree.rglob("*.c") if "build" not in path.relative_to(tree).parts] == []


def test_the_command_is_installed_and_brings_the_notebook(compiled, tmp_path):
    assert compiled.run("bfcviz", "--version").stdout == f"bfcviz {bfcviz.__version__}\n"
    code = "import sys; from bfcviz.cli.demo import copy_notebook; copy_notebook(sys.argv[1], 'conv')"
    compiled.run(
        "python", "-c", code.replace("sys.argv[1]", "__import__('pathlib').Path(sys.argv[1])"), tmp_path
    )
    assert (tmp_path / NOTEBOOK).read_bytes() == (ROOT / "notebooks" / NOTEBOOK).read_bytes()


def test_with_a_compiler_it_is_compiled_and_silent(compiled):
    done = compiled.run(
        "python",
        "-c",
        "import bfcviz.live, bfcviz.figures, bfcviz.importers.torch, bfcviz.whatif.pools, sys; print(*sys.modules)",
    )
    names = ("_heap", "_live", "_model", "_raster", "_snapshot", "_storage", "_whatif")
    assert {f"bfcviz.{name}" for name in names} <= {*done.stdout.split()}
    assert done.stderr == ""


def test_a_later_build_keeps_the_translation(wheel, uncompiled, tree):
    del uncompiled  # built after the wheel
    translated = list(tree.glob("build/cython/bfcviz/*.c"))
    assert len(translated) == 9
    assert all(path.stat().st_mtime <= wheel.stat().st_mtime for path in translated)


def test_without_a_compiler_it_says_so_once(uncompiled):
    code = "import bfcviz.live, bfcviz.model, bfcviz._compiled as c; c.load('bfcviz._heap')"
    err = uncompiled.run("python", "-c", code).stderr
    assert err.count("UncompiledWarning") == 1
    assert "apt install gcc" in err


def test_sources_that_are_not_compiled_say_both_ways_out(uncompiled, tree):
    code = f"import sys; sys.path.insert(0, {str(tree)!r}); import bfcviz.model"
    err = uncompiled.run("python", "-c", code).stderr
    assert str(tree) in err
    assert "change the folder" in err
    assert "apt install gcc" in err


def test_with_the_variable_set_there_is_no_warning(uncompiled):
    done = uncompiled.run("python", "-c", "import bfcviz.allocator, bfcviz.model", BFCVIZ_UNCOMPILED="1")
    assert done.stderr == ""


@pytest.fixture(scope="module")
def plain_info(uncompiled):
    """What `bfcviz info` as plain Python says of a real run."""
    return uncompiled.run("bfcviz", "info", SAMPLE, "--json")


def test_at_a_prompt_it_is_one_line(plain_info):
    err = plain_info.stderr
    assert err.startswith("bfcviz: warning: bfcviz was installed without a C compiler")
    assert err.count("\n") == 1


def test_both_write_the_same_events(compiled, uncompiled):
    ours, plain = compiled.run("python", "-c", CHURN).stdout, uncompiled.run("python", "-c", CHURN).stdout
    assert ours == plain
    assert {*ours.split()[1:]} == {"EXTEND", "SPLIT", "ALLOCATE", "FREE", "MERGE", "RELEASE", "OOM"}


def test_both_place_every_chunk_where_tensorflow_does(compiled, uncompiled):
    words = (ROOT / "tests/conformance/compare.py", ROOT / "tests/data/golden", "--max-operations", "500")
    for each in (compiled, uncompiled):
        assert each.run("python", *words).stdout.splitlines()[-1].endswith(" operations, 0 differences")


def test_both_tell_the_same_of_a_real_run(compiled, plain_info):
    ours = compiled.run("bfcviz", "info", SAMPLE, "--json").stdout
    assert json.loads(ours) == json.loads(plain_info.stdout) == info(bfcviz.open(SAMPLE))

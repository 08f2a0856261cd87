"""The plugin for pytest, in a pytest of its own: marks, the table, traces of failed tests, the comparison."""

import json
import re

import pytest
from processes import WarmPython, needs_compiled

import bfcviz

pytest_plugins = "pytester"
pytestmark = needs_compiled
MIB = 1 << 20

TESTS = """
    import numpy as np
    import pytest

    kept = []

    @pytest.mark.bfc_limit("8 MiB")
    def test_small():
        np.ones(1 << 18)

    @pytest.mark.bfc_limit("1 MiB")
    def test_large():
        np.ones(1 << 18)

    @pytest.mark.bfc_no_leaks
    def test_leaks():
        kept.append(np.ones(1 << 17))

    @pytest.mark.bfc_no_leaks
    def test_in_a_cycle():
        held = [np.ones(1 << 17)]
        held.append(held)

    @pytest.mark.bfc_no_leaks("4 MiB")
    def test_leaves_what_is_allowed():
        kept.append(np.ones(1 << 17))

    @pytest.mark.bfc_fragmentation(0.1)
    def test_in_pieces():
        arrays = [np.ones(1 << 16) for _ in range(40)]
        del arrays[::2]
        arrays.append(np.ones(1 << 21))

    @pytest.mark.bfc_fits_in("64 MiB", policy="torch")
    def test_fits():
        np.ones(1 << 18)

    @pytest.mark.bfc_fits_in("1 MiB")
    def test_does_not_fit():
        np.ones(1 << 18)

    def test_unmarked():
        np.ones(1 << 19)

    @pytest.mark.bfc_unwatched
    def test_unwatched():
        np.ones(1 << 20)

    def test_fails():
        array = np.ones(1 << 18)
        assert array.sum() == 0
"""
OPTIONS = [
    word
    for name in ("xdist", "cacheprovider", "randomly", "hypothesispytest", "anyio")
    for word in ("-p", f"no:{name}")
]
BEGIN = """
import gc, os, sys, pytest
import bfcviz.analysis.leaks, bfcviz.live.numpy, bfcviz.watching.watch_reports, bfcviz.watching.watch_session
import bfcviz.whatif.policy_table
gc.freeze()
"""
FAILED = ("test_large", "test_leaks", "test_in_pieces", "test_does_not_fit", "test_fails")


@pytest.fixture(scope="module")
def warm():
    with WarmPython(BEGIN) as python:
        yield python


class Done:
    """A run of pytest: its exit status, and what it printed."""

    def __init__(self, status, printed, said):
        self.status, self.text = status, printed + said

    def outcomes(self):
        """How many tests had each outcome. The warnings are not ours: what is warm cannot be rewritten."""
        outcomes = pytest.RunResult.parse_summary_nouns(self.text.splitlines())
        return {name: count for name, count in outcomes.items() if name != "warnings"}


def ran(warm, folder, *more):
    """Run pytest in this folder, in a process of its own."""
    return Done(*warm.result_of(f"os.chdir({str(folder)!r}); sys.exit(pytest.main({[*OPTIONS, *more]}))"))


@pytest.fixture
def run(pytester, warm):
    def run(*more):
        return ran(warm, pytester.path, *more)

    pytester.makepyfile(test_memory=TESTS)
    pytester.makeini("[pytest]\nbfc_frameworks = numpy\naddopts = --strict-markers")
    return run


def used(path):
    return {name.rpartition("::")[2]: each for name, each in json.loads(path.read_text()).items()}


def test_marks_hold(run, pytester):
    done = run("--bfc-save", "used.json")
    assert done.outcomes() == {"passed": 6, "failed": 5}
    assert all(f"FAILED test_memory.py::{name}" in done.text for name in FAILED)
    assert "2.0 MiB in use at its peak, the mark allows 1.0 MiB" in done.text
    assert re.search(r"2\.0 MiB  test_memory\.py:\d+ test_large\n", done.text)  # who held it
    assert re.search(r"1\.0 MiB  test_leaks \(.*test_memory\.py:\d+\)\n", done.text)
    found = used(pytester.path / "used.json")
    assert {*found} == {
        *("test_small", "test_large", "test_leaks", "test_in_a_cycle", "test_leaves_what_is_allowed"),
        *("test_in_pieces", "test_fits", "test_does_not_fit"),
    }  # without --bfc only those with a mark
    assert found["test_large"]["peak"] // MIB == 2
    assert (found["test_leaks"]["leaked"], found["test_in_a_cycle"]["leaked"]) == (MIB, 0)


def test_every_test_is_watched_and_the_largest_are_listed(run, pytester):
    done = run("--bfc", "--bfc-save", "used.json", "--bfc-most", "2")
    assert done.outcomes() == {"passed": 6, "failed": 5}
    found = used(pytester.path / "used.json")
    assert found["test_unmarked"]["peak"] // MIB == 4
    assert "test_unwatched" not in found
    table = re.findall(r"B  test_memory.py::(\w+) \(numpy\)", done.text)
    assert table == ["test_in_pieces", "test_unmarked"]


def test_a_failed_test_leaves_its_trace(run, pytester):
    done = run("--bfc", "--bfc-traces", "traces")
    paths = {
        path.stem.rpartition("test_memory.py-")[2]: path for path in (pytester.path / "traces").iterdir()
    }
    assert {*paths} == {*FAILED}
    trace = bfcviz.open(paths["test_large"])
    assert max(trace.read(0, len(trace))["requested"]) == 2 * MIB
    assert str(paths["test_fails"].name) in done.text


def test_an_increase_fails_the_run(run, pytester):
    chosen = ("--bfc", "-k", "unmarked or fits")
    assert run(*chosen, "--bfc-save", "base.json").status == 1  # test_does_not_fit
    passing = ("--bfc", "-k", "unmarked")
    assert run(*passing, "--bfc-compare", "base.json").status == 0
    base = json.loads((pytester.path / "base.json").read_text())
    base["test_memory.py::test_unmarked"]["peak"] = 3 * MIB
    (pytester.path / "base.json").write_text(json.dumps(base))
    done = run(*passing, "--bfc-compare", "base.json")
    assert done.status == 1
    assert "test_memory.py::test_unmarked: 4.0 MiB at its peak, 3.0 MiB before (+33%)" in done.text
    assert run(*passing, "--bfc-compare", "base.json", "--bfc-tolerance", "0.5").status == 0


def test_a_file_that_is_no_result_is_a_usage_error(run, pytester):
    (pytester.path / "base.json").write_text("[]")
    done = run("--bfc", "-k", "unmarked", "--bfc-compare", "base.json")
    assert done.status != 0
    assert "base.json" in done.text


def test_a_mark_without_its_argument_says_what_it_takes(pytester, warm):
    pytester.makeini("[pytest]\nbfc_frameworks = numpy")
    pytester.makepyfile("import pytest\n@pytest.mark.bfc_limit\ndef test_it(): pass")
    done = ran(warm, pytester.path)
    assert done.outcomes() == {"failed": 1}
    assert "bfc_limit(size)" in done.text


def test_it_works_in_several_processes(run, pytester):
    pytest.importorskip("xdist")
    done = pytester.runpytest_subprocess(*OPTIONS[2:], "--bfc", "-n", "2", "--bfc-save", "used.json")
    done.assert_outcomes(passed=6, failed=5)
    assert used(pytester.path / "used.json")["test_unmarked"]["peak"] // MIB == 4


def test_a_test_without_a_mark_loads_nothing(pytester):
    pytester.makepyfile("import sys\ndef test_it(): assert 'numpy' not in sys.modules")
    pytester.runpytest_subprocess(*OPTIONS).assert_outcomes(passed=1)


def test_a_mark_that_is_wrong_fails_its_test_without_a_traceback(run, pytester):
    marks = (
        'bfc_limit("10 apples")',
        'bfc_no_leaks("few")',
        'bfc_fragmentation("much")',
        "bfc_fits_in(None)",
    )
    tests = [f"@pytest.mark.{mark}\ndef test_{number}(): pass\n" for number, mark in enumerate(marks)]
    pytester.makepyfile(test_memory="import pytest\n" + "\n".join(tests))
    done = run()
    assert done.outcomes() == {"failed": len(marks)}
    assert "10 apples" in done.text
    assert "units.py" not in done.text
    assert "pytest_plugin.py" not in done.text

"""Golden traces of TensorFlow's own class, replayed in the heap; and a proof that the comparison can fail."""

import json
from pathlib import Path

import numpy as np
import pytest
from conformance import compare
from processes import run_python
from shared import ROOT, SHARED, needs_shared

GOLDEN = ROOT / "tests" / "data" / "golden"
SCRIPT = Path(compare.__file__)
IS_PLAIN = (
    "import sys, runpy; runpy.run_path(sys.argv.pop(1), run_name='golden')['main'](); "
    "from bfcviz.allocator import heap; print(heap.__file__, 'bfcviz._heap' in sys.modules)"
)


def test_every_trace_here_is_reproduced(capsys):
    assert compare.main([str(GOLDEN)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "4 traces, 8855 operations, 0 differences"


@needs_shared
def test_every_trace_there_is_reproduced(capsys):
    assert compare.main([str(SHARED / "golden")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "34 traces, 523099 operations, 0 differences"


def test_a_sample_is_reproduced_uncompiled():
    result = run_python("-c", IS_PLAIN, SCRIPT, GOLDEN, "--max-operations", "800", plain=True)
    assert result.returncode == 0, result.stderr
    *_, summary, how = result.stdout.splitlines()
    assert summary == "4 traces, 2872 operations, 0 differences"
    source, compiled = how.split()
    assert (Path(source).name, compiled) == ("heap.py", "False")


def test_it_runs_as_a_script():
    result = run_python(SCRIPT, GOLDEN / "10_gc_growth.npz")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "1 traces, 472 operations, 0 differences"


def altered(tmp_path, name, change):
    """A copy of a golden trace in which `change` did something to its arrays."""
    with np.load(GOLDEN / f"{name}.npz") as z:
        arrays = {key: z[key].copy() for key in z.files}
    change(arrays)
    np.savez(tmp_path / f"{name}.npz", **arrays)
    return str(tmp_path / f"{name}.npz")


def one_more(key, place):
    def change(arrays):
        arrays[key][place] += 1

    return change


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("offset", 100),
        ("allocated_size", 471),
        ("allocation_id", 7),
        ("stats", (3, 1)),
        ("final_stats", 9),
        ("events", (2, 5)),
        ("regions", (0, 1)),
        ("map_rows", (5, 0)),
        ("map_bins", (0, 3, 1)),
        ("map_fragmentation", 0),
    ],
)
def test_one_wrong_number_is_one_difference(tmp_path, capsys, key, place):
    path = altered(tmp_path, "10_gc_growth", one_more(key, place))
    assert compare.main([path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 traces, 472 operations, 1 differences"
    assert any(line.lstrip().startswith((key, key.removeprefix("map_"), "map 0")) for line in lines[1:-1]), (
        lines
    )


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("10_gc_growth", "garbage_collection", False),
        ("10_gc_growth", "allow_growth", False),
        ("14_gc_coalesce", "coalesce", False),
        ("32_timestamps_tight", "total_memory", (4608 << 10) + 256),
        ("32_timestamps_tight", "timing", False),
        ("34_align_clear_stats", "alignment", 8192),
    ],
)
def test_another_option_makes_differences(tmp_path, capsys, name, option, value):
    def change(arrays):
        meta = json.loads(bytes(arrays["meta_json"]))
        assert meta["options"][option] != value
        meta["options"][option] = value
        arrays["meta_json"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)

    path = altered(tmp_path, name, change)
    assert compare.main([path]) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("1 traces, ")
    assert int(last.split()[-2]) > 0


def test_no_trace_at_all_is_no_success(tmp_path, capsys):
    assert compare.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 traces, 0 operations, 0 differences"

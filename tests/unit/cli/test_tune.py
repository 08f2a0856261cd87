"""`bfcviz tune`: the line to set is that of the settings with the least memory; its numbers are those of a replay."""

import ast
import json
import shlex

import pytest
from shared import SHARED, needs_shared, short_file
from unit.figures.synthetic import MiB, PlainHeap

from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.analysis.heap_settings import Family
from bfcviz.cli import main
from bfcviz.devices import Settings, simulate_gpus
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.trace import Trace
from bfcviz.whatif.policy_replay import replay
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.tuning import setting_line

TORCH = Origin(format="torch", pools=(Pool("cuda:0"),))


def torch_file(path, sizes, origin=TORCH):
    """A trace of PyTorch's: each block is freed before the next, larger one is allocated, as of a growing batch."""
    heap = PlainHeap(1 << 34)
    kept = None
    for size in sizes:
        held = heap.allocate(size * MiB, "batch")
        if kept is not None:
            heap.free(kept)
        kept = held
    heap.free(kept)
    events = heap.trace().read(0, len(heap.events)).copy()
    return str(Trace.from_events(events, heap.labels, origin).save(path))


@pytest.fixture
def growing(tmp_path):
    return torch_file(tmp_path / "growing.parquet", range(30, 300, 13))


def said(capsys, *words, status=0):
    assert main(["tune", *words, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_the_line_is_that_of_the_settings_with_the_least_memory(growing, capsys):
    found = said(capsys, growing)
    assert found["line"] == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    now, proposed = replay(growing, "torch"), replay(growing, "torch", expandable_segments=True)
    assert found["now"]["peak_reserved_bytes"] == now.peak_reserved
    assert found["proposed"]["peak_reserved_bytes"] == proposed.peak_reserved < now.peak_reserved
    assert main(["tune", growing]) == 0
    assert capsys.readouterr().out.startswith(f"{found['line']}   # ")


def test_under_a_device_the_settings_must_fit(growing, capsys):
    need = replay(growing, "torch", expandable_segments=True).peak_reserved
    found = said(capsys, growing, "--device", str(need))
    assert (found["proposed"]["fits"], found["limit_bytes"]) == (True, need)
    share = said(capsys, growing, "--device", str(4 * need), "--fraction", "0.25")
    assert share["limit_bytes"] == need
    assert share["proposed"]["options"]["device"] == 4 * need
    assert not said(capsys, growing, "--device", "100MiB", status=1)["line"]


def test_where_nothing_saves_the_settings_stay(tmp_path, capsys):
    assert said(capsys, torch_file(tmp_path / "even.parquet", [40] * 6))["line"] is None


def test_options_of_the_newest_pytorch_are_a_line_of_their_own(tmp_path, capsys):
    path = torch_file(tmp_path / "small.parquet", [7])
    found = said(capsys, path)
    assert found["line"] is None
    assert found["proposed_for_newest"]["options"] == {"large_segment_size": 12 * MiB}
    assert found["proposed_for_newest"]["peak_reserved_bytes"] == 12 * MiB
    assert main(["tune", path]) == 0
    assert "export PYTORCH_CUDA_ALLOC_CONF=large_segment_size_mb:12 " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("family", "first", "then"),
    [
        ("cupy", "cupy.cuda.set_allocator(", "MemoryAsyncPool"),
        ("rmm", "rmm.mr.set_current_device_resource(", "rmm.mr."),
    ],
)
def test_cupy_and_rmm_have_the_resources_of_their_own(tmp_path, capsys, family, first, then):
    origin = Origin(format="rmm" if family == "rmm" else "", pools=(Pool(f"{family} 0"),))
    path = torch_file(tmp_path / "file.parquet", range(30, 300, 13), origin)
    found = said(capsys, path)
    assert found["line"] is None or (found["line"].startswith(first) and then in found["line"])
    assert found["settings_tried"] >= 2
    assert found["compared_with_a_real_allocator"] is (found["line"] is None)
    assert (found["rules_of_the_job"] is None) == (family == "rmm")
    if family == "rmm":
        assert found["why_not_served"]
        sizes = [0, *(int(share * 583 * MiB) for share in (1, 1.5))]
        peaks = [replay(path, "rmm_pool", initial_pool_size=size).peak_reserved for size in sizes]
        assert found["proposed"]["peak_reserved_bytes"] <= min(peaks)


@pytest.mark.parametrize(("pools", "stream"), [(1, 0), (2, 0), (3, 0), (3, 65_535)])
def test_graph_pools_are_served_apart_and_as_one(tmp_path, capsys, pools, stream):
    """Also where a stream has the greatest number: a pool and a stream together have a small one."""
    heap = PlainHeap(1 << 34)
    for pool in range(pools):  # captured one after the other: each frees what it allocated
        held = heap.allocate(64 * MiB, f"graph {pool}", private_pool=f"0.{pool + 1}")
        heap.free(held)
    events = heap.trace().read(0, len(heap.events)).copy()
    events["stream"][-4:] = stream  # of the last graph
    path = str(Trace.from_events(events, heap.labels, TORCH).save(tmp_path / "graphs.parquet"))
    found = said(capsys, path)["graph_pools"]
    if pools == 1:
        assert found is None
    else:
        shared = (2 if stream else 1) * 64 * MiB  # another stream has caches of its own
        assert found == {"number": pools, "apart": pools * 64 * MiB, "shared": shared}


def test_a_shell_reads_the_line_as_it_is_meant():
    line = setting_line(policy_of("torch:roundup_power2_divisions=[4:1,>:4]"), "")
    assert shlex.split(line) == ["export", "PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:[4:1,>:4]"]


@pytest.mark.parametrize("policy", ["torch", "torch:max_split_size=512MiB"])
def test_the_line_turns_off_what_the_proposal_turns_off(policy):
    line = setting_line(policy_of(policy), "torch", policy_of("torch:expandable_segments=true"))
    settings = dict(each.split(":") for each in line.partition("=")[2].split(","))
    assert settings.pop("expandable_segments") == "False"
    assert settings == ({} if policy == "torch" else {"max_split_size_mb": "512"})


@pytest.mark.parametrize(
    ("growth", "collection", "fraction"), [(True, False, 0), (False, True, 0), (True, True, 0.25)]
)
def test_the_line_of_tensorflow_sets_what_the_proposal_has(growth, collection, fraction):
    options = {"allow_growth": growth, "garbage_collection": collection, "fragmentation_fraction": fraction}
    line, _, beside = setting_line(policy_of("bfc", **options), Family.TENSORFLOW).partition("  # and ")
    variables = dict(word.split("=") for word in shlex.split(line)[1:])
    gpus = simulate_gpus(["1GiB"], memory="addresses")
    settings = Settings(gpus, environment=variables)
    if beside:
        name, _, value = beside.partition("=")
        settings.set_gpu_options(**{name.rpartition(".")[2]: float(value)})
    (planned,) = (each for each in settings.plan() if each.name.device_type == "GPU")
    assert {key: vars(planned.options)[key] for key in options} == options


def test_the_lines_of_our_own_heap_and_of_jax_set_what_the_proposal_has():
    grows = policy_of("bfc:allow_growth=true,garbage_collection=true")
    made = eval(setting_line(grows, Family.OWN), {"AllocatorOptions": AllocatorOptions})  # noqa: S307  our own line
    assert made == AllocatorOptions(allow_growth=True, garbage_collection=True)
    for policy, preallocates in ((grows, "false"), (policy_of("bfc"), "true")):
        variable = shlex.split(setting_line(policy, Family.JAX))[1]
        assert variable == f"XLA_PYTHON_CLIENT_PREALLOCATE={preallocates}"


@pytest.mark.parametrize(
    ("policy", "family", "names"),
    [
        (
            "rmm_pool:initial_pool_size=1GiB",
            Family.RMM,
            ["PoolMemoryResource", f"initial_pool_size={1 << 30}"],
        ),
        ("stream_ordered", Family.RMM, ["set_current_device_resource", "CudaAsyncMemoryResource"]),
        ("stream_ordered", Family.CUPY, ["cupy.cuda.set_allocator", "MemoryAsyncPool"]),
    ],
)
def test_the_line_of_a_resource_is_python(policy, family, names):
    line = setting_line(policy_of(policy), family)
    assert isinstance(ast.parse(line).body[0].value, ast.Call)
    assert all(name in line for name in names)


@needs_shared
def test_the_line_of_a_job_with_expandable_segments_says_whether_they_stay(capsys):
    path = str(SHARED / "real" / "snapshots" / "torch_code_location_2.6M.pickle")
    found = said(capsys, path, "--with-failed", "--device", "100GiB")
    options = found["proposed"]["options"]
    assert found["now"]["options"]["expandable_segments"]
    assert f"expandable_segments:{bool(options.get('expandable_segments'))}" in found["line"]
    needs = {
        each: replay(path, "torch", "100GiB", **{**options, "expandable_segments": each}).peak_reserved
        for each in (True, False)
    }
    assert needs[False] == found["proposed"]["peak_reserved_bytes"] < needs[True]


def test_tensorflow_s_settings_are_its_variables(capsys):
    found = said(capsys, str(short_file("lstm")))
    assert found["rules_of_the_job"]["policy"].startswith("bfc")
    assert found["line"] is None or found["line"].startswith("export TF_")


@pytest.mark.parametrize(
    "words", [("--fraction", "0.5"), ("--fraction", "2", "--device", "1GiB"), ("--device", "much")]
)
def test_a_device_that_is_none_is_refused_before_the_file_is_read(words, capsys):
    assert main(["tune", "there is no such file", *words]) == 1
    assert words[0].lstrip("-") in capsys.readouterr().err


def test_without_the_allocator_of_the_job_there_is_no_setting(tmp_path, capsys):
    path = torch_file(tmp_path / "unknown.parquet", [40] * 3, Origin(pools=(Pool("heap"),)))
    assert main(["tune", path]) == 1
    assert "does not say which allocator" in capsys.readouterr().err

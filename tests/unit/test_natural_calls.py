"""The calls that a user tries first: they work, or the error says what to call."""

from importlib import import_module

import numpy as np
import pytest
from processes import needs_compiled
from shared import sample_trace

import bfcviz
from bfcviz.cli.command import COMMANDS
from bfcviz.errors import LiveError
from bfcviz.model.find_steps import opening

OOM = bfcviz.sample("oom_log")


def test_a_picture_of_a_file_alone_is_where_the_inspector_opens():
    failed = bfcviz.open(OOM)
    pool, step = opening(failed)
    assert bfcviz.draw(OOM).facts == bfcviz.draw("region_map", failed, step, pool=pool).facts
    trace = sample_trace("conv")
    assert bfcviz.draw(trace).facts == bfcviz.draw("region_map", trace, bfcviz.peak(trace)).facts
    assert (
        bfcviz.draw("bin_histogram", OOM).facts == bfcviz.draw("bin_histogram", failed, step, pool=pool).facts
    )


def test_a_picture_of_what_is_in_memory_shows_it_now():
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), "64MiB")
    heap.free(heap.allocate("20MiB"))
    assert "step 5 of 5" in bfcviz.draw("region_map", heap).facts
    assert bfcviz.peak(heap) == 3


def test_a_picture_in_either_order():
    trace = sample_trace("conv")
    one, other = bfcviz.draw("bin_histogram", trace, 1000), bfcviz.draw(trace, "bin_histogram", 1000)
    assert one.to_json() == other.to_json()


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json"])
def test_a_trace_is_exported(suffix, tmp_path):
    path = bfcviz.export(sample_trace("conv"), tmp_path / f"events.{suffix}", start=0, stop=100)
    assert path.stat().st_size > 0
    if suffix == "parquet":
        assert len(bfcviz.open(path)) == 100


def test_a_figure_is_exported_as_before(tmp_path):
    path = bfcviz.export(bfcviz.draw(sample_trace("conv")), tmp_path / "map.csv")
    assert path.read_text().count("\n") > 10


def test_draw_takes_the_names_of_steps_that_holders_takes():
    trace = sample_trace("conv")
    named, numbered = (
        bfcviz.draw(trace, step="worst"),
        bfcviz.draw(trace, step=bfcviz.worst_fragmentation(trace)),
    )
    assert named.facts == numbered.facts
    with pytest.raises(ValueError, match="'peak'"):
        bfcviz.draw(trace, step="highest")


def test_the_image_of_a_trace_is_the_picture_that_draw_makes(tmp_path, monkeypatch):
    exported = []
    monkeypatch.setattr(
        import_module("bfcviz.figures.export"),
        "export",
        lambda *given, **options: exported.append((*given, options)),
    )
    trace = sample_trace("conv")
    bfcviz.export(trace, tmp_path / "map.png", style="paper")
    ((picture, path, options),) = exported
    assert (path, options) == (tmp_path / "map.png", {"style": "paper"})
    assert picture.facts == bfcviz.draw(trace).facts


def test_a_picture_at_a_prompt_is_a_line():
    assert repr(bfcviz.draw(sample_trace("conv"))).startswith("<Picture: Region map;")


def test_save_says_where_other_formats_are_written(tmp_path):
    with pytest.raises(bfcviz.BfcvizError, match=r"bfcviz\.export"):
        sample_trace("conv").save(tmp_path / "x.csv")


GUESSES = ["diff", "inspect", "load", "plot", "read", "save", "show", "summary", "timeline"]
NO_FUNCTION = ["mcp", "whatif"]  # a server, and the name of a package


@pytest.mark.parametrize("name", sorted({*GUESSES, *COMMANDS} - {*bfcviz.__all__, *NO_FUNCTION}))
def test_a_command_of_the_shell_names_what_python_has(name):
    with pytest.raises(AttributeError, match=r"call (bfcviz\.\w+)") as error:
        getattr(bfcviz, name)
    named = str(error.value).partition("call bfcviz.")[2].split("(")[0]
    assert hasattr(bfcviz, named)


@pytest.mark.parametrize(
    ("framework", "policy"), [("tensorflow", "bfc"), ("PyTorch", "torch"), ("jax", "xla")]
)
def test_the_name_of_a_framework_names_its_policy(framework, policy):
    with pytest.raises(bfcviz.BfcvizError, match=f"did you mean '{policy}'"):
        bfcviz.policy_of(framework)


def test_any_other_name_is_plainly_missing():
    with pytest.raises(AttributeError) as error:
        bfcviz.no_such_name  # noqa: B018
    assert "call" not in str(error.value)


@needs_compiled
def test_holders_by_line_of_code():
    with bfcviz.watch("numpy", dashboard=False) as watched:
        with bfcviz.label("forward"):
            kept = [np.ones(1 << 16) for _ in range(3)]
        found = bfcviz.holders(watched.trace, by="line")
        names = {found.names[row] for row in range(len(found.rows))}
    assert any("test_natural_calls.py:" in name for name in names)
    assert not any(name == "forward" for name in names)
    assert len(kept) == 3


@needs_compiled
def test_a_function_is_watched_at_each_call(tmp_path):
    @bfcviz.watch("numpy", dashboard=False, path=tmp_path / "run")
    def work(size):
        return np.ones(size).sum()

    assert (work(1 << 16), work(1 << 17)) == (1 << 16, 1 << 17)
    assert work.watch.folder == tmp_path / "run-2"
    assert max(work.watch.trace.read(0, len(work.watch.trace))["requested"]) == 8 << 17
    assert len(bfcviz.open(tmp_path / "run")) > 0


@needs_compiled
def test_a_folder_that_is_used_gets_a_number(tmp_path):
    folders = []
    for _ in range(3):
        with bfcviz.watch("numpy", dashboard=False, path=tmp_path / "run") as watched:
            np.ones(1000)
        folders.append(watched.folder.name)
    assert folders == ["run", "run-2", "run-3"]
    assert bfcviz.watch("numpy").folder is None


def test_a_function_without_brackets_is_told_to_add_them():
    with pytest.raises(LiveError, match=r"@bfcviz\.watch\(\)"):
        bfcviz.watch(len)


def test_a_framework_given_twice_is_refused():
    with pytest.raises(LiveError, match="numpy"):
        bfcviz.watch("numpy", numpy=False)


@needs_compiled
def test_a_phase_is_named_by_its_function():
    @bfcviz.phase
    def forward():
        return np.ones(1 << 16)

    with bfcviz.watch("numpy", dashboard=False) as watched:
        kept = forward()
        names = {label.name for label in watched.trace.labels}
    assert any(name.endswith("forward begins") for name in names)
    assert kept.sum() == 1 << 16

"""The bundled samples: each has a name and opens; the failure is the same in its log and its dump."""

from pathlib import Path

import pytest
from shared import sample_trace

import bfcviz
from bfcviz import samples
from bfcviz.analysis.diagnosis import Verdict
from bfcviz.errors import BfcvizError
from bfcviz.importers.file_format import Format

FORMATS = {"oom_dump": Format.MEMORY_DUMP, "oom_log": Format.TENSORFLOW_LOG}


def test_every_file_has_a_name() -> None:
    files = {*Path(samples.__file__).parent.glob("*.gz")}
    assert {bfcviz.sample(name) for name in samples.names()} == files
    assert len(files) == len(samples.names())


@pytest.mark.parametrize("name", samples.names())
def test_every_sample_opens(name: str) -> None:
    assert sample_trace(name).origin.format == FORMATS.get(name, Format.XPLANE)


def test_runs_have_a_history() -> None:
    assert {*samples.names()} - {*samples.run_names()} == {*FORMATS}


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(BfcvizError, match=r"no sample 'oom' is bundled; samples: .*oom_dump, oom_log"):
        bfcviz.sample("oom")


def test_a_run_is_found_in_the_second_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "_FOLDER", tmp_path)
    with pytest.raises(BfcvizError, match="pip install bfcviz-samples"):
        bfcviz.sample("lstm")
    (tmp_path / "bfcviz_samples").mkdir()
    for name in ("__init__.py", "lstm.xplane.pb.gz"):
        (tmp_path / "bfcviz_samples" / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert bfcviz.sample("lstm") == tmp_path / "bfcviz_samples" / "lstm.xplane.pb.gz"


def test_the_log_and_the_dump_are_one_heap() -> None:
    heaps = []
    for name in FORMATS:
        trace = sample_trace(name)
        model = bfcviz.Model(trace)
        model.seek(len(trace))
        heaps.append(model.chunks()[["address", "size", "in_use"]].tolist())
    assert heaps[0] == heaps[1]
    assert len(heaps[0]) == 1_141


def test_the_request_that_failed_is_in_the_profile_of_the_same_program() -> None:
    failed = bfcviz.why(bfcviz.sample("oom_log"))
    assert failed.verdict is Verdict.FRAGMENTATION
    trace = sample_trace("transformer")
    events = trace.read(0, len(trace))
    same = events[events["requested"] == 424 * 500 * 4]  # float [424,500], as the log prints
    assert {trace.labels.name(int(label)) for label in same["label"]} >= {failed.recorded.op}

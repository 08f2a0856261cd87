"""Files with events that are missing or damaged: all commands refuse the same, or say what is missing first."""

import json
from dataclasses import replace

import numpy as np
import pytest
from heaps import MIB, new_heap

from bfcviz.cli import main
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.trace_from_source import trace_of
from bfcviz.whatif.requests import requests_of

POLICY = ("--policy", "bfc:allow_growth=true")
COMMANDS = {
    "why": (),
    "holders": (),
    "fit": POLICY,
    "whatif": POLICY,
    "tune": (),
    "plan": ("--seconds", "0"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A trace with a hole in the middle, and one without its end."""
    folder = tmp_path_factory.mktemp("files")
    heap = new_heap(64 * MIB, allow_growth=True)
    held = [heap.allocate(size << 10) for size in range(100, 120)]
    for address in held:
        heap.free(address)
        heap.allocate(70_000)
    whole = trace_of(heap)
    events = whole.read(0, len(whole))
    middle = int(np.flatnonzero(events["kind"] == Kind.FREE)[9])
    parts = {
        "hole": (np.concatenate([events[:middle], events[middle + 1 :]]), Status.COMPLETE, ()),
        "cut": (events[:middle], Status.TRUNCATED, ("the last block is missing",)),
    }
    for name, (found, status, reasons) in parts.items():
        numbered = found.copy()
        numbered["seq"] = np.arange(len(found))
        origin = replace(whole.origin, status=status, reasons=reasons)
        Trace.from_events(numbered, whole.labels, origin).save(folder / f"{name}.parquet")
    return folder, middle


@pytest.mark.parametrize("json_too", [False, True])
def test_events_that_contradict_each_other_are_refused_by_all_with_one_error(files, capsys, json_too):
    folder, middle = files
    said = set()
    for command, words in COMMANDS.items():
        assert main([command, str(folder / "hole.parquet"), *words, *(["--json"] if json_too else [])]) == 1
        out, error = capsys.readouterr()
        assert not out
        said.add(error)
    assert len(said) == 1
    assert f":{middle} " in said.pop()


def test_what_the_error_advises_opens_the_events_before(files, tmp_path, capsys):
    folder, middle = files
    part = tmp_path / "part.parquet"
    assert main(["convert", str(folder / "hole.parquet"), "--range", f":{middle}", "-o", str(part)]) == 0
    assert len(requests_of(Trace.open(part))) == len(requests_of(Trace.open(folder / "cut.parquet")))
    assert main(["why", str(part)]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "why"])
def test_a_truncated_file_is_answered_and_said_to_be_so_first(command, files, capsys):
    path = files[0] / "cut.parquet"
    reason = "the last block is missing"
    assert main([command, str(path), *COMMANDS[command]]) == 0
    out = capsys.readouterr().out
    assert reason in " ".join(out.partition("\n\n")[0].split())
    assert " ".join(out.split()).count(reason) == 1
    assert main([command, str(path), *COMMANDS[command], "--json"]) == 0
    assert reason in json.dumps(json.loads(capsys.readouterr().out))

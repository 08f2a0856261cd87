"""Folders with the recordings of several processes, for what reads one of them: it says which, and names the others."""

import warnings

import pytest
from heaps import new_heap

import bfcviz
from bfcviz.cli import main
from bfcviz.events.storage.recording import Recording
from bfcviz.importers.open_trace import OneOfSeveral

NAMES = ("SpawnPoolWorker-1", "SpawnPoolWorker-2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several") / "run"
    for number, place in enumerate((folder, *(folder / name for name in NAMES))):
        with Recording(place) as recording:
            heap = new_heap(log=recording.log, labels=recording.labels)
            for _ in range(number + 1):
                heap.free(heap.allocate(4096 * number + 256))
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["convert", "-o", "one.parquet"],
        ["export", "-o", "one.svg"],
        ["fit"],
    ],
)
def test_commands_name_the_others(words, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command, *rest = words
    assert main([command, str(folder), *rest]) == 0
    said = capsys.readouterr().err
    assert all(str(folder / name) in said for name in NAMES)
    assert main([command, str(folder / NAMES[0]), *rest, *(["--force"] if command == "convert" else [])]) == 0
    assert NAMES[1] not in capsys.readouterr().err


@pytest.mark.parametrize("words", [["info"], ["why"], ["holders"], ["report", "--format", "md"]])
def test_commands_that_read_all_name_none_as_left_out(words, folder, capsys):
    assert main([*words, str(folder)]) == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    "function", [bfcviz.open, bfcviz.holders, bfcviz.peak, bfcviz.requests_of, bfcviz.Inspector]
)
def test_functions_warn(function, folder):
    with pytest.warns(OneOfSeveral) as told:
        function(folder)
    assert all(str(folder / name) in str(told[0].message) for name in NAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(folder / NAMES[0])


def test_opening_all_warns_of_nothing(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(bfcviz.open_all(folder).ranks) == 3

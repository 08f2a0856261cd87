"""The name of a process, and which process is a launcher."""

import sys

import pytest

from bfcviz.live.process_names import is_launcher, name_of_process


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, ""),
        ({"RANK": "12", "SLURM_PROCID": "3"}, "rank-12"),
        ({"SLURM_PROCID": "3"}, "rank-3"),
        ({"OMPI_COMM_WORLD_RANK": "4"}, "rank-4"),
        ({"PMI_RANK": "5"}, "rank-5"),
        ({"RANK": "../x"}, ""),
    ],
)
def test_the_rank_names_a_process(variables, name):
    assert name_of_process(variables) == name


def test_multiprocessing_names_its_workers(monkeypatch):
    import multiprocessing  # noqa: PLC0415

    monkeypatch.setattr(multiprocessing.current_process(), "name", "SpawnProcess-3")
    assert name_of_process({"RANK": "1"}) == "rank-1-SpawnProcess-3"
    assert name_of_process({}) == "SpawnProcess-3"


@pytest.mark.parametrize(
    ("words", "program", "launches"),
    [
        (["python", "/bin/torchrun", "train.py"], "/bin/torchrun", True),
        (["python", "-m", "torch.distributed.run", "train.py"], "-m", True),
        (["python", "-m", "torch.distributed.run"], "/lib/torch/distributed/run.py", True),
        (["python", "train.py", "-m", "torchrun"], "train.py", False),
        (["python", "-m", "train"], "-m", False),
        (["python"], "", False),
    ],
)
def test_torchrun_is_known(words, program, launches, monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(sys, "orig_argv", words)
    monkeypatch.setattr(sys, "argv", [program])
    assert is_launcher() is launches
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert not is_launcher()

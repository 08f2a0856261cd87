"""The ranks of one job: read by another process, on one page, and recorded with `bfcviz record`."""

import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from processes import COMPILED
from shared import ROOT
from unit.analysis.built import save_job

import bfcviz
from bfcviz.cli import main
from bfcviz.cli.view import dashboard, prepare

WORKERS = """
import multiprocessing, numpy
def work(number):
    kept = []
    try:
        for _ in range(40 if number == 3 else 4):
            kept.append(numpy.ones(1 << 20, numpy.uint8))
    except MemoryError:
        pass
if __name__ == "__main__":
    processes = [multiprocessing.Process(target=work, args=(number,)) for number in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
"""


@pytest.fixture
def job(tmp_path):
    return save_job(tmp_path / "job")


def test_an_executor_reads_the_files(job):
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        found = bfcviz.open_all(job, executor=executor)
    assert found.ranks == bfcviz.open_all(job).ranks


def test_the_page_of_several_ranks_opens_the_worst(job):
    for file in (str(job), "\n".join(str(job / f"rank{rank}.parquet") for rank in (0, 2))):
        prepare(file)
        page = dashboard(file, "light")
        worst = page.ranks.worst.name
        assert (page.menu.value, page.inspector._trace.path) == (worst, page.ranks.worst.place.file)
        page.menu.value = "rank 0"
        assert page.inspector._trace.path == job / "rank0.parquet"
        (job / "rank0.parquet").rename(job / "gone")
        page.menu.value = worst
        page.menu.value = "rank 0"
        assert (page.inspector, "rank0.parquet" in page.status.value) == (None, True)
        (job / "gone").rename(job / "rank0.parquet")
        page.close()
        page.close()


def test_a_worker_that_ran_out_of_memory_is_told(tmp_path, capsys):
    """Eight processes under `bfcviz record`: one has a failed request, their parent allocates nothing."""
    (tmp_path / "work.py").write_text(WORKERS)
    folder = tmp_path / "run.bfc"
    command = [
        "record",
        "-o",
        folder,
        "--numpy",
        "--limit",
        "16MiB",
        "--",
        sys.executable,
        tmp_path / "work.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | ({} if COMPILED else {"BFCVIZ_UNCOMPILED": "1"})
    run = subprocess.run(
        [sys.executable, "-m", "bfcviz", *command],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "out of memory: Process-4" in run.stderr
    assert main(["why", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["verdict"], each["ranks"]) for each in found["failures"]] == [("capacity", ["Process-4"])]
    assert (len(found["ranks"]), found["ranks"][0]["rank"]) == (9, 4)
    assert {rank["host"] for rank in found["ranks"]} == {os.uname().nodename}

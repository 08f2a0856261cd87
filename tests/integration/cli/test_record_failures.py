"""`bfcviz record` if the recording cannot be written: the program runs on, one line says why, the status is 1."""

import shutil
import subprocess
import sys

import pytest
from integration.cli.test_record import recording, requests_in

from bfcviz.events.origin import Status
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace

BEGIN = """
import resource, shutil, sys
def full(at):  # larger files fail, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (at, resource.RLIM_INFINITY))
"""
WORK = "import numpy as np; kept = [np.empty(5000, np.uint8) for _ in range(10)]; "
END = "print('done'); sys.exit(int(sys.stdin.read()))"


def run(code, folder, **options):
    return recording("--", sys.executable, "-c", BEGIN + code + END, folder=folder, **options)


@pytest.mark.parametrize(
    ("code", "fact", "own"),
    [
        ("full(10); " + WORK, "nothing was recorded: ", 0),
        (WORK + "full(10); ", "complete events read", 0),
        (WORK + "shutil.rmtree({folder!r}); ", "removed", 0),
        (WORK + "shutil.rmtree({folder!r}); ", "removed", 3),
    ],
    ids=["full at the beginning", "full at the end", "removed", "of a program that failed"],
)
def test_a_recording_that_cannot_be_written(code, fact, own, tmp_path):
    folder = tmp_path / "run.bfc"
    done = run(code.format(folder=str(folder)), folder, input=str(own))
    assert (done.returncode, done.stdout) == (own or 1, "done\n")
    assert len(done.stderr.splitlines()) == 1
    assert fact in done.stderr
    assert "imported numpy" not in done.stderr
    assert folder.exists() == ("read" in fact)


def test_a_disk_that_becomes_full(tmp_path):
    folder = tmp_path / "run.bfc"
    many = "[np.empty(5000, np.uint8) for _ in range(20_000)]; "
    done = run("full(1 << 20); " + WORK + many, folder)
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert len(done.stderr.splitlines()) == 1
    assert "File too large (ulimit -f" in done.stderr
    trace = Trace.open(folder)
    assert (len(trace), trace.origin.status) == (1 << 14, Status.TRUNCATED)
    assert folder.joinpath("events.bin").stat().st_size == 1 << 20


def test_a_small_limit_of_file_sizes_keeps_what_fits(tmp_path):
    folder = tmp_path / "run.bfc"
    many = "[np.empty(5000, np.uint8) for _ in range(20_000)]; "
    done = run("full(600 << 10); " + WORK + many, folder)
    assert (done.returncode, done.stdout) == (1, "done\n")
    trace = Trace.open(folder)
    assert (len(trace), trace.origin.status) == (600 * 1024 // 64, Status.TRUNCATED)
    assert 5000 in requests_in(folder)


def test_a_file_that_is_truncated_beneath_the_program(tmp_path):
    folder = tmp_path / "run.bfc"
    many = "[np.empty(5000, np.uint8) for _ in range(20_000)]; "
    cut = f"import os; os.truncate({str(folder / 'events.bin')!r}, 64 * 3); "
    done = run(WORK + cut + many, folder)
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert len(done.stderr.splitlines()) == 1
    assert "3 events" in done.stderr
    assert "truncated" in done.stderr


def test_another_recording_in_its_place_is_left_alone(tmp_path):
    folder = tmp_path / "run.bfc"
    with Recording(tmp_path / "other", details={"process": 1, "mine": True}):
        pass
    code = f"shutil.rmtree({str(folder)!r}); shutil.copytree({str(tmp_path / 'other')!r}, {str(folder)!r}); "
    done = run(WORK + code, folder)
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert len(done.stderr.splitlines()) == 1
    assert "events, " not in done.stderr
    for name in ("origin.json", "labels.jsonl"):
        assert (folder / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_a_recording_that_is_not_the_programs_is_not_reported_as_its_own(tmp_path):
    folder = tmp_path / "run.bfc"
    with Recording(tmp_path / "other", details={"process": 1}):
        pass
    done = recording("--", "cp", "-r", f"{tmp_path / 'other'}/.", folder, folder=folder)
    assert done.returncode == 1
    assert "events, " not in done.stderr
    assert "process 1" in done.stderr


def test_a_second_recorder_of_the_same_folder_is_refused(tmp_path):
    folder, proof = tmp_path / "run.bfc", tmp_path / "proof"
    first = "import sys; print('begun', flush=True); sys.stdin.read(); import numpy; numpy.empty(5000, 'u1')"
    command = [sys.executable, "-m", "bfcviz", "record", "-o", folder, "--", sys.executable, "-c", first]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as recorder:
        assert recorder.stdout.readline() == "begun\n"
        for words in ([], ["--force"]):
            done = recording(*words, "--", "touch", proof, folder=folder)
            assert (done.returncode, proof.exists()) == (1, False)
            assert "being recorded to by another process" in done.stderr
        _, said = recorder.communicate("", timeout=150)
    assert recorder.returncode == 0
    assert "complete" in said
    assert 5000 in requests_in(folder)


def test_without_a_temporary_folder_the_program_does_not_run(tmp_path):
    proof = tmp_path / "proof"
    code = (
        "import sys, tempfile; tempfile.tempdir = '/nowhere'\n"
        "from bfcviz.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    words = ["record", "-o", tmp_path / "run", "--", "touch", proof]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, proof.exists()) == (1, False)
    assert done.stderr.startswith("bfcviz: error: ")
    assert not (tmp_path / "run").exists()


def test_a_recording_that_cannot_begin_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.write_bytes", full)
        with pytest.raises(ValueError, match="No space left"):
            Recording(tmp_path / "run")
    assert [*(tmp_path / "run").iterdir()] == []
    Recording(tmp_path / "run").close()
    shutil.rmtree(tmp_path / "run")

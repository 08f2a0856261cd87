"""The folder of `bfcviz record`: it is new, or replaces an old recording, which needs --force."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shared import ROOT

from bfcviz.cli import main
from bfcviz.cli.record import prepare_folder, set_aside
from bfcviz.errors import FileError, OtherFiles
from bfcviz.events.label_table import Labels
from bfcviz.events.schema import Kind
from bfcviz.events.storage.files import EARLIER
from bfcviz.events.storage.recording import Recording
from bfcviz.live.recorded_process import CLAIM

PYTHON = sys.executable


def test_a_folder_is_made_with_those_above_it(tmp_path):
    prepare_folder(tmp_path / "a" / "b", force=False)
    prepare_folder(tmp_path / "a" / "b", force=False)
    assert [*(tmp_path / "a" / "b").iterdir()] == []


def test_other_files_are_never_replaced(tmp_path):
    kept = ("file", "folder/notes.txt", "half/origin.json", "views/window-1/notes.txt")
    for name in kept:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    for name in ("file", "folder", "half", "views"):
        with pytest.raises(FileError, match="-o"):
            prepare_folder(tmp_path / name, force=True)
    assert [(tmp_path / name).read_text() for name in kept] == ["mine"] * 4


def test_a_recording_is_replaced_with_force(tmp_path):
    with Recording(tmp_path / "run"), pytest.raises(FileError, match="another process"):
        prepare_folder(tmp_path / "run", force=True)
    with pytest.raises(FileError, match="--force"):
        prepare_folder(tmp_path / "run", force=False)
    replace_by_an_event(tmp_path / "run")


def replace_by_an_event(folder):
    """Replace the recording in a folder by a new one; what was there is kept until its first event."""
    before = tree(folder)
    earlier = prepare_folder(folder, force=True)
    assert earlier.is_kept()
    with Recording(folder, labels=Labels()) as recording:
        assert earlier.is_kept()
        recording.log.put(Kind.MARK, 0, 0, 0, 1, 0, 0, 0, 0, 0, -1, 0)
        assert not earlier.is_kept()
    earlier.settle()
    assert {path.name for path in folder.iterdir()} == {"events.bin", "labels.jsonl", "origin.json"}
    assert tree(folder) != before


def test_without_an_event_the_earlier_recording_stays(tmp_path):
    run = tmp_path / "run"
    with Recording(run, labels=Labels()) as recording:
        recording.log.put(Kind.MARK, 0, 0, 0, 1, 0, 0, 0, 0, 0, -1, 0)
    before = tree(run)
    earlier = prepare_folder(run, force=True)
    Recording(run).close()
    Recording(run / "rank-1").close()
    assert earlier.is_kept()
    earlier.settle()
    assert tree(run) == before


def test_after_a_kill_the_earlier_recording_comes_back(tmp_path):
    run = tmp_path / "run"
    Recording(run).close()
    before = tree(run)
    set_aside(run, force=True)._has_ended.set()  # and no more: `bfcviz record` was killed
    assert tree(run) != before
    with pytest.raises(FileError, match="--force"):
        prepare_folder(run, force=False)
    assert tree(run) == before


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("words", [["pyhton", "x.py"], [PYTHON, "no_such_file.py"], [PYTHON, "-c", "3/0"]])
def test_a_program_that_does_not_start_replaces_nothing(words, link, tmp_path, capfd):
    run, given = tmp_path / "run", tmp_path / ("link" if link else "run")
    Recording(run).close()
    if link:
        given.symlink_to(run)
    before = tree(run)
    assert main(["record", "--force", "-o", str(given), "--", *words]) != 0
    assert tree(run) == before
    assert "is kept" in capfd.readouterr().err or words[0] == "pyhton"


def tree(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "other", ["notes.txt", "notes/monday.txt", ".git/config", "window-000001/a.xplane.pb"]
)
def test_a_recording_beside_other_files_is_never_replaced(other, tmp_path, capsys):
    run = tmp_path / "run"
    Recording(run).close()
    (run / other).parent.mkdir(exist_ok=True)
    (run / other).write_text("mine")
    before = tree(run)
    proof = tmp_path / "proof"
    assert main(["record", "--force", "-o", str(run), "--", "touch", str(proof)]) == 1
    assert other.split("/")[0] in capsys.readouterr().err
    assert (tree(run), proof.exists()) == (before, False)
    with pytest.raises(OtherFiles) as caught:
        prepare_folder(run, force=True)
    assert caught.value.names == (other.split("/")[0],)


def test_a_folder_with_the_name_of_a_recordings_file_is_kept(tmp_path):
    run = tmp_path / "run"
    Recording(run).close()
    (run / "events.bin").mkdir()
    (run / "events.bin" / "notes.txt").write_text("mine")
    with pytest.raises(OtherFiles, match=r"events\.bin"):
        prepare_folder(run, force=True)
    assert (run / "events.bin" / "notes.txt").read_text() == "mine"


def test_links_are_removed_and_their_targets_stay(tmp_path):
    run = tmp_path / "run"
    Recording(run).close()
    (tmp_path / "elsewhere.bin").write_text("mine")
    (run / "events.bin").symlink_to(tmp_path / "elsewhere.bin")
    (tmp_path / "link").symlink_to(run)
    replace_by_an_event(tmp_path / "link")
    assert not (run / "events.bin").is_symlink()
    assert (tmp_path / "elsewhere.bin").read_text() == "mine"


@pytest.mark.parametrize(
    "other", ["window-000001/notes.txt", "window-000001/plugins/notes.txt", "window-000002/x"]
)
def test_windows_beside_other_files_are_never_replaced(other, tmp_path):
    run = tmp_path / "run"
    for path in (run / "window-000001/plugins/host.xplane.pb", run / other):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    before = tree(run)
    with pytest.raises(OtherFiles):
        prepare_folder(run, force=True)
    assert tree(run) == before


def test_tensorflows_windows_are_a_recording_too(tmp_path):
    for window in ("window-000001", "window-000002"):
        (tmp_path / "run" / window).mkdir(parents=True)
        (tmp_path / "run" / window / "host.xplane.pb").touch()
    claim = tmp_path / "run" / CLAIM  # of the process that records there
    claim.touch()
    with pytest.raises(FileError, match="more than a recording"):
        prepare_folder(tmp_path / "run", force=True)
    claim.unlink()
    with pytest.raises(FileError, match="--force"):
        prepare_folder(tmp_path / "run", force=False)
    earlier = prepare_folder(tmp_path / "run", force=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [EARLIER]
    (tmp_path / "run" / "window-000001").mkdir()
    earlier.settle()
    assert [path.name for path in (tmp_path / "run").rglob("*")] == ["window-000001"]


def test_a_program_that_removes_the_folder_keeps_its_exit_status(tmp_path, capfd):
    folder = tmp_path / "run"
    assert main(["record", "-o", str(folder), "--", "sh", "-c", f"rmdir {folder}; exit 7"]) == 7
    assert "nothing was recorded" in capfd.readouterr().err


def test_with_an_unwritable_folder_the_program_does_not_run(tmp_path, capsys):
    (tmp_path / "file").touch()
    proof = tmp_path / "proof"
    assert main(["record", "-o", str(tmp_path / "file" / "run"), "--", "touch", str(proof)]) == 1
    assert "Not a directory" in capsys.readouterr().err
    assert not proof.exists()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--"],
        ["--limit", "much", "--", "true"],
        ["--nothing", "--", "true"],
        ["--limit", "90", "MiB", "--", "true"],
    ],
)
def test_a_usage_error_is_status_2(words, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["record", "-o", str(tmp_path / "run"), *words])
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--numpy", "--cupy"], ["not allowed with"]),
        (["--jax", "--way=serve"], ["--jax --way serve", "'observe'"]),
        (["--way=observe"], ["--numpy --way observe", "'serve'"]),
        (["--torch", "--limit=1GiB"], ["PyTorch", "'observe'", "--limit", "--devices", "'serve'"]),
        (["--cupy", "--small=1KiB"], ["CuPy", "'serve'", "--small", "--fraction"]),
        (["--rmm", "--max-entries=9"], ["RMM", "'observe'", "--max-entries", "--mechanism", "--every"]),
        (["--rmm", "--mechanism=pool"], ["RMM", "--mechanism", "pool", "callback, log"]),
        (["--rmm", "--devices=first"], ["--devices", "first"]),
        (["--torch", "--mechanism=both"], ["--mechanism", "both", "pool", "replace"]),
        (["--torch", "--way=observe", "--mechanism=pool"], ["PyTorch", "'observe'", "--mechanism"]),
        (["--devices=0"], ["NumPy", "--devices", "--limit, --small, --capture"]),
    ],
)
def test_with_contradictory_options_the_program_does_not_run(words, says, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["record", "-o", str(tmp_path / "run"), *words, "--", "true"])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert [word for word in says if word not in error] == []
    assert [*tmp_path.iterdir()] == []


def test_an_interrupted_set_aside_loses_nothing(tmp_path):
    """Killed while it moved the earlier recording: what is left of that is no new recording."""
    folder = tmp_path / "run"
    with Recording(folder, labels=Labels()) as recording:
        recording.log.put(Kind.MARK, 0, 0, 0, 1, 0, 0, 0, 0, 0, -1, 0)
    before = tree(folder)
    partial = folder / f"{EARLIER}.partial"
    partial.mkdir()
    (folder / "origin.json").rename(partial / "origin.json")
    set_aside(folder, force=True).settle()
    assert tree(folder) == before


def test_report_folders_are_removed_once_no_process_is_left(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}

    def record(name, code):
        words = [PYTHON, "-m", "bfcviz", "record", "-o", tmp_path / name, "--", PYTHON, "-c", code]
        return subprocess.Popen(
            words,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def folders():
        return {*temporary.glob("*record-*")}

    def reports_of_next():
        """Which folders of reports are there while another program is recorded, besides its own."""
        before = folders()
        with record(f"next-{len([*tmp_path.iterdir()])}", "print(1)"):
            pass
        assert before >= folders()
        return folders()

    waits = "import os; print(os.getpid(), flush=True); input()"
    other = temporary / "bfcviz-record-with-a-file"
    other.mkdir()
    (other / "notes.txt").touch()
    with record("alive", waits) as alive, record("killed", waits) as killed:
        program = int(killed.stdout.readline())
        alive.stdout.readline()
        mine = folders()
        assert len(mine) == 3
        killed.kill()
        killed.wait()
        assert reports_of_next() == mine  # the program of the killed one still runs
        os.kill(program, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while Path(f"/proc/{program}/environ").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        left = reports_of_next()
        assert len(left) == 2
        assert left < mine
        alive.communicate("\n")
    assert folders() == {other}

"""Where `bfcviz record` writes: a new folder, never in the place of anything but a recording, and only if told to."""

import pytest

from bfcviz.cli import main
from bfcviz.cli.record import make_way
from bfcviz.errors import FileError
from bfcviz.events.recording import Recording
from bfcviz.live.record import CLAIM


def test_a_folder_is_made_with_those_above_it(tmp_path):
    make_way(tmp_path / "a" / "b", force=False)
    make_way(tmp_path / "a" / "b", force=False)
    assert [*(tmp_path / "a" / "b").iterdir()] == []


def test_what_is_no_recording_is_never_replaced(tmp_path):
    kept = ("file", "folder/notes.txt", "half/origin.json", "views/window-1/notes.txt")
    for name in kept:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    for name in ("file", "folder", "half", "views"):
        says = "is in the way" if name == "file" else "something else"
        with pytest.raises(FileError, match=f"{says}.*choose another with -o"):
            make_way(tmp_path / name, force=True)
    assert [(tmp_path / name).read_text() for name in kept] == ["mine"] * 4


def test_a_recording_is_replaced_if_that_is_wanted(tmp_path):
    with Recording(tmp_path / "run"), pytest.raises(FileError, match="being recorded to by another process"):
        make_way(tmp_path / "run", force=True)
    with pytest.raises(FileError, match=r"holds a recording already.*--force"):
        make_way(tmp_path / "run", force=False)
    make_way(tmp_path / "run", force=True)
    assert [*(tmp_path / "run").iterdir()] == []


def test_tensorflows_windows_are_a_recording_too(tmp_path):
    for window in ("window-000001", "window-000002"):
        (tmp_path / "run" / window).mkdir(parents=True)
        (tmp_path / "run" / window / "host.xplane.pb").touch()
    claim = tmp_path / "run" / CLAIM  # of the process that records there
    claim.touch()
    with pytest.raises(FileError, match="something else"):
        make_way(tmp_path / "run", force=True)
    claim.unlink()
    with pytest.raises(FileError, match=r"holds a recording already.*--force"):
        make_way(tmp_path / "run", force=False)
    make_way(tmp_path / "run", force=True)
    assert [*(tmp_path / "run").iterdir()] == []


def test_a_program_that_takes_the_folder_away_keeps_its_exit_status(tmp_path, capfd):
    folder = tmp_path / "run"
    assert main(["record", "-o", str(folder), "--", "sh", "-c", f"rmdir {folder}; exit 7"]) == 7
    assert "nothing was recorded" in capfd.readouterr().err


def test_a_place_that_cannot_be_written_to_is_said_before_anything_runs(tmp_path, capsys):
    (tmp_path / "file").touch()
    proof = tmp_path / "proof"
    assert main(["record", "-o", str(tmp_path / "file" / "run"), "--", "touch", str(proof)]) == 1
    assert "cannot hold a recording: Not a directory" in capsys.readouterr().err
    assert not proof.exists()


@pytest.mark.parametrize(
    "words", [[], ["--"], ["--limit", "much", "--", "true"], ["--nothing", "--", "true"]]
)
def test_what_is_not_understood_is_status_2(words, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["record", "-o", str(tmp_path / "run"), *words])
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--numpy", "--cupy"], "not allowed with"),
        (["--jax", "--way=serve"], "jax cannot be recorded by --way serve"),
        (["--way=observe"], "numpy cannot be recorded by --way observe"),
        (["--torch", "--limit=1GiB"], "--limit is of a heap that serves"),
        (["--cupy", "--small=1KiB"], "--small is NumPy's"),
        (["--rmm", "--stack"], "--stack cannot be had where rmm is recorded by --way observe"),
    ],
)
def test_options_that_contradict_each_other_are_said_before_anything_runs(words, says, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["record", "-o", str(tmp_path / "run"), *words, "--", "true"])
    assert left.value.code == 2
    assert says in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []

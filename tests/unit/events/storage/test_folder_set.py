import pytest

from bfcviz.errors import FileError
from bfcviz.events.storage.folder import MAIN, claim_subfolder, has_several, recordings_in
from bfcviz.events.storage.recording import Recording


def test_recordings_are_found_in_the_order_of_their_numbers(tmp_path):
    for name in ("rank-10", "rank-9", "rank-1", ".rank-0"):
        Recording(tmp_path / name).close()
    (tmp_path / "notes").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "rank-1")
    assert [*recordings_in(tmp_path)] == ["rank-1", "rank-9", "rank-10"]
    assert has_several(tmp_path)
    assert recordings_in(tmp_path)["rank-9"] == tmp_path / "rank-9"


def test_a_folder_that_is_a_recording_itself_comes_first(tmp_path):
    Recording(tmp_path / "run").close()
    assert (recordings_in(tmp_path / "run"), has_several(tmp_path / "run")) == (
        {MAIN: tmp_path / "run"},
        False,
    )
    Recording(tmp_path / "run" / "a").close()
    assert [*recordings_in(tmp_path / "run")] == [MAIN, "a"]


def test_a_missing_folder_has_none(tmp_path):
    assert (recordings_in(tmp_path / "gone"), has_several(tmp_path / "gone")) == ({}, False)


@pytest.mark.parametrize(
    ("name", "folder"),
    [("rank-0", "rank-0"), ("tcp://10.0.0.1:80", "tcp_10.0.0.1_80"), ("../..", "worker"), ("", "worker")],
)
def test_each_process_gets_a_folder_of_its_own(name, folder, tmp_path):
    places = [claim_subfolder(tmp_path, name) for _ in range(3)]
    assert places == [tmp_path / f"{folder}{end}" for end in ("", "-2", "-3")]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    with pytest.raises(FileError, match="gone"):
        claim_subfolder(tmp_path / "gone", "rank-0")

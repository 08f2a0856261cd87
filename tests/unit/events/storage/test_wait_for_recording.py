import threading

import pytest

from bfcviz.errors import BfcvizError, FileError
from bfcviz.events.storage.folder import await_recording, has_begun
from bfcviz.events.storage.recording import Recording


def test_a_recording_is_awaited_from_its_very_beginning(tmp_path):
    folder, found = tmp_path / "run", []

    def wait():
        await_recording(folder, 60)
        found.append(has_begun(folder))

    thread = threading.Thread(target=wait)
    thread.start()
    folder.mkdir()
    with Recording(folder):
        thread.join()
        await_recording(folder, 0)
    await_recording(folder, 0)
    assert found == [True]


@pytest.mark.parametrize("made", [False, True])
def test_waiting_ends(made, tmp_path):
    folder = tmp_path / "run"
    if made:
        folder.mkdir()
    with pytest.raises(BfcvizError, match=r"run: .*0\.1 s"):
        await_recording(folder, 0.1)


def test_what_will_never_be_a_recording_is_not_awaited(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(FileError, match=r"origin\.json"):
        await_recording(tmp_path, 60)
    with pytest.raises(FileError, match="notes"):
        await_recording(tmp_path / "notes", 60)

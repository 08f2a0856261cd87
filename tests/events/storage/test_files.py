"""Special files in place of a trace or of its parts: one FileError each, and no waiting."""

import os
import socket

import pytest

from bfcviz.errors import FileError
from bfcviz.events.origin import Status
from bfcviz.events.storage.wait_for_recording import await_recording
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["origin.json", "events.bin", "labels.jsonl"])
@pytest.mark.parametrize("what", ["/proc/self/mem", "/proc/kmsg", "/dev/zero", "socket", "nowhere", "loop"])
def test_special_files_of_a_folder_are_never_complete(folder, tmp_path, name, what):
    (folder / name).unlink()
    if what == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(folder / name))
    else:
        target = {"nowhere": tmp_path / "nothing", "loop": folder / name}.get(what, what)
        (folder / name).symlink_to(target)
    assert status_of(folder, name) in (Status.TRUNCATED, Status.DEGRADED, "FileError")


def status_of(folder, name):
    """How the folder opens; an error must name the file."""
    try:
        return Trace.open(folder).origin.status
    except FileError as error:
        return "FileError" if name in error.path else str(error)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "make", ["fifo", "socket", "nowhere", "loop", "long", "nul", "/dev/zero", "/proc/kmsg"]
)
def test_special_files_in_place_of_a_trace_are_one_error(tmp_path, make):
    path = tmp_path / "x.parquet"
    if make == "fifo":
        os.mkfifo(path)
    elif make == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    elif make in ("long", "nul"):
        path = tmp_path / ("x" * 5000 if make == "long" else "a\0b")
    else:
        path.symlink_to({"nowhere": tmp_path / "nothing", "loop": path}.get(make, make))
    for opened in (open_trace, Trace.open):
        with pytest.raises(FileError):
            opened(path)
    if make not in ("loop", "nul"):
        with pytest.raises(FileError):
            await_recording(path, 0)

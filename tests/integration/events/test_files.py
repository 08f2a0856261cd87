"""Special files in place of a trace or of its parts: one FileError each, and no waiting."""

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest

from bfcviz.errors import FileError
from bfcviz.events.origin import Status
from bfcviz.events.storage.folder import await_recording
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.samples import sample


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


READ_ONLY = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o ro none "$0" && exec "$@"']


READ_ONLY_CALLS = [
    "trace.save('a.parquet')",
    "convert(trace, 'a.parquet')",
    "convert(trace, 'a.csv')",
    "main(['report', str(bfcviz.sample('oom_dump')), '-o', 'a.html'])",
    "Recording('run')",
]
RUN_READ_ONLY = """
import os, sys
import bfcviz
from bfcviz.cli import main
from bfcviz.errors import FileError
from bfcviz.events.storage.recording import Recording
from bfcviz.exporters.convert import convert
os.chdir(sys.argv[1])
trace = bfcviz.open(bfcviz.sample("oom_dump"))
for call in sys.argv[2:]:
    try:
        status = eval(call)
    except FileError as error:
        print(f"bfcviz: error: {error}", file=sys.stderr)
        status = 1
    print(status, flush=True)
"""


def test_a_read_only_file_system_is_one_error(tmp_path):
    if not shutil.which("unshare") or subprocess.run([*READ_ONLY, tmp_path, "true"], check=False).returncode:
        pytest.skip("this user cannot mount a file system")
    words = [*READ_ONLY, tmp_path, sys.executable, "-c", RUN_READ_ONLY, tmp_path, *READ_ONLY_CALLS]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1"] * len(READ_ONLY_CALLS)
    lines = done.stderr.splitlines()
    assert len(lines) == len(READ_ONLY_CALLS)
    assert all(line.startswith("bfcviz: error: ") and "Read-only file system" in line for line in lines)


def test_a_limit_of_file_sizes_is_one_error_that_names_the_file(tmp_path):
    paths = [str(tmp_path / f"a{suffix}") for suffix in (".parquet", ".csv", ".json", ".pickle")]
    converts = [["convert", str(sample("oom_dump")), "-o", path] for path in paths]
    done = run_limited(4096, *converts)
    assert done.stdout.split() == ["1"] * len(paths)
    for path, said in zip(paths, done.stderr.splitlines(), strict=True):
        assert said.startswith(f"bfcviz: error: {path}: cannot be written: File too large (ulimit -f")
    assert [*tmp_path.iterdir()] == []


RUN_LIMITED = """
import json, resource, sys
from bfcviz.cli import main
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
for words in json.loads(sys.argv[2]):
    print(main(words), flush=True)
"""


def run_limited(most, *commands):
    """Run commands of bfcviz, which may write no more than so many bytes to a file; prints the exit status of each."""
    return subprocess.run(
        [sys.executable, "-c", RUN_LIMITED, str(most), json.dumps(commands)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_temporary_folder_is_one_error(tmp_path):
    done = run_limited(0, ["record", "-o", str(tmp_path / "run"), "--", "true"])
    assert done.stdout == "1\n"
    assert done.stderr.startswith("bfcviz: error: ")
    assert len(done.stderr.splitlines()) == 1

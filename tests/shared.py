"""What many tests read: the bundled runs, and where the shared data lies, beside the repository or nowhere."""

import atexit
import gzip
import shutil
import tempfile
import threading
from functools import cache
from pathlib import Path

import pytest

import bfcviz

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared beside this checkout")


def write_anew(path, data):
    """Write a file that may be there. To truncate it takes ext4 some 5 ms: it first writes it to the disk."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


@cache
def _folder():
    folder = tempfile.mkdtemp(prefix="bfcviz-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def sample_file(name):
    """A bundled run as Parquet, which opens in a tenth of the time of its profile."""
    return sample_trace(name).save(_folder() / f"{name}.parquet")


@cache
def sample_trace(name):
    """A bundled run or failure, opened once in this process; no test changes it."""
    return bfcviz.open(bfcviz.sample(name))


@cache
def short_trace(name, events=4000):
    """The first events of a bundled run, for tests that serve it many times; no test changes it."""
    trace = sample_trace(name)
    return bfcviz.Trace.from_events(trace.read(0, events), trace.labels, trace.origin)


@cache
def short_file(name, events=4000):
    """`short_trace` as Parquet."""
    return short_trace(name, events).save(_folder() / f"{name}_{events}.parquet")


@cache
def snapshot_trace(name):
    """A snapshot of real/snapshots in the shared data, opened once in this process; no test changes it."""
    return bfcviz.open(SHARED / "real" / "snapshots" / f"{name}.pickle")


def land_window(folder, number, sample):
    """A window of TensorFlow's profiler, as it is left in the folder of a recording: whole at once."""
    made = folder / f".window-{number}"
    made.mkdir(parents=True)
    (made / "vm.xplane.pb").write_bytes(gzip.decompress(bfcviz.sample(sample).read_bytes()))
    made.rename(folder / f"window-{number:06}")


def window_readers():
    """The threads of this process that read such windows for a page."""
    return [thread for thread in threading.enumerate() if thread.name == "bfcviz-windows"]

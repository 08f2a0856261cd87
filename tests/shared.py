"""What many tests read: the bundled runs, and where the shared data lies, beside the repository or nowhere."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

import bfcviz

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared beside this checkout")


@cache
def sample_file(name):
    """A bundled run as Parquet, which opens in a tenth of the time of its profile."""
    folder = tempfile.mkdtemp(prefix="bfcviz-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return sample_trace(name).save(Path(folder) / f"{name}.parquet")


@cache
def sample_trace(name):
    """A bundled run or failure, opened once in this process; no test changes it."""
    return bfcviz.open(bfcviz.sample(name))

"""Thousands of heaps, created and collected, leak no memory, no mapping and no open file."""

from pathlib import Path

import pytest
from processes import COMPILED, run_python


@pytest.mark.parametrize(
    ("work", "times"), [("simple", 120), ("busy", 20), ("failing", 120), ("recorded", 40), ("closed", 120)]
)
def test_nothing_is_left_behind(work, times):
    times = times if COMPILED else times // 10
    result = run_python(Path(__file__).with_name("leaks.py"), work, times)
    assert (result.returncode, result.stderr) == (0, "")
    kilobytes, files, maps = map(int, result.stdout.split())
    assert kilobytes < 2000
    assert files == 0
    assert maps < 20

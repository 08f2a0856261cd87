"""The habits of this code: lint, format, types, import rules and words."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mutations import MUTATIONS, TESTS
from sanitizers import PLANTED
from shared import ROOT

from bfcviz.live.memory_limits import available_memory
from bfcviz.units import GiB

HEADERS = sorted((ROOT / "bfcviz").rglob("*.h"))
# Brackets, so that this line does not match.
BANNED = re.compile("who[e]ver|no[b]ody|some[b]ody|in the mids[t]|be ha[d]", re.IGNORECASE)

_TOOLS = {
    "lint": ["ruff", "check", "--no-fix"],
    "format": ["ruff", "format", "--check"],
    "imports": ["lint-imports", "--no-cache"],
}

# Mypy sets a threshold with which it spends 50 of 80 seconds in the garbage collector; with this one it spends 15 of 60
# and needs 1.4 GB. Without any collection it needs 6 GB: where there are twice as much, that is the fastest.
_MYPY = """
import gc
set_threshold = gc.set_threshold
gc.set_threshold = lambda *_: set_threshold({threshold}, 10, 10)
from mypy.__main__ import console_entry
console_entry()
"""


def check(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("habit", list(_TOOLS))
def test_habit(habit):
    tool, *words = _TOOLS[habit]
    check([Path(sys.executable).with_name(tool), *words])


def test_types():
    threshold = 0 if available_memory() > 12 * GiB else 10_000_000
    # There is no cache of an earlier run under CI, and nothing reads one after it.
    cache = ["--cache-dir", os.devnull] if os.environ.get("CI") else []
    check([sys.executable, "-c", _MYPY.format(threshold=threshold), *cache])


def test_the_format_of_c():
    tool = Path(sys.executable).with_name("clang-format")
    if not tool.exists():
        pytest.skip("clang-format is not installed: pip install -e '.[dev]'")
    command = [tool, "--dry-run", "-Werror", *HEADERS]  # the style is bfcviz/.clang-format
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_banned_words():
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" not in data:  # text
            lines = enumerate(data.decode(errors="replace").splitlines(), 1)
            found += [f"{name}:{number}" for number, line in lines if BANNED.search(line)]
    assert found == []


def test_each_mutation_fits_the_source_and_its_tests_exist():
    edits = [PLANTED[:2], *((each.file, each.old) for each in MUTATIONS)]
    assert [old for file, old in edits if (ROOT / file).read_text().count(old) != 1] == []
    assert [name for name in TESTS if not (ROOT / name).is_file()] == []

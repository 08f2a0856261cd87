"""The habits of this code, as tests: lint, format, types, who imports whom, and sizes."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from shared import ROOT

PACKAGE = sorted((ROOT / "bfcviz").rglob("*.py"))
HEADERS = sorted((ROOT / "bfcviz").rglob("*.h"))
LONGEST_FILE, LONGEST_FUNCTION = 400, 50  # lines

_TOOLS = {
    "lint": ["ruff", "check", "--no-fix"],
    "format": ["ruff", "format", "--check"],
    "types": ["mypy"],
    "imports": ["lint-imports", "--no-cache"],
}


@pytest.mark.parametrize("habit", list(_TOOLS))
def test_habit(habit):
    tool, *words = _TOOLS[habit]
    command = [Path(sys.executable).with_name(tool), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_format_of_c():
    tool = Path(sys.executable).with_name("clang-format")
    if not tool.exists():
        pytest.skip("clang-format is not installed: pip install -e '.[dev]'")
    command = [tool, "--dry-run", "-Werror", *HEADERS]  # the style is bfcviz/.clang-format
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", HEADERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_headers_are_short(path):
    lines = path.read_text().splitlines()
    assert (len(lines) <= LONGEST_FILE, [line for line in lines if len(line) > 110]) == (True, [])


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_and_functions_are_short(path):
    text = path.read_text()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    long = [node.name for node in functions if node.end_lineno - node.lineno >= LONGEST_FUNCTION]
    assert (text.count("\n") <= LONGEST_FILE, long) == (True, [])

"""Each C header compiles alone, without a warning."""

import subprocess
import sysconfig

import pytest
from c_code import COMPILER, needs_compiler
from shared import ROOT

HEADERS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "bfcviz").rglob("*.h"))


FLAGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]  # of one includer all are used
PYTHON = ["-isystem", sysconfig.get_path("include")]


@pytest.fixture(scope="module")
def python_h(tmp_path_factory):
    """A header that includes Python's, compiled once: it is most of what the compiler reads."""
    header = tmp_path_factory.mktemp("header") / "python.h"
    header.write_text("#include <Python.h>\n")
    made = header.with_name("python.h.gch")
    subprocess.run([*COMPILER, *FLAGS, *PYTHON, "-x", "c-header", header, "-o", made], check=True)
    return header


@needs_compiler
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_needs_no_other_and_gives_no_warning(python_h, header):
    done = subprocess.run(
        [*COMPILER, "-fsyntax-only", *FLAGS, "-I", ROOT, *PYTHON, "-include", python_h, "-x", "c", "-"],
        input=f'#include "{header}"\n',
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

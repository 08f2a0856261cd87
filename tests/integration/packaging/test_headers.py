"""Each C header compiles alone, without a warning."""

import subprocess
import sysconfig

import pytest
from c_code import COMPILER, needs_compiler
from shared import ROOT

HEADERS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "bfcviz").rglob("*.h"))


@needs_compiler
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_needs_no_other_and_gives_no_warning(header):
    include = sysconfig.get_path("include")
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]  # of one includer all are used
    done = subprocess.run(
        [*COMPILER, "-fsyntax-only", *warnings, "-I", ROOT, "-isystem", include, "-x", "c", "-"],
        input=f'#include <Python.h>\n#include "{header}"\n',
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

"""The plain Python modules keep the same promises, word for word: the tests that import them, in other processes."""

import pytest
from processes import COMPILED, run_python
from shared import ROOT

TESTS = ROOT / "tests"
FILES = sorted(
    path
    for room in ("allocator", "events", "live", "model")
    for path in (TESTS / room).glob("test_*.py")
    if path.name != "test_uncompiled.py"
)
FILES += [TESTS / "figures" / name for name in ("test_glance.py", "test_raster.py")]
PROCESSES = 8
"""Few, for each takes a second to start; several, for tests run beside each other."""

CODE = (
    "import sys, pytest; code = pytest.main(sys.argv[1:]); "
    "print('compiled:', any(f'bfcviz.{name}' in sys.modules for name in ('_heap', '_model'))); sys.exit(code)"
)


@pytest.mark.skipif(not COMPILED, reason="the tests themselves run uncompiled")
@pytest.mark.parametrize("number", range(PROCESSES))
def test_every_promise_is_kept_by_the_plain_modules(number):
    files = FILES[number::PROCESSES]
    assert files
    result = run_python(
        "-c", CODE, "-q", "-n0", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *files, plain=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "compiled: False"

"""The plain Python modules behave like the compiled ones: their tests run again, uncompiled, in other processes."""

import pytest
from processes import COMPILED, run_python
from shared import ROOT

TESTS = ROOT / "tests"
FILES = sorted(
    path
    for room in ("allocator", "events", "live", "model")
    for path in (TESTS / room).rglob("test_*.py")
    if path.name != "test_uncompiled.py" and path.parent.name != "wrappers"  # wrappers are never compiled
)
FILES += [TESTS / "figures" / "region_map" / name for name in ("test_live_map.py", "raster/test_raster.py")]
PROCESSES = 8
"""Few, because each takes a second to start; several, because tests run in parallel."""

CODE = (
    "import sys, pytest; code = pytest.main(sys.argv[1:]); "
    "print('compiled:', any(f'bfcviz.{name}' in sys.modules for name in ('_heap', '_model'))); sys.exit(code)"
)


@pytest.mark.skipif(not COMPILED, reason="the tests themselves run uncompiled")
@pytest.mark.parametrize("number", range(PROCESSES))
def test_the_plain_modules_pass_the_same_tests(number):
    files = FILES[number::PROCESSES]
    assert files
    result = run_python(
        "-c", CODE, "-q", "-n0", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *files, plain=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "compiled: False"

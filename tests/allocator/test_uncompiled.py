"""The plain Python heap keeps the same promises, word for word: the tests beside this one, in another process."""

from pathlib import Path

import pytest
from processes import COMPILED, run_python
from shared import ROOT

HERE = Path(__file__).parent
SLOW = ("test_hammer.py", "test_leaks.py", "test_retry.py", "test_threads.py", Path(__file__).name)
CODE = (
    "import sys, pytest; code = pytest.main(sys.argv[1:]); "
    "print('compiled:', 'bfcviz._heap' in sys.modules); sys.exit(code)"
)


@pytest.mark.skipif(not COMPILED, reason="the tests themselves run uncompiled")
def test_every_promise_is_kept_by_the_plain_heap():
    files = sorted(path for path in HERE.glob("test_*.py") if path.name not in SLOW)
    assert len(files) >= 8
    result = run_python("-c", CODE, "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *files, plain=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "compiled: False"

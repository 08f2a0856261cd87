"""The same machine, its heap and model in plain Python."""

from processes import run_python
from shared import ROOT

WHICH = (
    "import sys, pytest; code = pytest.main(sys.argv[1:]); from bfcviz.allocator import heap; "
    "print(heap.__file__, sorted(m for m in sys.modules if m.startswith('bfcviz._'))); sys.exit(code)"
)


def test_the_plain_heap_does_the_same(tmp_path):
    test = ROOT / "tests" / "properties" / "test_heap_machine.py"
    result = run_python(
        "-c",
        WHICH,
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        f"--rootdir={ROOT}",
        test,
        plain=True,
        BFCVIZ_EXAMPLES="20",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed" in result.stdout
    *_, how = result.stdout.splitlines()
    assert how.split(maxsplit=1)[0].endswith("heap.py")
    assert "_heap" not in how.split(maxsplit=1)[1]

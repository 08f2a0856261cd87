"""An import that fails while a compiled module starts is an exception like any other, and a second try is refused."""

import os

import pytest
from processes import COMPILED, run_python
from shared import ROOT

MODULES = (
    "bfcviz._heap",
    "bfcviz._model",
    "bfcviz._raster",
    "bfcviz._live",
    "bfcviz._snapshot",
    "bfcviz._storage",
    "bfcviz._whatif",
)
MOST = 4

pytestmark = [
    pytest.mark.skipif(not COMPILED, reason="nothing is compiled here"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]


def test_a_failing_import_is_an_exception():
    script = ROOT / "tests" / "integration" / "packaging" / "failing_imports.py"
    done = run_python(script, "KeyboardInterrupt", MOST, *MODULES)
    tries = dict(line.split() for line in done.stdout.splitlines())  # a try that ends badly has more words
    assert (done.returncode, *tries) == (0, *MODULES)
    assert all(int(count) >= 3 for count in tries.values())


def test_inspect_is_imported_before_a_compiled_module_needs_it():
    """Its import takes milliseconds, in which Ctrl-C used to be fatal."""
    code = "import sys, bfcviz._compiled; print('inspect' in sys.modules, 'bfcviz._heap' in sys.modules)"
    assert run_python("-c", code).stdout == "True False\n"


def test_ctrl_c_while_a_compiled_module_starts_comes_when_it_is_whole():
    """As in a notebook, whose user runs the cell again."""
    code = """
import os, signal, sys
class Sender:
    def find_spec(self, name, *_):
        if name == "bfcviz.allocator.interface":  # one that the compiled heap imports as it starts
            print("sent", flush=True)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Sender())
try:
    from bfcviz.allocator.bfc_allocator import BFCAllocator
except KeyboardInterrupt:
    print("interrupted")
import bfcviz
heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 1 << 20)
print('bfcviz._heap' in sys.modules, heap.allocate(1) > 0)
"""
    assert run_python("-c", code).stdout == "sent\ninterrupted\nTrue True\n"

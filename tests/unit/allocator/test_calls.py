"""How Python calls the compiled heap."""

import sys
from pathlib import Path

import pytest
from processes import COMPILED


@pytest.mark.skipif(not COMPILED, reason="uncompiled, Python calls Python")
def test_compiled_calls_take_their_arguments_in_an_array():
    """Where Cython writes what `_build.mend` replaces in another way, each call makes a tuple again."""
    assert b"PyObject_VectorcallMethod" in Path(sys.modules["bfcviz._heap"].__file__).read_bytes()

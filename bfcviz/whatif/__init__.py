"""What if: the requests of a trace served again under other rules."""

from bfcviz import _compiled

_compiled.load("bfcviz._whatif")
_compiled.load("bfcviz._packing")

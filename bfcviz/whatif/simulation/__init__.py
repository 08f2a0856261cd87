"""The parts of simulated allocators: the driver's memory, free blocks, and the loop over requests."""

from bfcviz import _compiled

_compiled.load("bfcviz._whatif")

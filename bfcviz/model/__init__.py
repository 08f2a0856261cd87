"""Rebuild the heap at any step of a trace, and compute every number about it.

Enters: a `bfcviz.events.trace.Trace`. Leaves: NumPy arrays (chunks, regions, bins, timelines), `ModelStats`,
sentences and steps; never a picture. A step is the state after that many events: step 0 is the empty heap, and
event i (0-based, its `seq`) leads from step i to step i + 1. May import errors, units, native and events.
"""

from bfcviz import _compiled

_compiled.load("bfcviz._model")


from bfcviz.model.keyframe_bytes import keyframes
from bfcviz.model.model import BIN, CHUNK, REGION, Model, ModelStats
from bfcviz.model.timelines import TIMELINE, timeline

__all__ = ["BIN", "CHUNK", "REGION", "TIMELINE", "Model", "ModelStats", "keyframes", "timeline"]

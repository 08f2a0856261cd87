"""Traces on disk: a folder that grows while recording, one Parquet file at rest.

In: events, labels and origin from `bfcviz.events`. Out: the same, read back as event sources.
A killed writer loses at most the record that it was writing. May import what `bfcviz.events` may import.
"""

from bfcviz import _compiled

_compiled.load("bfcviz._storage")

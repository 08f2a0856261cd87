"""Read logs of TensorFlow, XLA and JAX that hold lines of their BFC allocator.

::

    bytes --> log_text: plain text --> records: one log record each --> dump parser: chunks, totals --> read: a Trace

A log is text from many sources: a terminal, a notebook, an issue tracker. The words of an allocator line are searched
anywhere in it. A history may be long: `LogPieces` gives its text in pieces. May import: as `bfcviz.importers`.
"""

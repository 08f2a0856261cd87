"""What the state of a moment does not say of its chunks in use, in words."""

from typing import Final

from bfcviz.events.origin import chunks_known, holds_only_states, unknown_of_chunks
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace

_WORDS: Final = {"requested": "requested size", "name": "name", "thread": "thread", "stream": "stream"}


def missing_of_chunks(trace: Trace, pool: int) -> str:
    """What a trace of a state does not say of the chunks in use of a heap, as a sentence without its end.

    Empty for a history, whose origin has reasons for what it lacks, and where the file has no chunks.
    """
    details = trace.origin.details
    if not holds_only_states(details) or not chunks_known(details, pool):
        return ""
    unknown = unknown_of_chunks(details, pool) | (set() if _has_names(trace, pool) else {"name"})
    words = [word for name, word in _WORDS.items() if name in unknown]
    return f"the file does not hold each chunk's {', '.join(words)}" if words else ""


def _has_names(trace: Trace, pool: int) -> bool:
    """Whether any chunk in use of a heap has a label."""
    for block in trace.blocks():
        named = (block["kind"] == Kind.ALLOCATE) & (block["pool"] == pool) & (block["label"] != 0)
        if named.any():
            return True
    return False

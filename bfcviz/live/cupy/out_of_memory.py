"""The error of a program whose CuPy is served: bfcviz's OutOfMemory that is also CuPy's OutOfMemoryError."""

from functools import cache

from bfcviz.errors import OutOfMemory


def cupy_out_of_memory(theirs: type, numbers: OutOfMemory) -> OutOfMemory:
    """Make an error with these numbers that programs catch as CuPy's error, `theirs`, too."""
    return _class_of_both(theirs)(**numbers.numbers())


@cache
def _class_of_both(theirs: type) -> type[OutOfMemory]:
    return type("OutOfMemory", (OutOfMemory, theirs), {"__module__": OutOfMemory.__module__})

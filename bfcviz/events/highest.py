"""The highest of many numbers, found under the interpreter's lock.

NumPy gives the lock away to look at more than 500 of them, and a renderer beside a busy thread then waits 5 ms to have
it back; looking takes some microseconds.
"""

import numpy as np
from numpy.typing import NDArray


def highest(numbers: NDArray[np.uint32]) -> int:
    """The highest of `numbers`, (n,); -1 where there is none."""
    found = -1
    for i in range(len(numbers)):
        found = max(found, numbers[i])
    return found

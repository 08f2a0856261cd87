"""The highest of many numbers, found without releasing the interpreter's lock.

NumPy releases the lock for more than 500 numbers. A renderer beside a busy thread then waits 5 ms to get it back, but
the search takes only some microseconds.
"""

import numpy as np
from numpy.typing import NDArray


def highest(numbers: NDArray[np.uint32]) -> int:
    """The highest of `numbers`, shape (n,); -1 if there are none."""
    found = -1
    for i in range(len(numbers)):
        found = max(found, numbers[i])
    return found

"""The bytes of a number of elements of a dtype, as a request for them has it."""

import operator

import numpy as np
from numpy.typing import DTypeLike

from bfcviz.errors import InvalidRequest


def bytes_of(dtype: DTypeLike, count: int) -> int:
    """Bytes of `count` elements.

    Raises:
        InvalidRequest: the dtype has no fixed size, or the count is negative.
    """
    if dtype is None:  # NumPy would take it for float64
        raise InvalidRequest("the dtype is None: give one such as 'float32'")
    try:
        item = np.dtype(dtype)
    except TypeError as error:
        raise InvalidRequest(f"{dtype!r} is not a NumPy dtype: give one such as 'float32'") from error
    if item.hasobject:
        raise InvalidRequest(f"dtype {item} holds Python objects, not bytes: give a fixed-size one")
    if operator.index(count) < 0:
        raise InvalidRequest(f"{count} elements were requested; give 0 or more")
    return int(item.itemsize) * operator.index(count)

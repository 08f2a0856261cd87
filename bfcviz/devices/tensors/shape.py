"""Shapes: what a tensor may look like."""

import operator
from collections.abc import Iterable
from math import prod
from typing import Any, Final

from bfcviz.errors import InvalidRequest

MAX_BYTES: Final = 1 << 62
"""Of a tensor: what a heap can be asked for."""

MAX_DIMENSIONS: Final = 32
"""As many as every NumPy takes."""


def checked_shape(shape: Any, itemsize: int = 1) -> tuple[int, ...]:
    """A shape as a tuple.

    Args:
        shape: sizes of the dimensions, or the one size there is; () is a single element.
        itemsize: bytes of an element.

    Raises:
        InvalidRequest: a size that is negative or no whole number, or more bytes than any heap has. Dimensions of
            size 0 do not make the others smaller.
    """
    if isinstance(shape, str | bytes | dict | set):
        raise InvalidRequest(f"{shape!r} was given as a shape: give whole numbers, such as (64, 256)")
    given = tuple(shape) if isinstance(shape, Iterable) and getattr(shape, "ndim", 1) != 0 else (shape,)
    if len(given) > MAX_DIMENSIONS:
        raise InvalidRequest(
            f"a shape of {len(given)} dimensions was asked for; at most {MAX_DIMENSIONS} can be"
        )
    sizes = tuple(_size(size, given) for size in given)
    whole = prod((size for size in sizes if size), start=itemsize)
    if whole > MAX_BYTES:
        raise InvalidRequest(
            f"a shape of {list(sizes)} was asked for: with {itemsize} bytes an element that is {whole} bytes, "
            "and 2^62 is the most a heap can be asked for"
        )
    return sizes


def _size(size: Any, shape: tuple[Any, ...]) -> int:
    try:
        number = operator.index(size)
    except TypeError as error:
        raise InvalidRequest(f"{size!r} is no size, in the shape {shape!r}: give whole numbers") from error
    if number < 0:
        raise InvalidRequest(f"{number} is no size, in the shape {shape!r}: give 0 or more")
    return number


def resolved(shape: Any, count: int) -> tuple[int, ...]:
    """A shape for so many elements; one of its sizes may be -1, and is found out.

    Raises:
        InvalidRequest: it is a shape of another number of elements.
    """
    given = tuple(shape) if isinstance(shape, Iterable) and getattr(shape, "ndim", 1) != 0 else (shape,)
    if given.count(-1) == 1:
        others = prod(checked_shape([size for size in given if size != -1]))
        given = tuple((count // others if others else 0) if size == -1 else size for size in given)
    sizes = checked_shape(given)
    if prod(sizes) != count:
        raise InvalidRequest(f"{count} elements were to have the shape {shape!r}, which has {prod(sizes)}")
    return sizes

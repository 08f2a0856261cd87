"""Check and resolve the shapes of tensors."""

import operator
from collections.abc import Iterable
from math import prod
from typing import Any, Final

from bfcviz.errors import InvalidRequest

MAX_BYTES: Final = 1 << 62
"""Largest tensor in bytes: the largest request to a heap."""

MAX_DIMENSIONS: Final = 32
"""Most dimensions; every NumPy version supports as many."""


def checked_shape(shape: Any, itemsize: int = 1) -> tuple[int, ...]:
    """Check a shape and return it as a tuple.

    Args:
        shape: sizes of the dimensions, or one size; () is a single element.
        itemsize: bytes of an element.

    Raises:
        InvalidRequest: a size is negative or not a whole number, or the bytes exceed MAX_BYTES. Dimensions of size 0 do
            not count in that product.
    """
    if isinstance(shape, str | bytes | dict | set):
        raise InvalidRequest(f"{shape!r} is not a shape: give whole numbers, such as (64, 256)")
    given = tuple(shape) if isinstance(shape, Iterable) and getattr(shape, "ndim", 1) != 0 else (shape,)
    if len(given) > MAX_DIMENSIONS:
        raise InvalidRequest(
            f"a shape of {len(given)} dimensions is not supported: give at most {MAX_DIMENSIONS}"
        )
    sizes = tuple(_size(size, given) for size in given)
    whole = prod((size for size in sizes if size), start=itemsize)
    if whole > MAX_BYTES:
        raise InvalidRequest(
            f"shape {list(sizes)} with {itemsize} bytes per element needs {whole} bytes: give one of at most 2^62 bytes"
        )
    return sizes


def _size(size: Any, shape: tuple[Any, ...]) -> int:
    try:
        number = operator.index(size)
    except TypeError as error:
        raise InvalidRequest(f"{size!r} in the shape {shape!r} is not a size: give whole numbers") from error
    if number < 0:
        raise InvalidRequest(f"{number} in the shape {shape!r} is not a size: give 0 or more")
    return number


def resolve_shape(shape: Any, count: int) -> tuple[int, ...]:
    """Check a shape for `count` elements; one size may be -1 and is computed.

    Raises:
        InvalidRequest: the shape has another number of elements.
    """
    given = tuple(shape) if isinstance(shape, Iterable) and getattr(shape, "ndim", 1) != 0 else (shape,)
    if given.count(-1) == 1:
        others = prod(checked_shape([size for size in given if size != -1]))
        given = tuple((count // others if others else 0) if size == -1 else size for size in given)
    sizes = checked_shape(given)
    if prod(sizes) != count:
        raise InvalidRequest(
            f"{count} elements do not fit the shape {shape!r}, which has {prod(sizes)}: give a shape of {count}"
        )
    return sizes

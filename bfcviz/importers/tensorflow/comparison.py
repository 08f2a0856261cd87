"""Every number a source recorded beside the same number of the reconstruction."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.importers.tensorflow.requests import ABSENT, Requests

Mask = NDArray[np.bool_]

_SHORT_DIGITS = 6  # TraceMe writes doubles as absl::StrCat does: with six significant digits


@dataclass(frozen=True)
class Rebuilt:
    """The reconstruction's side, one entry a request: its chunk, and the heap's bytes after it."""

    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    bytes_in_use: NDArray[np.uint64]
    free_bytes: NDArray[np.uint64]
    largest_free_chunk: NDArray[np.uint64]


@dataclass(frozen=True)
class Checks:
    """How many requests were compared, and what differs.

    Attributes:
        checked: requests compared.
        matched: those of which every recorded number is that of the reconstruction.
        fields: for each recorded number, in how many requests it differs.
        first: the first request that differs, in words; None where none does.
        bytes_before: bytes that were in use all the time beside what the requests account for; 0 where there were
            none, or more at one time than at another.
    """

    checked: int
    matched: int
    fields: Mapping[str, int]
    first: str | None
    bytes_before: int

    @property
    def differing(self) -> int:
        """Requests in which at least one number differs."""
        return self.checked - self.matched


def compare(requests: Requests, rebuilt: Rebuilt) -> Checks:
    """Compare all that was recorded; what the source did not record counts as equal."""
    # TensorFlow's names, since that is where a reader of the result looks them up.
    differs: dict[str, Mask] = {
        "addr": requests["address"] != rebuilt.address,
        "allocation_bytes": requests["size"] != rebuilt.size.astype(np.int64),
        "bytes_allocated": (requests["bytes_in_use"] != ABSENT)
        & (requests["bytes_in_use"] != rebuilt.bytes_in_use.astype(np.int64)),
        "fragmentation": _fragmentation_differs(requests["fragmentation"], rebuilt),
    }
    wrong = np.logical_or.reduce(list(differs.values()))
    return Checks(
        checked=len(requests),
        matched=int(np.count_nonzero(~wrong)),
        fields={name: int(np.count_nonzero(mask)) for name, mask in differs.items()},
        first=_first(requests, rebuilt, wrong),
        bytes_before=0
        if (differs["addr"] | differs["allocation_bytes"]).any()
        else _bytes_before(requests, rebuilt),
    )


def _bytes_before(requests: Requests, rebuilt: Rebuilt) -> int:
    told = requests["bytes_in_use"]
    beside = (told - rebuilt.bytes_in_use.astype(np.int64))[told != ABSENT]
    return int(beside[0]) if len(beside) and beside[0] > 0 and (beside == beside[0]).all() else 0


def fragmentation(rebuilt: Rebuilt) -> NDArray[np.float64]:
    """(free - largest) / free as TensorFlow computes it: NaN where nothing is free."""
    free = rebuilt.free_bytes.astype(np.float64)
    largest = rebuilt.largest_free_chunk.astype(np.float64)
    result = np.full(len(free), np.nan)
    np.divide(free - largest, free, out=result, where=free > 0)
    return result


def _fragmentation_differs(recorded: NDArray[np.float64], rebuilt: Rebuilt) -> Mask:
    """Compare at the precision the file was written with."""
    exact = fragmentation(rebuilt)
    short = np.array_equal(_shortened(recorded), recorded, equal_nan=True)
    exact = _shortened(exact) if short else exact
    both_nan = np.isnan(exact) & np.isnan(recorded)
    # A negative number stands for one that was not recorded.
    differs: Mask = ~((recorded < 0) | both_nan | (recorded == exact))
    return differs


def _shortened(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """As read back from text with six significant digits."""
    distinct, back = np.unique(values, return_inverse=True)
    short = np.array([float(f"{value:.{_SHORT_DIGITS}g}") for value in distinct.tolist()])
    return short[back] if len(short) else values


def _first(requests: Requests, rebuilt: Rebuilt, wrong: Mask) -> str | None:
    if not wrong.any():
        return None
    at = int(np.argmax(wrong))
    row = requests[at]
    return (
        f"request {at} ({'free' if row['free'] else 'allocation'} of {row['requested']} bytes): "
        f"recorded {_words(row['address'], row['size'], row['bytes_in_use'], row['fragmentation'])}; "
        "reconstructed "
        + _words(
            rebuilt.address[at],
            rebuilt.size[at],
            rebuilt.bytes_in_use[at],
            fragmentation(rebuilt)[at],
        )
    )


def _words(address: int, size: int, bytes_in_use: int, fragmented: float) -> str:
    return f"{size} bytes at {int(address):#x}, {bytes_in_use} in use, fragmentation {fragmented:.6g}"

"""Compare every recorded number with the same number of the reconstruction."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.importers.tensorflow.requests import ABSENT, Requests

Mask = NDArray[np.bool_]

_SHORT_DIGITS = 6  # TraceMe writes doubles as absl::StrCat does: with six significant digits


@dataclass(frozen=True)
class Rebuilt:
    """Numbers of the reconstruction, one entry per request: its chunk, and the heap's bytes after it."""

    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    bytes_in_use: NDArray[np.uint64]
    free_bytes: NDArray[np.uint64]
    largest_free_chunk: NDArray[np.uint64]


@dataclass(frozen=True)
class Checks:
    """How many requests were compared, and which differ.

    Attributes:
        checked: requests compared.
        matched: requests whose recorded numbers all equal those of the reconstruction.
        fields: for each recorded field, the number of requests in which it differs.
        first: description of the first request that differs; None if none differs.
        bytes_before: constant number of bytes in use beyond those of the requests; 0 if there are none, or if the
            number changes.
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
    """Compare all recorded numbers; numbers that were not recorded count as equal."""
    # TensorFlow's names: a reader of the result looks them up there.
    differs: dict[str, Mask] = {
        "addr": requests["address"] != rebuilt.address,
        "allocation_bytes": (requests["size"] != ABSENT)
        & (requests["size"] != rebuilt.size.astype(np.int64)),
        "bytes_allocated": (requests["bytes_in_use"] != ABSENT)
        & (requests["bytes_in_use"] != rebuilt.bytes_in_use.astype(np.int64)),
        "fragmentation": _fragmentation_differs(requests["fragmentation"], rebuilt),
    }
    wrong = np.logical_or.reduce(list(differs.values()))
    has_other_chunks = (differs["addr"] | differs["allocation_bytes"]).any()
    return Checks(
        checked=len(requests),
        matched=int(np.count_nonzero(~wrong)),
        fields={name: int(np.count_nonzero(mask)) for name, mask in differs.items()},
        first=_first(requests, rebuilt, wrong),
        bytes_before=0 if has_other_chunks else _bytes_before(requests, rebuilt),
    )


def _bytes_before(requests: Requests, rebuilt: Rebuilt) -> int:
    recorded = requests["bytes_in_use"]
    extra = (recorded - rebuilt.bytes_in_use.astype(np.int64))[recorded != ABSENT]
    return int(extra[0]) if len(extra) and extra[0] > 0 and (extra == extra[0]).all() else 0


def fragmentation(rebuilt: Rebuilt) -> NDArray[np.float64]:
    """(free - largest) / free as TensorFlow computes it: NaN if no bytes are free."""
    free = rebuilt.free_bytes.astype(np.float64)
    largest = rebuilt.largest_free_chunk.astype(np.float64)
    result = np.full(len(free), np.nan)
    np.divide(free - largest, free, out=result, where=free > 0)
    return result


def _fragmentation_differs(recorded: NDArray[np.float64], rebuilt: Rebuilt) -> Mask:
    """Compare at the precision of the file."""
    exact = fragmentation(rebuilt)
    short = np.array_equal(_shortened(recorded), recorded, equal_nan=True)
    exact = _shortened(exact) if short else exact
    both_nan = np.isnan(exact) & np.isnan(recorded)
    # A negative number means that it was not recorded.
    differs: Mask = ~((recorded < 0) | both_nan | (recorded == exact))
    return differs


def _shortened(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values rounded to six significant digits."""
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

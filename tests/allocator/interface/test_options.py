"""Options of a heap that are refused."""

import pytest

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.errors import InvalidRequest


@pytest.mark.parametrize(
    "options",
    [
        {"fragmentation_fraction": -0.1},
        {"fragmentation_fraction": 1.1},
        {"fragmentation_fraction": float("nan")},
        {"retry_s": -1},
        {"retry_s": float("inf")},
        {"retry_s": float("nan")},
    ],
)
def test_options_that_cannot_be(options):
    with pytest.raises(InvalidRequest):
        AllocatorOptions(**options)

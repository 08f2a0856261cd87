"""The error of a served CuPy: programs catch it as CuPy's, and read bfcviz's numbers."""

import pytest

from bfcviz.errors import OutOfMemory
from bfcviz.live.cupy import cupy_out_of_memory


class TheirError(MemoryError):
    """As CuPy's, whose arguments are other ones."""

    def __init__(self, size, total, limit=0):
        super().__init__(size, total, limit)


@pytest.mark.parametrize("caught_as", [OutOfMemory, TheirError])
def test_it_is_caught_as_either_and_keeps_its_numbers(caught_as):
    numbers = OutOfMemory(
        requested=9 << 20,
        rounded=9 << 20,
        free_bytes=3 << 20,
        largest_free_chunk=2 << 20,
        pool_bytes=8 << 20,
        bytes_limit=16 << 20,
        others=[("cupy:0", 1 << 20, 256)],
    )
    with pytest.raises(caught_as) as caught:
        raise cupy_out_of_memory(TheirError, numbers)
    assert caught.value.numbers() == numbers.numbers()
    assert caught.value.largest_free_chunk == 2 << 20
    assert str(caught.value) == str(numbers)


def test_a_framework_has_one_class_of_errors():
    one, other = (
        cupy_out_of_memory(
            TheirError,
            OutOfMemory(
                requested=size,
                rounded=256,
                free_bytes=0,
                largest_free_chunk=0,
                pool_bytes=256,
                bytes_limit=256,
            ),
        )
        for size in (1, 2)
    )
    assert type(one) is type(other)
    assert (one.requested, other.requested) == (1, 2)

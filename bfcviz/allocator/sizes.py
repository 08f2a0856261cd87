"""Size arithmetic of the algorithm: rounding, growth, back-off and alignment padding, in bytes."""

from bfcviz import native


def round_up(num_bytes: int) -> int:
    """Round up to a multiple of 256, the unit of chunk sizes."""
    return (num_bytes + native.MIN_CHUNK - 1) // native.MIN_CHUNK * native.MIN_CHUNK


def smaller(num_bytes: int) -> int:
    """The size to request after a refusal: nine tenths, as in TensorFlow, but always less than before.

    Up to 2,304 bytes nine tenths round up to the same size, and TensorFlow repeats the same request for ever.
    """
    less = round_up(native.nine_tenths(num_bytes))
    return less if less < num_bytes else num_bytes - native.MIN_CHUNK


def double(num_bytes: int) -> int:
    """Twice as much, but at most 2^63: beyond it TensorFlow's number becomes 0 and its loop endless."""
    return num_bytes if num_bytes >= native.HALF_SPACE else num_bytes * 2


def padding_of(address: int, alignment: int) -> int:
    """Bytes from an address to the next multiple of the alignment, rounded up to a multiple of 256."""
    if alignment <= native.MIN_CHUNK:
        return 0
    padding = native.wrap_64(0 - address) & (alignment - 1)
    return round_up(padding)

"""Bisection between a number that fails and one that works."""

from collections.abc import Callable


def bisect(bad: int, good: int, works: Callable[[int], bool]) -> tuple[int, int]:
    """Two neighbours: the one on the side of `bad`, which does not work, and the other one, which does.

    Args:
        bad: does not work.
        good: works; above or below `bad`.
        works: tries a number between them.
    """
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        if works(middle):
            good = middle
        else:
            bad = middle
    return bad, good


def expected_steps(bad: int, good: int) -> int:
    """How many numbers `bisect` tries, at most."""
    return max(abs(good - bad) - 1, 0).bit_length()

"""What an Alert refuses."""

import pytest

import bfcviz
from bfcviz.errors import LiveError
from bfcviz.watching.alerts import Alert


@pytest.mark.parametrize(
    ("wrong", "facts"),
    [
        (lambda: Alert("size", above=1), "'size'.*bytes_in_use"),
        (lambda: Alert("bytes_in_use"), "above or below"),
        (lambda: Alert("bytes_in_use", 1, 2), "above or below"),
        (lambda: Alert("growth_per_step", below=1), "growth_per_step.*above"),
        (lambda: Alert("external_fragmentation", above=30), "30.*0 to 1"),
        (lambda: Alert("bytes_in_use", above=float("nan")), "nan.*bytes_in_use"),
        (lambda: bfcviz.watch(numpy=True, alerts=["400MiB"]), "'400MiB'.*Alert"),
    ],
)
def test_wrong_arguments_are_refused(wrong, facts):
    with pytest.raises(LiveError, match=facts):
        wrong()


def test_a_text_that_is_not_a_size_is_refused():
    with pytest.raises(ValueError, match=r"much.*size"):
        Alert("bytes_in_use", above="much")

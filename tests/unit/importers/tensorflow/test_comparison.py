import numpy as np
import pytest

from bfcviz.importers.tensorflow.reconstruct import ABSENT, REQUEST, Rebuilt, Requests, compare


def requests_and_rebuilt(count: int = 4) -> tuple[Requests, Rebuilt]:
    """Requests that agree in everything: 1 KiB chunks, 3 of 7 KiB free in one piece of 2 KiB."""
    requests: Requests = np.zeros(count, REQUEST)
    requests["address"] = 4096 + np.arange(count) * 1024
    requests["size"] = 1024
    requests["bytes_in_use"] = 4096
    requests["fragmentation"] = 0.333333

    def full(value: int) -> np.ndarray:
        return np.full(count, value, np.uint64)

    rebuilt = Rebuilt(requests["address"].copy(), full(1024), full(4096), full(3072), full(2048))
    return requests, rebuilt


def test_equal_numbers_match_at_the_precision_of_the_file() -> None:
    checks = compare(*requests_and_rebuilt())
    assert (checks.checked, checks.matched, checks.differing, checks.first) == (4, 4, 0, None)


@pytest.mark.parametrize(
    ("column", "value", "name"),
    [
        ("address", 1, "addr"),
        ("size", 1, "allocation_bytes"),
        ("bytes_in_use", 1, "bytes_allocated"),
        ("fragmentation", 0.333334, "fragmentation"),
        ("fragmentation", float("nan"), "fragmentation"),
    ],
)
def test_every_recorded_number_is_compared(column: str, value: float, name: str) -> None:
    requests, rebuilt = requests_and_rebuilt()
    requests[column][2] = value
    checks = compare(requests, rebuilt)
    assert (checks.checked, checks.matched, checks.differing) == (4, 3, 1)
    assert {field for field, count in checks.fields.items() if count} == {name}
    assert checks.first is not None
    assert checks.first.startswith("request 2 (allocation of 0 bytes): recorded ")


def test_full_precision_is_asked_of_a_file_written_with_it() -> None:
    requests, rebuilt = requests_and_rebuilt()
    requests["fragmentation"] = 1 / 3
    assert compare(requests, rebuilt).differing == 0
    requests["fragmentation"][1] = 1 / 3 + 1e-9
    assert compare(requests, rebuilt).differing == 1


def test_nothing_free_is_nan_on_both_sides_and_absent_numbers_are_not_compared() -> None:
    requests, rebuilt = requests_and_rebuilt()
    rebuilt.free_bytes[0] = rebuilt.largest_free_chunk[0] = 0
    requests["fragmentation"][0] = float("nan")
    requests["fragmentation"][1] = -1
    requests["bytes_in_use"][2] = ABSENT
    assert compare(requests, rebuilt).differing == 0
    rebuilt.free_bytes[3] = 0
    assert compare(requests, rebuilt).fields["fragmentation"] == 1


def test_no_requests_are_no_difference() -> None:
    checks = compare(*requests_and_rebuilt(0))
    assert (checks.checked, checks.matched, checks.first) == (0, 0, None)

import numpy as np
import pytest
from unit.whatif.labelled_streams import stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.events.labels import Labels
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, RequestStream

MiB = 1 << 20


def labelled(*requests):
    """A stream of allocations (label, size)."""
    stream = stream_of([(ALLOCATE, at, size) for at, (_, size) in enumerate(requests)])
    labels = Labels()
    stream.rows["label"] = [labels.intern(label) for label, _ in requests]
    return RequestStream(stream.rows, labels, "labelled")


STREAM = labelled(
    ("fusion", MiB), ("all-gather.1", MiB), ("empty", 0), ("x/all-reduce", 3 * MiB), ("copy", 2 * MiB)
)


def upper_ones(text):
    outcome = policy_of(text).serve(STREAM, 16 * MiB)
    middle = outcome.address.min(where=outcome.address > 0, initial=1 << 62) + np.uint64(8 * MiB)
    return np.flatnonzero(outcome.address >= middle).tolist()


def test_labels_or_sizes_send_requests_to_the_upper_end():
    assert upper_ones("xla:collective_labels=all-gather|all-reduce") == [1, 3]
    assert upper_ones("xla:collective_from=2MiB") == [3, 4]
    assert upper_ones("xla:collective_labels=gather,collective_from=3MiB") == [1, 3]
    assert policy_of("xla").serve(STREAM, 8 * MiB).address[4] % np.uint64(16 * MiB) == 5 * MiB


def test_collectives_at_the_lower_end_are_aligned_and_split_exactly():
    text = "xla:collectives=lower,collective_labels=all-gather|all-reduce"
    assert upper_ones(text) == [0, 4]
    outcome = policy_of(text).serve(STREAM, 16 * MiB)
    assert {int(outcome.address[at]) % (2 * MiB) for at in (1, 3)} == {0}
    whole = labelled(
        ("fusion", 4 * MiB), ("fusion", 7 * MiB)
    )  # less than twice the request is left in the gap
    assert policy_of("xla:collectives=lower").serve(whole, 16 * MiB).size.tolist() == [4 * MiB, 12 * MiB]
    given = policy_of("xla:collectives=lower,upper_gap_split=exact").serve(whole, 16 * MiB)
    assert given.size.tolist() == [4 * MiB, 7 * MiB]


def test_a_recorded_outcome_has_the_same_ends():
    policy = policy_of("xla:collective_from=2MiB")
    plain, recorded = (policy.serve(STREAM, 16 * MiB, record=record) for record in (False, True))
    assert (plain.address == recorded.address).all()
    assert recorded.options == {"collective_from": 2 * MiB}


@pytest.mark.parametrize(
    "text",
    [
        "xla:lower_order=random",
        "xla:upper_split=never",
        "xla:collective_alignment=300",
        "xla:lower_gap_split=half",
        "xla:collectives=middle",
        "xla:fragmentation_fraction=2",
    ],
)
def test_impossible_options_are_named(text):
    with pytest.raises(InvalidRequest, match=text.partition(":")[2].partition("=")[0]):
        policy_of(text)


def test_it_needs_a_limit():
    with pytest.raises(InvalidRequest, match="limit"):
        policy_of("xla").serve(STREAM)

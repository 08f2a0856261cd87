"""HolderChoice: which chunks belong to a holder."""

import numpy as np
from shared import sample_trace

from bfcviz.model.grouping import Grouping, HolderChoice, grouping, members


def _grouping() -> tuple[Grouping, np.ndarray]:
    trace = sample_trace("conv")
    how = grouping(trace, 0, "op")
    records = np.zeros(len(trace.labels), [("label", "<u4")])
    records["label"] = np.arange(len(records))
    return how, records


def test_the_empty_path_holds_everything() -> None:
    how, records = _grouping()
    assert members(how, HolderChoice("op", ()))(records).all()


def test_a_holder_has_the_chunks_of_the_holders_below_it_and_no_others() -> None:
    how, records = _grouping()
    first = next(path for path in map(how.path, range(1, len(records))) if len(path) > 1)
    belongs = members(how, HolderChoice("op", first[:1]))(records)
    expected = [how.path(number)[:1] == first[:1] for number in range(len(records))]
    assert belongs.tolist() == expected
    assert 0 < belongs.sum() < len(records)


def test_no_records() -> None:
    how, records = _grouping()
    assert len(members(how, HolderChoice("op", ("a",)))(records[:0])) == 0

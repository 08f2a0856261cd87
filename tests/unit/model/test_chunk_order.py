import numpy as np
import pytest
from unit.figures.synthetic import busy_trace

from bfcviz.events.schema import bin_of
from bfcviz.model import Model
from bfcviz.model.filters import SORTS, ChunkFilter, order_chunks


@pytest.fixture(scope="module")
def model():
    model = Model(busy_trace())
    model.seek(400)
    return model


def arranged(model, wanted=ChunkFilter(), by="address", **how):  # noqa: B008  it never changes
    return order_chunks(model.chunks(), model.trace.labels, wanted, by, **how)


def key_of(model, chunk, by):
    """What a chunk is ordered by, worked out one by one; None where it has no such thing."""
    used = {
        "requested": chunk["requested"],
        "waste": chunk["size"] - chunk["requested"],
        "label": model.trace.labels.name(int(chunk["label"])).casefold(),
        "born": chunk["born"],
        "age": model.step - int(chunk["born"]),
        "thread": chunk["thread"],
        "stream": chunk["stream"],
    }
    if by in used:
        return used[by] if chunk["in_use"] else None
    return {
        "address": chunk["address"],
        "size": chunk["size"],
        "state": chunk["in_use"],
        "bin": bin_of(int(chunk["size"])),
        "region": chunk["region"],
    }[by]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("by", list(SORTS))
def test_every_order_is_what_sorting_gives(model, by, descending):
    listed = arranged(model, by=by, descending=descending)
    whole = listed.page(0, len(listed))
    chunks = model.chunks()
    keys = [key_of(model, chunk, by) for chunk in chunks]
    has = [i for i in range(len(chunks)) if keys[i] is not None]
    # sorted() keeps equal ones by address either way
    order = sorted(has, key=keys.__getitem__, reverse=descending)
    order += [i for i in range(len(chunks)) if keys[i] is None]
    assert whole["address"].tolist() == chunks["address"][order].tolist()


@pytest.mark.parametrize("by", list(SORTS))
def test_pages_are_pieces_of_the_whole_and_places_lead_back(model, by):
    listed = arranged(model, by=by)
    whole = listed.page(0, len(listed))
    for start in range(0, len(listed) + 5, 7):
        assert np.array_equal(listed.page(start, start + 7), whole[start : start + 7])
    for place, chunk in enumerate(whole):
        assert listed.place_of(int(chunk["address"])) == place
    assert listed.place_of(1) is None
    assert listed.place_of(int(whole["address"].max()) + 1) is None


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (ChunkFilter(state="free"), lambda c, _: not c["in_use"]),
        (ChunkFilter(state="in use"), lambda c, _: c["in_use"]),
        (ChunkFilter(text="Layer_3"), lambda _, name: "layer_3" in name),
        (ChunkFilter(thread=0), lambda c, _: c["in_use"]),
        (ChunkFilter(least_size=1024, most_size=9000), lambda c, _: 1024 <= c["size"] <= 9000),
    ],
)
def test_only_what_is_asked_for(model, wanted, fits):
    listed = arranged(model, wanted, "size")
    chunks = model.chunks()
    slowly = {int(c["address"]) for c in chunks if fits(c, model.trace.labels.name(int(c["label"])))}
    assert 0 < len(slowly) < len(chunks)
    assert set(listed.page(0, len(listed))["address"].tolist()) == slowly
    left_out = next(int(c["address"]) for c in chunks if int(c["address"]) not in slowly)
    assert listed.place_of(left_out) is None


def test_an_address_finds_the_one_chunk_it_lies_in(model):
    chunk = model.chunks()[7]
    inside = int(chunk["address"]) + int(chunk["size"]) - 1
    listed = arranged(model, ChunkFilter(text=f"{inside:#x}"))
    assert listed.page(0, 9)["address"].tolist() == [chunk["address"]]


def test_an_empty_heap_has_no_rows():
    model = Model(busy_trace())
    for by in SORTS:
        listed = arranged(model, by=by)
        assert len(listed) == len(listed.page(0, 14)) == 0
        assert listed.place_of(0) is None


def test_reasons_are_said_in_words():
    assert ChunkFilter().reasons() == []
    assert ChunkFilter(state="free", least_size=256).reasons() == ["free", "size at least 256 B"]

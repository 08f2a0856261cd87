"""The contract of every provider of heaps, which serves or observes a framework (`HeapProvider`)."""

from functools import partial

import pytest
from contracts.providers import PROVIDERS
from processes import needs_compiled

import bfcviz
from bfcviz.errors import LiveError
from bfcviz.events.schema import Kind
from bfcviz.frameworks import FRAMEWORKS
from bfcviz.live.heap_provider import HeapProvider

HAVE_HEAPS = [name for name in PROVIDERS if not name.startswith("tensorflow")]


@pytest.fixture(
    params=[pytest.param(name, marks=needs_compiled if " serve" in name else ()) for name in PROVIDERS]
)
def make(request, monkeypatch, tmp_path):
    """Makes the provider; `name` is its framework, way and mechanism."""
    make = partial(PROVIDERS[request.param](monkeypatch, tmp_path))
    make.name = request.param
    return make


def marks_of(provider):
    found = []
    for heap, log in zip(provider.heaps, provider.logs, strict=True):
        events = log.copy(log.oldest, log.head)
        labels = events["label"][events["kind"] == Kind.MARK]
        found.append([heap.labels.name(int(label)) for label in labels])
    return found


def test_the_table_names_every_provider():
    ways = {f"{name} {way.name}" for name, framework in FRAMEWORKS.items() for way in framework.ways}
    provided = {" ".join(name.split()[:2]) for name in PROVIDERS}
    assert ways - provided <= {"cupy serve", "cupy observe"}  # where CuPy is not installed
    assert provided <= ways


def test_it_says_what_it_is(make):
    provider = make()
    name, way, *_ = make.name.split()
    assert isinstance(provider, HeapProvider)
    assert (provider.title, provider.way) == (FRAMEWORKS[name].title, way)
    with provider:
        assert provider.description.startswith(
            f"{provider.title} is {'served' if way == 'serve' else 'observed'}"
        )
        assert provider.out_of_memory is None


def test_it_knows_its_heaps(make):
    with make() as provider:
        assert bool(provider.heaps) == (make.name in HAVE_HEAPS)
        assert all(log is heap.log for log, heap in zip(provider.logs, provider.heaps, strict=True))
        assert provider.new_heaps([]) == provider.heaps
        assert provider.new_heaps(provider.heaps) == []
        assert provider.new_heaps(provider.heaps[:-1]) == provider.heaps[-1:]


def test_it_is_active_for_the_length_of_a_with_and_can_be_entered_again(make):
    provider = make()
    assert not provider.is_active
    for _ in range(2):
        with provider as entered:
            assert entered is provider
            assert provider.is_active
            provider.settle()
        assert not provider.is_active


def test_it_is_entered_once_at_a_time_and_goes_on(make):
    with make() as provider:
        with pytest.raises(LiveError, match=f"{provider.title} is .* already"):
            provider.__enter__()
        assert provider.is_active
        other = make()
        if provider.is_shared:
            with other:
                assert (provider.is_active, other.is_active) == (True, True)
        else:
            with pytest.raises(LiveError, match="already"):
                other.__enter__()
        assert (provider.is_active, other.is_active) == (True, False)
    with make():  # once it is left another can begin
        pass


def test_close_ends_it_and_may_come_twice(make):
    provider = make()
    provider.close()
    provider.__enter__()
    for _ in range(2):
        provider.close()
        assert not provider.is_active
    with provider:
        assert provider.is_active


def test_marks_reach_its_heaps_inside_the_with(make):
    provider = make()
    bfcviz.mark("before")
    with provider:
        bfcviz.mark("inside", 3)
    bfcviz.mark("after")
    for found in marks_of(provider):
        assert found.count("inside") == 1
        assert {"before", "after"}.isdisjoint(found)


def test_an_error_ends_it_and_goes_on(make):
    provider = make()
    with pytest.raises(ZeroDivisionError), provider:
        raise ZeroDivisionError
    assert not provider.is_active


def test_one_that_cannot_begin_is_not_active(make, monkeypatch):
    provider = make()

    def fail(_self):
        raise LiveError("no GPU")

    with monkeypatch.context() as broken:
        broken.setattr(type(provider), "_start", fail)
        with pytest.raises(LiveError, match="no GPU"):
            provider.__enter__()
    assert not provider.is_active
    with provider:
        assert provider.is_active

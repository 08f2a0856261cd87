"""Every kind of event in a few words: numbers and verdicts."""

import pytest
from unit.analysis.facts import has_facts

from bfcviz.analysis.event_text import short_words
from bfcviz.events.labels import Labels
from bfcviz.events.schema import EVENT, Kind


@pytest.mark.parametrize(
    ("kind", "fields", "facts"),
    [
        (Kind.EXTEND, {"region": 2}, ("new", "2")),
        (Kind.EXTEND, {"region": 2, "flags": 1}, ("region 2", "extended")),
        (Kind.SPLIT, {"bin": 4}, ("split", "bin 4")),
        (Kind.SPLIT, {"bin": 4, "flags": 2}, ("padding",)),
        (Kind.ALLOCATE, {"bin": 4, "size": 512, "requested": 500}, ("bin 4", "12 B")),
        (Kind.ALLOCATE, {"bin": 4, "size": 512, "requested": 512}, ("bin 4",)),
        (Kind.FREE, {"seq": 1001, "other": 1}, ("1,000 steps",)),
        (Kind.FREE, {"seq": (1 << 32) + 1, "other": 0, "flags": 4}, ("1 step", "merge deferred")),
        (Kind.MERGE, {"bin": 9}, ("merged", "bin 9")),
        (Kind.RELEASE, {"region": 1}, ("region 1", "released")),
        (Kind.OOM, {"address": 4096, "size": 256}, ("4.0 KiB", "256 B")),
        (Kind.MARK, {"size": 7}, ("7",)),
        (Kind.MARK, {}, ()),
    ],
)
def test_every_kind_in_a_few_words(kind, fields, facts):
    nothing = dict.fromkeys(EVENT.names, 0)
    words = short_words(nothing | fields | {"kind": int(kind)}, Labels())
    assert has_facts(words, *facts)
    assert bool(words) == bool(facts)

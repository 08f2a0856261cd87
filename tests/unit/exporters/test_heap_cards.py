"""The card of a failure and of a peak: the facts in it, and what is hostile in a file."""

import re

import pytest
from heaps import MIB, new_heap
from shared import sample_trace
from unit.analysis.built import state
from unit.figures.synthetic import MiB, PlainHeap

from bfcviz.analysis.failures import diagnose
from bfcviz.exporters.heap_cards import STYLE, card_holders, failure_card, peak_card
from bfcviz.figures.colouring import colouring
from bfcviz.figures.theme import DARK, LIGHT, THEMES
from bfcviz.model import Model
from bfcviz.model.find_steps import failed_steps, peak
from bfcviz.model.trace_from_source import trace_of
from bfcviz.units import format_bytes


def failed(trace):
    """The card of the first failure of a trace."""
    step = failed_steps(trace)[0]
    model = Model(trace)
    model.seek(step - 1)
    return failure_card(model, diagnose(trace, step - 1, model))


def at_peak(trace, says=""):
    model = Model(trace)
    model.seek(peak(trace))
    return peak_card(model, says)


def text(card):
    return " ".join(re.sub("<[^>]*>", " ", card.partition("</style>")[2]).split())


def fragmented(name="layer"):
    heap = new_heap(64 * MIB)
    held = [heap.allocate(8 * MIB, label=f"{name}_{number % 4}") for number in range(8)]
    for address in held[1::2]:
        heap.free(address)
    assert heap.try_allocate(12 * MIB, label="attention") is None
    return trace_of(heap)


def test_the_card_of_a_failure_has_verdict_sizes_holders_and_one_thing_to_do():
    card = failed(fragmented())
    words = text(card)
    for fact in ("OOM", "12.0 MiB", "8.0 MiB of 32.0 MiB free", "fragmented by layer_", "attention failed"):
        assert fact in words
    for bar in ("asked 12.0 MiB", "largest free 8.0 MiB", "free 32.0 MiB", "wasted 0 B"):
        assert bar in words
    assert re.findall(r"(layer_\d) ([\d.]+ MiB) (\d+%)", words) == [
        ("layer_0", "16.0 MiB", "50%"),
        ("layer_2", "16.0 MiB", "50%"),
    ]
    assert words.count("To do") == 1
    assert "Free the chunk in use" in words
    assert "bfcviz-failure" in card


def marks(card):
    """The names in the legend of the map."""
    return re.findall(r'<text [^>]*font-size="11"[^>]*>([^<]*)</text>', card)


def test_a_failed_request_is_marked_where_it_would_fit_with_what_is_in_its_way():
    assert {"nearest miss", "in the way"} <= set(marks(failed(fragmented())))


def test_the_model_stays_where_it_is():
    trace = fragmented()
    step = failed_steps(trace)[0]
    model = Model(trace)
    model.seek(step - 1)
    failure_card(model, diagnose(trace, step - 1, model))
    assert model.step == step - 1


def test_the_card_of_a_peak_has_no_request():
    heap = PlainHeap(64 * MiB)
    heap.free(heap.allocate(6 * MiB, "net/conv"))
    card = at_peak(heap.trace(), "NumPy is served.")
    assert "Peak: 6.0 MiB" in text(card)
    assert "NumPy is served." in text(card)
    assert "asked" not in text(card)
    assert "To do" not in text(card)
    assert "nearest miss" not in marks(card)


def test_numbers_that_the_file_does_not_have_are_unknown():
    trace = state(
        [[4, -4]], asked=6, limit=8, facts={"largest_free_chunk": None, "requested_bytes_in_use": None}
    )
    assert "largest free unknown" in text(failed(trace))
    assert "wasted unknown" in text(failed(trace))


def test_the_holders_are_all_bytes_in_use():
    heap = PlainHeap(256 * MiB)
    for number in range(60):
        heap.allocate((number + 1) * 10_000, f"net/layer_{number}/op")
    model = Model(heap.trace())
    model.seek(len(heap.events))
    rows = card_holders(model)
    assert sum(row.size for row in rows if not row.depth) == model.stats().bytes_in_use
    assert sum(row.share for row in rows if not row.depth) == pytest.approx(1)
    assert len({row.path for row in rows}) == len(rows)


@pytest.mark.parametrize("name", ["transformer", "lstm", "conv"])
def test_a_row_has_the_bytes_of_its_holder_alone(name):
    model = Model(sample_trace(name))
    model.seek(peak(model.trace))
    chunks = model.in_use()
    names = [model.trace.labels.name(label) for label in chunks["label"].tolist()]
    *rows, other = card_holders(model)
    for row in rows:
        of_it = [each == row.path or each.startswith(f"{row.path}/") for each in names]
        assert row.size == chunks["size"][of_it].sum() > 0, row.path
    assert other.size == model.stats().bytes_in_use - sum(row.size for row in rows if not row.depth)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_its_colours_are_those_of_the_dashboard(theme):
    heap = PlainHeap(4 * MiB)
    heap.allocate(MiB, "a")
    trace = heap.trace()
    model = Model(trace)
    model.seek(len(trace))
    colours = colouring(trace, 0, "holder", theme, model.chunks())
    variables = "".join(f"--holder-{number}:{paint.fill};" for number, paint in enumerate(colours.paints))
    assert variables in STYLE


def test_it_follows_the_theme_of_the_page():
    for theme in THEMES.values():
        assert f"--oom:{theme.oom}" in STYLE
    assert '[data-jp-theme-light="false"] .bfcviz-card' in STYLE
    assert "prefers-color-scheme:dark" in STYLE


def test_names_cannot_break_the_page():
    assert "<script>" not in failed(fragmented("<script>"))
    assert "&lt;script&gt;" in failed(fragmented("<script>"))


def test_many_chunks_and_regions_stay_small():
    heap = new_heap(1 << 30, allow_growth=True)
    held = [heap.allocate(4096 * (number % 7 + 1), label=f"op{number % 9}") for number in range(20_000)]
    for address in held[::3]:
        heap.free(address)
    card = at_peak(trace_of(heap))
    assert len(card) < 300_000
    assert format_bytes(sum(4096 * (number % 7 + 1) for number in range(20_000))) in text(card)


def test_a_heap_without_a_region_has_a_headline_alone():
    card = peak_card(Model(trace_of(new_heap())))
    assert "No allocation" in text(card)
    assert "<svg" not in card

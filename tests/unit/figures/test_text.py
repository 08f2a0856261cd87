"""The line of facts: file, step and totals."""

import pytest
from shared import sample_trace

from bfcviz.events.origin import Origin
from bfcviz.events.trace import Trace
from bfcviz.figures.text import (
    LONGEST,
    LONGEST_SHORT_NAME,
    axis_unit,
    fitted,
    harmless,
    legend_texts,
    picture_facts,
)
from bfcviz.model import Model
from bfcviz.units import exact_bytes, format_bytes


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("plain/MatMul", "plain/MatMul"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("a&b \"q\" 'r'", "a&amp;b &#34;q&#34; &#x27;r&#x27;"),
        ("two\nlines\x00", "two lines "),
        ("\u05d0\u05d1", "\u2068\u05d0\u05d1\u2069"),
        ("abc\u202egnp.exe", "abc gnp.exe"),
        ("two\u2028lines\u2029", "two lines "),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_labels_are_harmless(label, shown):
    assert harmless(label) == shown


def test_long_labels_keep_both_ends():
    shown = harmless("start" + "x" * 500 + "end")
    assert shown.startswith("\u2068start")
    assert shown.endswith("end\u2069")
    assert len(shown) == LONGEST + 2


def test_escaping_comes_after_cutting():
    assert harmless("<" * 200).replace("&lt;", "").strip("\u2068\u2069") == "…"


@pytest.mark.parametrize(
    ("num_bytes", "shown"), [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1.0 MiB (1,048,576 B)")]
)
def test_bytes_are_also_shown_exactly(num_bytes, shown):
    assert exact_bytes(num_bytes) == shown


@pytest.mark.parametrize(
    ("largest", "unit"),
    [(0, (1, "B")), (2047, (1, "B")), (2048, (1 << 10, "KiB")), (6 << 30, (1 << 30, "GiB"))],
)
def test_axis_units_keep_numbers_short(largest, unit):
    assert axis_unit(largest) == unit


def test_short_names_leave_out_the_common_path():
    names = ["model/layer_1/conv/weights", "model/layer_1/dense", "loss", "model/layer_1/density"]
    assert legend_texts(names) == ["conv/weights", "dense", "loss", "density"]


def test_a_single_path_stays_whole():
    assert legend_texts(["model/dense", "loss"]) == ["model/dense", "loss"]


def test_short_names_that_look_the_same_get_a_number():
    one, two = legend_texts([f"{'x' * 50}{number}{'y' * 50}" for number in "12"])
    assert one != two
    assert two == f"{one} (2)"
    assert len(one.strip("\u2068\u2069")) == LONGEST_SHORT_NAME


def test_short_names_are_harmless():
    assert legend_texts(["<b>"]) == ["&lt;b&gt;"]
    assert legend_texts([]) == []


def test_a_name_keeps_the_parts_at_its_end():
    name = "gradient_tape/layer_1/convolution/Conv2DBackpropFilter"
    assert fitted(name, 100) == name
    assert fitted(name, 35) == "convolution/Conv2DBackpropFilter"
    assert fitted(name, 10) == "Conv2…lter"
    assert fitted(name, 3) == ""
    assert fitted("plain name", 6) == "pla…me"


def test_it_names_the_file_the_step_and_the_totals():
    trace = sample_trace("conv")
    model = Model(trace)
    model.seek(33_817)
    stats, facts = model.stats(), picture_facts(model)
    assert facts.startswith("conv.xplane.pb.gz")
    assert "33,817 of 65,583" in facts
    sizes = (
        stats.bytes_in_use,
        stats.free_bytes,
        stats.largest_free_chunk,
        stats.pool_bytes,
        stats.bytes_limit,
    )
    assert all(format_bytes(size) in facts for size in sizes)


def test_a_hostile_name_is_escaped_and_unknown_numbers_are_left_out():
    trace = sample_trace("oom_log")
    origin = Origin(
        "other",
        "<img src=x onerror=alert(1)>\n",
        trace.origin.status,
        (),
        trace.origin.pools,
        {"history": "state", "facts": [{"free_bytes": None, "largest_free_chunk": None}]},
    )
    bare = Trace.from_events(trace.read(0, len(trace)), trace.labels, origin)
    model = Model(bare)
    model.seek(len(bare))
    facts = picture_facts(model)
    assert "<img" not in facts
    assert "\n" not in facts
    assert "free" not in facts
    assert "in use" in facts

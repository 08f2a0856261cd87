import pytest

from bfcviz.figures.text import LONGEST, LONGEST_SHORT_NAME, axis_unit, fitted, harmless, legend_texts
from bfcviz.units import exact_bytes


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

from bfcviz.figures.style.short_names import LONGEST, short_names


def test_parts_that_all_paths_begin_with_are_left_out():
    names = ["model/layer_1/conv/weights", "model/layer_1/dense", "loss", "model/layer_1/density"]
    assert short_names(names) == ["conv/weights", "dense", "loss", "density"]


def test_a_single_path_stays_whole():
    assert short_names(["model/dense", "loss"]) == ["model/dense", "loss"]


def test_what_looks_the_same_when_cut_gets_a_number():
    one, two = short_names([f"{'x' * 50}{number}{'y' * 50}" for number in "12"])
    assert one != two
    assert two == f"{one} (2)"
    assert len(one.strip("\u2068\u2069")) == LONGEST


def test_nothing_can_be_injected():
    assert short_names(["<b>"]) == ["&lt;b&gt;"]
    assert short_names([]) == []

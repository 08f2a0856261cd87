"""Places in code: their names, and which frame of a stack names an allocation."""

import pytest

from bfcviz.code_places import CodePlace, own_place, places_of


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (CodePlace("forward", "/home/me/train.py", 41), "train.py:41 forward"),
        (CodePlace("Net.forward", "C:\\me\\train.py", 41), "train.py:41 Net.forward"),
        (CodePlace("<module>", "/home/me/train.py", 7), "train.py:7"),
        (CodePlace("main.<locals>.step", "train.py", 9), "train.py:9 step"),
        (CodePlace("Net.step.<locals>.<listcomp>", "train.py", 9), "train.py:9 Net.step"),
        (CodePlace("<lambda>", "train.py", 9), "train.py:9"),
        (CodePlace("step", "/t/ipykernel_17/2034.py", 3), "cell:3 step"),
        (CodePlace("step", "In[5]", 3), "In[5]:3 step"),
        (CodePlace("step", "train.py", 0), "train.py step"),
        (CodePlace("malloc", "??", 0), "malloc"),
        (CodePlace("malloc", "", 0), "malloc"),
    ],
)
def test_names(place, name):
    assert place.name == name


@pytest.mark.parametrize(
    ("files", "own"),
    [
        (["/venv/lib/python3.11/site-packages/torch/nn.py", "/home/me/net.py", "/home/me/train.py"], 1),
        (["/usr/lib/python3.12/threading.py", "<frozen runpy>", "/home/me/train.py"], 2),
        (["/build/torch/Tensor.cpp", "/opt/pytorch/torch/nn.py"], 1),
        (["??", "/build/aten/Alloc.cpp"], 1),
        (["??", "??"], 0),
        (["<string>", "/venv/site-packages/run.py"], 0),
    ],
)
def test_the_innermost_place_outside_of_libraries_counts(files, own):
    stack = [CodePlace("f", file, line) for line, file in enumerate(files)]
    assert own_place(stack) is stack[own]


def test_an_empty_stack_has_no_place():
    assert own_place([]) is None


def test_a_stack_as_text_is_read_back():
    stack = [CodePlace("f (g)", "/a b/(c).py", 3), CodePlace("<module>", "d.py", 12)]
    assert places_of("\n".join(place.text for place in stack)) == stack
    assert places_of(f"no frame\nf (a.py:x)\nf (a.py:{'9' * 5000})") == []

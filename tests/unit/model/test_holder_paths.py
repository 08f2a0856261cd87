"""Paths of op names and stacks, and places in the code."""

import pytest

from bfcviz.code_places import place_in_code
from bfcviz.model.grouping import op_path, stack_path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("", (None,)),
        ("MatMul", ("MatMul",)),
        ("layer_4/attention/Softmax", ("layer_4", "attention", "Softmax")),
        ("jit(train)/transpose(jvp(a/b))/dot", ("jit(train)", "transpose(jvp(a/b))", "dot")),
        ("half(open/dot", ("half(open", "dot")),
        ("/home/me/pool.cpp:12", ("home", "me", "pool.cpp:12")),
        ("a//b/", ("a", "b")),
        ("/", ("/",)),
    ],
)
def test_op_paths(name, path):
    assert op_path(name) == path


def test_a_stack_begins_at_its_outermost_frame():
    assert stack_path("inner (a.py:1)\nouter (b.py:2)") == ("outer (b.py:2)", "inner (a.py:1)")
    assert stack_path("") == (None,)


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        ("", ""),
        (
            "relu (/usr/lib/python3.11/site-packages/torch/nn.py:7)\nstep (/home/me/train.py:42)",
            "train.py:42 step",
        ),
        ("relu (C:\\py\\site-packages\\torch\\nn.py:7)\nstep (C:\\me\\train.py:42)", "train.py:42 step"),
        ("relu (/opt/site-packages/torch/nn.py:7)", "torch: nn.py:7 relu"),
        ("tensorflow::Tensor::Tensor()\nmain", "tensorflow::Tensor::Tensor()"),
    ],
)
def test_the_place_in_the_code(stack, place):
    assert place_in_code(stack) == place

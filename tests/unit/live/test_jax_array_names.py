"""Names of arrays: the line of the program, the stack, shape and data type; each stack is read once."""

from unit.live.jax_stand_in import Stack, stack

from bfcviz.events.labels import Labels
from bfcviz.live import jax
from bfcviz.live.jax import ArrayNames


def test_the_line_of_the_program_names_an_array():
    labels = Labels()
    label = labels[ArrayNames(labels).number(stack(41, "Net.forward"), (3, 4), "float32")]
    assert label.name == "train.py:41 Net.forward"
    assert (label.details["shape"], label.details["data_type"]) == ("[3,4]", "float32")
    assert label.details["stack"].split("\n") == [
        "bind (/env/site-packages/jax/_src/core.py:5)",
        "Net.forward (/home/me/train.py:41)",
        "<module> (/home/me/train.py:99)",
    ]


def test_without_a_stack_the_type_and_shape_name_it():
    labels = Labels()
    names = ArrayNames(labels)
    label = labels[names.number(None, (3, 4), "float32", 8)]
    assert label.name == "float32[3,4]"
    assert (label.details["devices"], "stack" in label.details) == ("8", False)
    assert labels.name(names.number(Stack(()), (), "int8")) == "int8[]"


def test_a_stack_is_read_once(monkeypatch):
    names = ArrayNames(Labels())
    one, same, other = stack(1), stack(1), stack(2)
    numbers = [
        names.number(each, shape, "float32") for each in (one, same, other) for shape in ((1,), (2,), (1,))
    ]
    assert numbers == [1, 2, 1, 1, 2, 1, 3, 4, 3]
    assert (len(one.read), len(same.read), len(other.read)) == (1, 0, 1)
    monkeypatch.setattr(jax, "MOST", 4)
    assert names.number(stack(3), (1,), "float32") == 5  # the tables were full, and are emptied
    assert names.number(one, (1,), "float32") == 1
    assert len(one.read) == 2

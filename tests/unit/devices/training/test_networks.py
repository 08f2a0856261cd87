"""Networks: impossible sizes are refused."""

import pytest

from bfcviz.devices.training import MLP, Attention, ConvNet
from bfcviz.errors import InvalidRequest


@pytest.mark.parametrize(
    ("model", "sizes", "said"),
    [
        (MLP, {"batch": 0}, "batch=0"),
        (ConvNet, {"classes": -1}, "classes=-1"),
        (MLP, {"sizes": ()}, "input"),
        (MLP, {"sizes": (4, 0)}, r"\(4, 0\)"),
        (ConvNet, {"image": 14, "channels": (3, 4, 4)}, "multiple of 4"),
        (ConvNet, {"image": 0}, "multiple of 4"),
        (ConvNet, {"channels": ()}, "channels"),
        (ConvNet, {"size": 2}, "odd"),
        (Attention, {"heads": 0}, "heads=0"),
        (Attention, {"width": 32, "heads": 5}, "width"),
    ],
)
def test_a_model_of_sizes_that_cannot_be_is_refused(model, sizes, said):
    with pytest.raises(InvalidRequest, match=said):
        model(**sizes)

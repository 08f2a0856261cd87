"""Device names in all forms, and names that do not exist."""

import pytest

from bfcviz.errors import UnknownDevice


@pytest.mark.parametrize(
    "name",
    [
        "/device:GPU:1",
        "/job:localhost/replica:0/task:0/device:GPU:1",
        "GPU:1",
        "/GPU:1",
        "gpu:1",
        "/job:localhost/replica:0/task:0/gpu:1",
    ],
)
def test_a_device_is_found_by_any_form_of_its_name(manager, name):
    device = manager.device(name)
    assert (device.name, device.full_name) == (
        "/device:GPU:1",
        "/job:localhost/replica:0/task:0/device:GPU:1",
    )
    assert manager[name] is device
    assert name in manager


@pytest.mark.parametrize("name", ["GPU:2", "CPU:1", "TPU:0", "GPU", "", "/device:GPU:-1", "GPU:0 ", None, 0])
def test_an_unknown_name_says_which_there_are_or_how_it_is_written(manager, name):
    with pytest.raises(UnknownDevice, match=r"/device:GPU:0"):
        manager.device(name)
    assert name not in manager

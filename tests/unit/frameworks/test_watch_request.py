"""What users ask for, in all its spellings, becomes a framework, a way and options; or an error that tells them."""

import pytest

from bfcviz.errors import LiveError
from bfcviz.frameworks import WatchRequest, resolve, way_of


@pytest.mark.parametrize(
    ("asked", "resolved"),
    [
        (("torch",), ("torch", "observe", {})),
        (("numpy", None, {"small": "1KiB"}), ("numpy", "serve", {"small": 1024})),
        (("torch", None, {"mechanism": "replace"}), ("torch", "serve", {"mechanism": "replace"})),
        (("torch", "replace"), ("torch", "serve", {"mechanism": "replace"})),
        (("torch", "pool", {"limit": 4096}), ("torch", "serve", {"mechanism": "pool", "limit": 4096})),
        (("torch", None, {"devices": (0, 1)}), ("torch", "observe", {"devices": [0, 1]})),
        (("rmm", None, {"headroom": "1GiB"}), ("rmm", "serve", {"headroom": 1 << 30})),
        (("rmm", None, {"capture": "label"}), ("rmm", "observe", {"capture": "label"})),
        (("rmm", "log"), ("rmm", "observe", {"mechanism": "log"})),
        (("cupy", None, {"memory": "managed"}), ("cupy", "serve", {"memory": "managed"})),
        (("tensorflow", None, {"every_s": 60}), ("tensorflow", "observe", {"every_s": 60})),
    ],
)
def test_a_request_is_resolved(asked, resolved):
    assert resolve(*asked) == WatchRequest(*resolved)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (("nothing",), ["nothing", "numpy", "tensorflow"]),
        (("jax", "serve"), ["jax", "'serve'", "'observe'"]),
        (("cupy", "replace"), ["cupy", "'replace'", "'serve'", "'observe'"]),
        (("numpy", None, {"colour": 1}), ["NumPy", "'serve'", "colour", "limit, small, capture"]),
        (("torch", None, {"limit": 1}), ["PyTorch", "'observe'", "limit", "devices", "'serve' takes it"]),
        (("torch", None, {"devices": [0], "limit": 1}), ["PyTorch", "'observe'", "limit", "'serve'"]),
        (("torch", "serve", {"devices": [0]}), ["PyTorch", "'serve'", "devices", "'observe' takes it"]),
        (("torch", "replace", {"mechanism": "pool"}), ["PyTorch", "'replace'", "'pool'"]),
        (("torch", "serve", {"mechanism": "both"}), ["mechanism='both'", "pool, replace"]),
        (("torch", "serve", {"memory": "async"}), ["memory='async'", "device, managed, virtual"]),
        (("cupy", "serve", {"limit": "much"}), ["CuPy", "limit='much'", "512MiB"]),
        (("cupy", "serve", {"limit": True}), ["CuPy", "limit=True"]),
        (("rmm", "observe", {"devices": "0"}), ["RMM", "devices='0'", "numbers"]),
        (("rmm", "observe", {"devices": 0}), ["RMM", "devices=0", "numbers"]),
        (("rmm", "observe", {"every_s": "1"}), ["RMM", "every_s='1'", "seconds"]),
        (("torch", "observe", {"max_entries": 1.5}), ["max_entries=1.5", "whole number"]),
        (("torch", "observe", {"capture": object}), ["capture", "nothing, label, stack"]),
    ],
)
def test_what_cannot_be_is_told_with_what_can(asked, named):
    with pytest.raises(LiveError) as caught:
        resolve(*asked)
    assert [word for word in named if word not in str(caught.value)] == []


def test_errors_name_flags_where_a_command_asked():
    with pytest.raises(LiveError, match=r"--max-entries; its options are --limit, --small, --capture$"):
        resolve("numpy", None, {"max_entries": 1}, for_command=True)


@pytest.mark.parametrize(
    ("asked", "takes"),
    [
        (("numpy",), True),
        (("cupy", "observe"), True),
        (("torch",), True),
        (("torch", "serve"), False),
        (("rmm",), True),
        (("rmm", "serve"), True),
        (("jax",), False),
    ],
)
def test_who_can_record_stacks(asked, takes):
    assert way_of(resolve(*asked)).takes_stacks is takes

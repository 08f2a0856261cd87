"""250 random sequences of calls give the answers of TensorFlow 2.21 (recorded by `ask_tensorflow.py`)."""

import json
from collections import Counter

import pytest
from shared import ROOT

import bfcviz
from bfcviz.devices import LogicalDeviceConfiguration, SettingIgnored, Settings
from bfcviz.errors import DevicesError
from bfcviz.units import GiB, MiB

ANSWERS = json.loads((ROOT / "tests" / "data" / "tensorflow_settings.json").read_text())

SAYS = {
    "Unrecognized device": "unrecognised device|not of type",
    "Cannot set memory growth on device when virtual devices configured": "logical devices are configured",
    "Cannot set memory growth on non-GPU and non-Pluggable devices": "only GPUs",
    "Physical devices cannot be modified after being initialized": "physical devices cannot be modified after",
    "Virtual devices cannot be modified after being initialized": "logical devices cannot be modified after",
    "Visible devices cannot be modified after being initialized": "visible devices cannot be modified after",
    "Setting memory limit is required for GPU virtual devices": "a memory limit is required",
    "Setting memory limit on CPU virtual devices is currently not supported": "memory limit on logical CPU devices",
    "Memory growth cannot differ between GPU devices": "memory growth cannot differ",
    "No CPU devices are available in this process": "no CPU devices are available",
}


class Ours:
    """The recorded machine: a CPU and two GPUs."""

    def __init__(self):
        gpus = bfcviz.simulate_gpus([16 * GiB] * 2, memory="addresses")
        self.settings = Settings(gpus, environment={})
        (cpu,) = self.settings.list_physical_devices("CPU")
        self.devices = {"CPU:0": cpu, "GPU:0": gpus[0], "GPU:1": gpus[1]}
        (self.devices["GPU:9"],) = bfcviz.simulate_gpus([GiB])

    def answer(self, name, *arguments):
        if name == "initialise":
            return self.initialise()
        first, second = arguments
        first = [self.devices[each] for each in first] if isinstance(first, list) else self.devices[first]
        if name == "set_logical_device_configuration":
            second = [LogicalDeviceConfiguration(limit) for limit in second]
        return getattr(self.settings, name)(first, second)

    def initialise(self):
        planned = self.settings.plan()
        self.settings.initialise(planned)
        gpus = [each for each in planned if each.name.device_type == "GPU"]
        made = [
            [
                int(each.physical.name[-1]),
                None if each.kept_back else each.memory_limit / MiB,
                each.options.allow_growth,
            ]
            for each in gpus
        ]
        return [len(planned) - len(gpus), made]


@pytest.mark.filterwarnings(f"ignore::{SettingIgnored.__module__}.{SettingIgnored.__name__}")
def test_every_call_is_answered_as_tensorflow_does():
    for case in ANSWERS["cases"]:
        ours = Ours()
        for call, theirs in case:
            if "raises" in theirs:
                with pytest.raises(DevicesError, match=SAYS[theirs["says"]]) as caught:
                    ours.answer(*call)
                kinds = [kind.__name__ for kind in type(caught.value).__mro__]
                assert theirs["raises"] in (*kinds, "LookupError"), (case, call)
            else:
                assert ours.answer(*call) == theirs["is"], (case, call)


def test_the_sequences_meet_every_answer_often():
    answers = Counter(answer.get("says", "fine") for case in ANSWERS["cases"] for _, answer in case)
    assert set(answers) == {*SAYS, "fine"}
    assert min(answers.values()) >= 10

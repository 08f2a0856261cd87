"""Records TensorFlow's answers to calls of its memory settings; writes ../data/tensorflow_settings.json beside it.

Run it where TensorFlow is installed (the CPU package does: two GPUs are put into its list of physical devices):
`python tests/unit/devices/ask_tensorflow.py`. Nothing else needs TensorFlow.
`test_like_tensorflow.py` asks us the same.
"""

import json
import random
import sys
from pathlib import Path

SEQUENCES = 250
NAMES = ("CPU:0", "GPU:0", "GPU:1")
STRANGER = "GPU:9"


def one_call(chance):
    """A random call: its name and arguments in JSON types."""
    device = chance.choice((*NAMES, *NAMES[1:], STRANGER))
    kind = chance.random()
    if kind < 0.25:
        wanted = [chance.choice((*NAMES, *NAMES[1:])) for _ in range(chance.randrange(4))]
        wanted += [STRANGER] if chance.random() < 0.05 else []
        return ["set_visible_devices", wanted, chance.choice(("GPU", "GPU", "CPU", None))]
    if kind < 0.55:
        return ["set_memory_growth", device, chance.random() < 0.6]
    if kind < 0.75:
        limits = [chance.choice((None, 1024, 2048, 1024)) for _ in range(chance.randrange(1, 3))]
        return ["set_logical_device_configuration", device, limits]
    return ["initialise"]


def new_context(context):
    """A context of a machine with a CPU and two GPUs."""
    made = context.Context()
    made._initialize_physical_devices()
    made._physical_devices = [d for d in made._physical_devices if d.device_type == "CPU"]
    made._physical_devices += [
        context.PhysicalDevice(f"/physical_device:{name}", "GPU") for name in NAMES[1:]
    ]
    made._visible_device_list = list(made._physical_devices)
    made._memory_growth_map = {d: False for d in made._physical_devices if d.device_type == "GPU"}
    return made


def carry_out(context, made, name, arguments):
    """Make one call and return its answer."""
    devices = {d.name.removeprefix("/physical_device:"): d for d in made._physical_devices}
    devices[STRANGER] = context.PhysicalDevice(f"/physical_device:{STRANGER}", "GPU")
    if name == "initialise":
        return initialise(made)
    first, second = arguments
    if name == "set_visible_devices":
        made.set_visible_devices([devices[each] for each in first], second)
    elif name == "set_memory_growth":
        made.set_memory_growth(devices[first], second)
    else:
        logical = [context.LogicalDeviceConfiguration(memory_limit=limit) for limit in second]
        made.set_logical_device_configuration(devices[first], logical)
    return None


def initialise(made):
    """The devices that its settings ask for: [number of CPUs, [[physical GPU, limit in MiB, growth], ...]]."""
    options, counts = made.config.gpu_options, made.config.device_count
    if counts["CPU"] == 0:  # the C++ side's error
        raise LookupError("No CPU devices are available in this process")
    limits = [list(each.memory_limit_mb) for each in options.experimental.virtual_devices]
    visible = [int(each) for each in options.visible_device_list.split(",") if each]
    visible = [] if counts.get("GPU") == 0 else visible
    gpus = [
        [gpu, limit, options.allow_growth]
        for place, gpu in enumerate(visible)
        for limit in ((limits[place] if limits else None) or [None])
    ]
    made._context_handle = object()
    return [counts["CPU"], gpus]


def main():
    """Record the answers."""
    import tensorflow as tf  # noqa: PLC0415
    from tensorflow.python.eager import context  # noqa: PLC0415

    chance, cases = random.Random(5), []
    for _ in range(SEQUENCES):
        made, case = new_context(context), []
        for call in (one_call(chance) for _ in range(chance.randrange(2, 8))):
            try:
                answer = {"is": carry_out(context, made, call[0], call[1:])}
            except (ValueError, RuntimeError, LookupError) as error:
                answer = {"raises": type(error).__name__, "says": str(error).split(": PhysicalDevice")[0]}
            case.append([call, answer])
        made._context_handle = None
        cases.append(case)
    path = Path(__file__).parents[2] / "data" / "tensorflow_settings.json"
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(f'{{"tensorflow": "{tf.__version__}", "cases": [\n{lines}\n]}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The plan in words: how much each device takes, when, and why."""

from unit.devices.machines import simulated

from bfcviz.devices import DeviceManager, LogicalDeviceConfiguration
from bfcviz.units import GiB, MiB


def test_the_explanation_says_how_much_when_and_why():
    settings, gpus = simulated()
    text = settings.explain()
    for words in (
        "/device:GPU:0 takes 14.5 GiB of /physical_device:GPU:0 (simulated GPU of 16.0 GiB)",
        "at once with the first tensor",
        "1.5 GiB kept back for the system (compute capability 8.x)",
        "/device:GPU:1 takes 6.5 GiB",
        "/device:CPU:0 takes host memory",
    ):
        assert words in text
    for gpu in gpus:
        settings.set_memory_growth(gpu, True)
    settings.set_visible_devices(gpus[0], "GPU")
    settings.set_gpu_options(garbage_collection=False)
    text = settings.explain()
    for words in (
        "takes up to 14.5 GiB",
        "When: 2.0 MiB with the first tensor",
        "no region is released",
        "Memory growth is on.",
        "/physical_device:GPU:1",
    ):
        assert words in text
    settings.set_logical_device_configuration(gpus[0], [LogicalDeviceConfiguration(1024)] * 2)
    assert "(logical device 2 of 2 on this GPU)" in settings.explain()


def test_the_explanation_of_an_order_gives_the_machines_number():
    settings, _ = simulated([16 * GiB, 8 * GiB], visible="1,0")
    assert (
        "/device:GPU:0 takes 6.5 GiB of /physical_device:GPU:0 (simulated GPU of 8.0 GiB, number 1 of"
        in settings.explain()
    )


def test_the_explanation_without_a_gpu_says_so():
    settings, _ = simulated([])
    assert "No GPU" in settings.explain()


def test_what_is_explained_is_what_is_taken():
    for growth in (False, True):
        settings, gpus = simulated([16 * GiB, 8 * GiB])
        for gpu in gpus:
            settings.set_memory_growth(gpu, growth)
        planned = settings.plan()[1:]
        with DeviceManager.create(settings) as manager:
            for each, device in zip(planned, manager.list_devices("GPU"), strict=True):
                heap = device.heap
                assert heap.stats().bytes_limit == device.memory_limit == each.memory_limit
                while (address := heap.try_allocate(256 * MiB)) is not None:
                    last = address
                assert last
                assert heap.stats().pool_bytes == each.memory_limit

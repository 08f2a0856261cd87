"""Factories: which one creates which devices, and in which order."""

import pytest
from unit.devices.machines import simulated

from bfcviz.devices import (
    FACTORIES,
    CPUDevice,
    DeviceFactory,
    DeviceManager,
    FactoryRegistry,
    GPUCompatibleCPUDevice,
)
from bfcviz.devices.device_manager import GPUDeviceFactory, ThreadPoolDeviceFactory
from bfcviz.errors import DevicesError


class Mine(DeviceFactory):
    device_type = "CPU"

    def create(self, context):
        for planned in context.of_type("CPU"):
            yield CPUDevice(planned, context.host)


def test_the_factory_of_highest_priority_makes_the_devices_of_its_kind():
    settings, _ = simulated()
    assert [FACTORIES.priority(kind) for kind in FACTORIES.device_types] == [70, 210]
    with DeviceManager.create(settings) as manager:
        assert type(manager["CPU:0"]) is GPUCompatibleCPUDevice
    mine = FACTORIES.copy()
    mine.register(Mine(), 71)
    with DeviceManager.create(settings.copy(), factories=mine) as manager:
        assert type(manager["CPU:0"]) is CPUDevice
        assert any(step.words.startswith("Mine ") for step in manager.journey.steps)
    assert type(FACTORIES.get("CPU")).__name__ == "GPUCompatibleCPUDeviceFactory"


def test_a_factory_of_lower_priority_stays_behind():
    mine = FACTORIES.copy()
    mine.register(Mine())
    assert mine.get("CPU") is FACTORIES.get("CPU")


def test_two_of_the_same_priority_are_refused():
    registry = FactoryRegistry()
    registry.register(ThreadPoolDeviceFactory(), 60)
    with pytest.raises(DevicesError, match=r"duplicate registration .* priority 60"):
        registry.register(Mine(), 60)
    assert isinstance(registry.get("CPU"), ThreadPoolDeviceFactory)


def test_the_cpu_is_made_first_whatever_the_priorities():
    registry = FactoryRegistry()
    registry.register(GPUDeviceFactory(), 210)
    registry.register(Mine(), 1)
    assert registry.device_types == ["CPU", "GPU"]


def test_a_kind_without_a_factory_is_told():
    registry = FactoryRegistry()
    with pytest.raises(DevicesError, match=r"'GPU'.* none"):
        registry.get("GPU")
    settings, _ = simulated()
    with DeviceManager.create(settings, factories=registry) as manager:
        assert len(manager) == 0


def test_two_devices_of_one_name_are_refused_and_closed():
    made = []

    class Twice(Mine):
        def create(self, context):
            for _ in range(2):
                for device in super().create(context):
                    made.append(device)
                    yield device

    registry = FACTORIES.copy()
    registry.register(Twice(), 99)
    settings, _ = simulated()
    with pytest.raises(DevicesError, match="/device:CPU:0"):
        DeviceManager.create(settings, factories=registry)
    assert all(device.closed for device in made)
    assert not settings.initialised

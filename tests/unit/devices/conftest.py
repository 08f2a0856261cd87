"""Fixtures for device tests."""

import pytest
from unit.devices.machines import new_settings

from bfcviz.devices import DeviceManager


@pytest.fixture
def manager():
    """A session with two simulated GPUs."""
    with DeviceManager.create(new_settings()) as made:
        yield made

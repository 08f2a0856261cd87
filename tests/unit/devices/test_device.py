"""CUDA devices over a fake driver: discovery, allocation and release; and the page of the room."""

import contextlib
import ctypes
import io
import re

import pytest
from shared import ROOT
from unit.devices.machines import fake

from bfcviz.allocator import cuda_driver
from bfcviz.allocator.interface import AllocatorAttributes
from bfcviz.devices import (
    DeviceManager,
    Settings,
    cuda_gpus,
)
from bfcviz.errors import DeviceError
from bfcviz.units import GiB, MiB

ON_HOST_FOR_GPU = AllocatorAttributes(on_host=True, gpu_compatible=True)


def test_the_rule_asks_the_driver_what_is_free():
    settings, _, library = fake()
    library.allocated[0x1000] = 6 * GiB  # another process
    assert settings.plan()[1].memory_limit == 10 * GiB - 1800 * MiB


def test_memory_of_the_device_comes_from_the_driver_and_goes_back():
    settings, gpus, library = fake(devices=2)
    with DeviceManager.create(settings) as manager:
        device = manager.gpu(1)
        assert device.memory is None
        assert device.allocator().name == "GPU_1_bfc"
        address = device.allocator().allocate(100)
        assert library.allocated[address] == device.memory_limit
        assert len(library.streams) == 4 * len(gpus)
        assert len({stream.handle for stream in device.streams.values()}) == 4
    assert library.allocated == {}
    assert library.streams == {}
    assert library.contexts == []


def test_unified_memory_is_managed_by_the_driver():
    settings, _, library = fake()
    settings.set_gpu_options(use_unified_memory=True)
    with DeviceManager.create(settings) as manager:
        manager.gpu().allocator().allocate(100)
    assert "cuMemAllocManaged" in library.calls


@pytest.mark.parametrize("name", ["cuStreamCreate", "cuDevicePrimaryCtxRetain"])
def test_where_the_driver_fails_nothing_is_left_and_settings_are_open(name):
    settings, _, library = fake()
    library.fails[name] = 719
    with pytest.raises(DeviceError, match="719"):
        DeviceManager.create(settings)
    assert not settings.initialised
    assert library.allocated == {}
    assert library.streams == {}
    del library.fails[name]
    with DeviceManager.create(settings) as manager:
        assert manager.gpu().allocator().allocate(100)


def test_importing_devices_loads_no_cuda(monkeypatch):
    def refuse(*_):
        raise AssertionError("CUDA was loaded")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    cuda_driver.load.cache_clear()
    with pytest.raises(AssertionError):
        cuda_gpus()  # listing GPUs loads CUDA
    assert Settings([]).explain()  # explicit GPUs do not


# ------------------------------------------------------------------------------
# The page of the room is so: its example prints what it shows, its map names every file.


ROOM = ROOT / "bfcviz" / "devices"
PAGE = (ROOM / "README.md").read_text()


def test_the_example_prints_the_numbers_that_it_shows():
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102  our own text
    numbers = r"\d[\d.,]*(?: [KMG]iB)?\b|\w+/[\w/]+"
    assert re.findall(numbers, out.getvalue()) == re.findall(numbers, shown)


def test_the_map_names_every_file_and_no_other():
    named = set(re.findall(r"`(\w+\.py|\w+/)`", re.search(r"\| file \|.*?\n\n", PAGE, re.DOTALL)[0]))
    files = {path.name for path in ROOM.rglob("*.py") if path.name != "__init__.py"}
    folders = {f"{path.parent.name}/" for path in ROOM.glob("*/__init__.py")}
    assert named == files | folders


def test_the_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOM / target).exists()

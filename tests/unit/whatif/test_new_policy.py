"""The recipe "Add an allocator's rules" of tests/README.md, followed for a toy: one module and one entry.

A pool of rules that are compiled needs a `.pxd`; `test_uncompiled.py` runs this where nothing is compiled.
"""

import json
import sys
from types import ModuleType

import pytest
from processes import COMPILED
from unit.whatif.streams import MiB, stream_of

import bfcviz
from bfcviz.cli import main
from bfcviz.errors import InvalidRequest
from bfcviz.model.trace_from_source import trace_of
from bfcviz.whatif.policy_table import POLICIES, PolicyEntry
from bfcviz.whatif.simulated_pool import SimulatedPool

ADDRESSES = 1 << 44

pytestmark = pytest.mark.skipif(COMPILED, reason="the rules of this test are not compiled")


class BumpPool(SimulatedPool):
    """Each block lies after the one before; no memory comes back."""

    def __init__(self, driver, unit=256):
        SimulatedPool.__init__(self, driver)
        self.unit = unit
        self.end = driver.reserve(ADDRESSES)

    def allocate(self, size, stream):
        rounded = -(-size // self.unit) * self.unit
        if not self.driver.map(self.end, rounded):
            return 0
        self.occupy(self.end, rounded)
        self.end += rounded
        return self.end - rounded

    def free(self, address):
        self.vacate(address)


@pytest.fixture(autouse=True)
def _bump(monkeypatch):
    """The module and the entry of the recipe."""
    module = ModuleType("bfcviz.whatif.bump")
    module.BumpPool = BumpPool
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entry = PolicyEntry("each block lies after the one before", ("bump", "BumpPool"), {"unit": 256})
    monkeypatch.setitem(POLICIES, "bump", entry)


def test_it_serves_requests():
    stream = stream_of(("a", 3), -0, ("a", 4), ("a", 2))
    outcome = bfcviz.policy_of("bump").serve(stream, 8 * MiB)
    assert outcome.reserved.max() == 7 * MiB  # 3 + 4 fit, 2 more do not
    assert outcome.address[-1] == 0


def test_its_options_are_checked_and_have_text():
    assert bfcviz.policy_of("bump:unit=1MiB").options == {"unit": MiB}
    with pytest.raises(InvalidRequest, match="size"):
        bfcviz.policy_of("bump:size=1")


def test_it_is_compared_searched_and_on_the_command_line(capsys, tmp_path):
    stream = stream_of(("a", 3), -0, ("a", 4))
    compared = bfcviz.compare_policies(stream, ["bump", "live_bytes"])
    peaks = [compared.outcome(name).reserved.max() for name in ("bump", "live_bytes")]
    assert peaks == [7 * MiB, 4 * MiB]
    assert bfcviz.smallest_limit(stream, "bump").limit_bytes == 7 * MiB
    with pytest.raises(SystemExit, match="0"):
        main(["whatif", "--list"])
    assert "bump" in capsys.readouterr().out
    with bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 8 * MiB) as heap:
        heap.free(heap.allocate(3 * MiB))
        path = trace_of(heap).save(tmp_path / "small.parquet")
    assert main(["whatif", str(path), "--policy", "bump", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)

"""Rules: how PyTorch's allocator cuts blocks, by its settings."""

import pytest
from live.torch.histories import MIB

from bfcviz.live.torch.block_rules import Rules


@pytest.mark.parametrize(
    ("rules", "requested", "free", "block"),
    [
        (Rules(), 1, 2 * MIB, 512),
        (Rules(), 513, 2 * MIB, 1024),
        (Rules(), 1000, 1024, 1024),
        (Rules(), 600, 1536, 1024),
        (Rules(), 9 * MIB, 10 * MIB, 10 * MIB),  # the rest, 1 MiB, is not split off
        (Rules(), 9 * MIB, 10 * MIB + 512, 9 * MIB),
        (Rules(expandable=True), 9 * MIB, 9 * MIB + 512, 9 * MIB),
        (Rules(max_split=8 * MIB), 9 * MIB, 20 * MIB, 20 * MIB),
        (Rules(max_split=8 * MIB), 7 * MIB, 20 * MIB, 7 * MIB),
        (Rules(), 3 * MIB, 0, 3 * MIB),  # where the free block is not known
        (Rules(divisions=(4,) * 16), 1200 * 1024, 1 << 30, 1280 * 1024),
        (Rules(divisions=(4,) * 16), 1024 * 1024, 1 << 30, 1024 * 1024),
        (Rules(divisions=(0, 8, *[0] * 14)), 1200 * 1024, 1 << 30, 1200 * 1024),
        (Rules(divisions=(0, 8, *[0] * 14)), 2 * MIB + 1, 1 << 30, 2 * MIB + MIB // 4),
        (Rules(divisions=(4,) * 16), 1500, 2 * MIB, 1536),  # too small for steps
    ],
)
def test_blocks_are_cut_as_pytorch_does(rules, requested, free, block):
    assert rules.block(requested, free) == block


def test_rules_come_from_the_settings():
    assert Rules.of({}) == Rules()
    steps = {str(1 << i): 4 if i == 3 else 0 for i in range(16)}
    found = Rules.of(
        {"expandable_segments": True, "max_split_size": 64 * MIB, "roundup_power2_divisions": steps}
    )
    assert found == Rules(expandable=True, max_split=64 * MIB, divisions=(0, 0, 0, 4, *[0] * 12))
    assert Rules.of({"max_split_size": -1, "roundup_power2_divisions": dict.fromkeys(steps, 0)}) == Rules()

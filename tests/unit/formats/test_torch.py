"""Rules: how PyTorch's allocator cuts blocks, by its settings."""

import pytest
from unit.live.torch.histories import MIB

from bfcviz.formats.torch import Rules, divisions_of, divisions_text, line_number


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
    assert found == Rules(expandable=True, max_split=64 * MIB, divisions=(1, 1, 1, 4, *[1] * 12))
    text = "max_split_size_mb:64,large_segment_size_mb: 32,max_non_split_rounding_mb:100"
    assert Rules.of({"PYTORCH_CUDA_ALLOC_CONF": text}) == Rules(
        large_segment=32 * MIB, non_split_rounding=100 * MIB
    )
    assert Rules.of({"max_split_size": -1, "roundup_power2_divisions": dict.fromkeys(steps, 0)}) == Rules()


@pytest.mark.parametrize(
    "settings",
    [
        {"max_split_size": float("inf")},
        {"max_split_size": [1]},
        {"max_split_size": MIB},  # PyTorch takes 20 MiB and more
        {"max_split_size": (1 << 63) - 1},
        {"expandable_segments": "yes"},
        {"garbage_collection_threshold": float("nan")},
        {"roundup_power2_divisions": {"1": float("inf")}},
        {"roundup_power2_divisions": {"a": 4}},
        {"roundup_power2_divisions": {"1": 3}},
        {"roundup_power2_divisions": -4},
        {"roundup_power2_divisions": "4"},
    ],
)
def test_an_impossible_setting_is_that_of_pytorch_without_settings(settings):
    assert Rules.of(settings) == Rules()


IN_PYTORCH = {  # the setting -> the table in the snapshot of PyTorch 2.11, by ascending size
    "[256:1,512:2,1024:4,>:8]": (1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8),
    "[4:2,64:8]": (2, 2, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    "[>:8]": (0, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8),
    "[1:4,2:8,>:16]": (4, 8, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16),
    "[64:8,4:2,>:4]": (8, 8, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4),
}


@pytest.mark.parametrize("text", IN_PYTORCH)
def test_a_list_by_size_is_read_as_by_pytorch(text):
    table = {str(1 << place): number for place, number in enumerate(IN_PYTORCH[text])}
    found = divisions_of(text)
    assert found == divisions_of(table) == Rules.of({"roundup_power2_divisions": table}).divisions
    assert divisions_of(divisions_text(found)) == found


def test_one_number_is_of_all_sizes():
    assert divisions_of(4) == (4,) * 16
    assert divisions_of(0) == divisions_of(1) == divisions_of({}) == ()
    assert (divisions_text((4,) * 16), divisions_text(())) == ("4", "0")


NO_LIST = ["", "4", "[]", "[1:3]", "[3:4]", "[1:4", "[a:4]", "[1:4,]", "[0:4]", "[1:4 2:8]", True]


@pytest.mark.parametrize("text", NO_LIST)
def test_what_is_no_list_is_an_error(text):
    with pytest.raises(ValueError, match="roundup_power2_divisions"):
        divisions_of(text)


def test_rounding_near_each_power_of_two():
    rules = Rules(divisions=divisions_of("[2:4,>:8]"))
    for size, rounded in ((MIB + 1, MIB + MIB // 4), (2 * MIB, 2 * MIB), (2 * MIB + 1, 2 * MIB + MIB // 2)):
        assert rules.round_up(size) == rounded
    assert rules.round_up(4 * MIB - 1) == rules.round_up(4 * MIB) == 4 * MIB
    assert rules.round_up(4 * MIB + 1) == 4 * MIB + MIB // 2  # 8 divisions from here on
    assert [rules.round_up(size) for size in (0, 1, 512, 513, 2048, 2049)] == [
        512,
        512,
        512,
        1024,
        2048,
        2560,
    ]
    assert rules.round_up((1 << 63) - 1) == 1 << 63


@pytest.mark.parametrize(
    ("line", "known"), [(41, 41), (0, 0), (-1, 0), ((1 << 64) - 1, 0), ((1 << 32) - 1, 0)]
)
def test_the_line_of_a_frame(line, known):
    assert line_number(line) == known

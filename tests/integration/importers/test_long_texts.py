"""Long texts of words that begin messages, and long logs: the time to read them is bounded by their length."""

import time

import pytest
from unit.importers.rmm_lines import current
from unit.importers.test_message_mentions import told
from unit.importers.test_message_reader import read
from unit.importers.test_rmm_log import counts, opened
from unit.importers.test_system_messages import read as answered

from bfcviz.events.schema import Kind
from bfcviz.importers.bfc_log.log_lines import log_text, records

MIB = 1 << 20


@pytest.mark.parametrize(
    "text", ["CUDA out of memory ", "9" * 20, "failed to allocate ", "Limit: ", "|", "a " * 50, "Buffer 1: "]
)
def test_time_is_bounded(text):
    begun = time.process_time()
    read(text * (30_000 // len(text)))
    assert time.process_time() - begun < 5  # where each piece is compared with all others: a minute


def test_a_long_text_of_mentions_takes_time_by_its_length():
    lines = (
        "allocation on device and cuda out of memory\n",
        '"CUDA out of memory" in \' x `\n',
        "error(error(error(",
        "If you see If you see difference between 没有 CUDA out of memory `\n",
        "  # CUDA out of memory | CUDA error: out of memory | x\n",
        "alloc\nate mem\nory we get the this error message ",
        "a/b/c/d/e_f: ld: error allocating memory\n",
    )
    for line in lines:
        start = time.process_time()
        assert len(told(line * (MIB // 8 // len(line)))) <= 1
        assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "line", ["Killed\n", "MemoryError\n", "12 Killed 137 Exit Code: 137\n", "1/2 OOMKilled "]
)
def test_long_texts_of_systems_take_time_by_their_length(line):
    start = time.process_time()
    answered(line * (MIB // 4 // len(line)))
    assert time.process_time() - start < 6


@pytest.mark.parametrize(
    "piece", [".cc:1]", "I .cc:1]", "\n", "a", " ", "\n> ", "2017-11-06 08:55:24.9: ", "\x1b[", "\\n"]
)
def test_the_time_to_read_a_log_is_proportional_to_its_length(piece):
    text = '{"a":1' + piece * (150_000 // len(piece))
    begin = time.process_time()
    for _ in records(log_text(text.encode())):
        pass
    assert time.process_time() - begin < 2


def test_the_time_is_proportional_to_the_number_of_headers(tmp_path):
    """A header before each request: the requests before it are not read again."""
    header, *lines = current(
        [("allocate", 0x7F0000000000 + at * 512, 256, 0) for at in range(3000)]
    ).splitlines()
    begun = time.process_time()
    trace = opened(tmp_path, "".join(f"{header}\n{line}\n" for line in lines))
    assert time.process_time() - begun < 10  # it took half a minute
    assert len(trace.origin.pools) == 1
    assert counts(trace)[Kind.ALLOCATE] == 3000


def test_allocations_over_very_many_regions_in_use_are_left_out_in_time(tmp_path):
    rows = [("allocate", (1 << 30) + at * 1024, 512, 0) for at in range(3000)]
    begun = time.process_time()
    trace = opened(tmp_path, current(rows + [("allocate", 1 << 30, 1 << 32, 0)] * 3000))
    assert time.process_time() - begun < 8  # it took far longer
    assert "3,000 allocations over memory whose free was not seen" in trace.origin.reasons[0]

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bfcviz.importers.bfc_log import log_lines
from bfcviz.importers.bfc_log.log_lines import LogPieces, LogRecord, log_text, records

SECOND = 10**9
NOVEMBER_6 = 1_509_926_400 * SECOND  # 2017


def found(text: str) -> list[LogRecord]:
    return list(records(log_text(text.encode())))


CLOCK = NOVEMBER_6 + (8 * 3600 + 55 * 60 + 24) * SECOND


@pytest.mark.parametrize(
    ("prefix", "when", "thread"),
    [
        ("I tensorflow/core/common_runtime/bfc_allocator.cc:643] ", None, ""),
        ("2017-11-06 08:55:24.919712: I tensorflow/core/bfc_allocator.cc:627] ", CLOCK + 919_712_000, ""),
        ("2017-11-06 08:55:24: I tensorflow/core/common_runtime/bfc_allocator.cc:627] ", CLOCK, ""),
        (
            "2017-11-06 08:55:24.5: I T:\\src\\tensorflow\\core\\bfc_allocator.cc:665] ",
            CLOCK + SECOND // 2,
            "",
        ),
        ("I0000 00:00:1509958524.000001   10659 bfc_allocator.cc:1056] ", CLOCK + 1000, "10659"),
        ("W1225 18:43:39.740134 3053572 bfc_allocator.cc:501] ", 977_769_819_740_134_000, "3053572"),
        ("bfc_allocator.cc:501] ", None, ""),
        ("2017-13-77 08:55:24.9: I bfc_allocator.cc:501] ", None, ""),
    ],
)
@pytest.mark.parametrize("around", ["", "> ", "    ", "51%|##| 481/938 [..]", "\x1b[33m", "x\r"])
def test_every_prefix_in_other_text(prefix: str, when: int | None, thread: str, around: str) -> None:
    if prefix.startswith("bfc") and not around.isspace():
        around = ""  # nothing separates them
    text = f"first line\n{around}{prefix}Chunk at 0x1 of size 256\nrest\n"
    assert found(text)[1:] == [
        LogRecord(2, when, "bfc_allocator", "Chunk at 0x1 of size 256\nrest\n", "", thread)
    ]


@pytest.mark.parametrize(
    "tag", ["[1]", "[1,3]<stderr>", "(pid=123)", "(RayWorker pid=7, ip=10.0.0.1)", "rank 3"]
)
def test_the_tag_of_a_process(tag: str) -> None:
    assert found(f"{tag}: 2017-11-06 08:55:24.9: I a/bfc_allocator.cc:1] Stats: ")[-1].writer == tag


def test_a_prefix_broken_at_a_blank() -> None:
    text = "2017-11-06 08:55:24.5: I\ntensorflow/core/bfc_allocator.cc:678]\nChunk at 0x1\n of size 256\n"
    prefixed, message = found(text)
    assert prefixed.time == message.time or message.file == ""
    assert prefixed.time == CLOCK + SECOND // 2
    assert (message.line, message.message) == (3, "Chunk at 0x1\n of size 256\n")


def test_lines_that_a_terminal_cut_at_its_width() -> None:
    whole = [
        f"2017-11-06 08:55:24.5: I a/bfc_allocator.cc:678] Chunk at 0x10{n}00 of size 25600" for n in range(5)
    ]
    text = "\n".join(line[start : start + 60] for line in whole for start in (0, 60)) + "\n"
    assert [(r.line, r.message.strip()) for r in found(text)] == [
        (1 + 2 * n, line.partition("] ")[2]) for n, line in enumerate(whole)
    ]


def test_a_notebook_and_utf_16() -> None:
    line = (
        "2017-11-06 08:55:24.5: I a\\\\src\\\\bfc_allocator.cc:678] Bin (256): \\tTotal \\u001b[0m\\ud83d\\n"
    )
    notebook = '{"cells": [\n{"text": [\n"' + line + '",\n"' + line + '"]}]}'
    assert [(r.line, r.file, r.message[:18]) for r in found(notebook)[1:]] == [
        (3, "bfc_allocator", "Bin (256): \tTotal "),
        (4, "bfc_allocator", "Bin (256): \tTotal "),
    ]
    text = "I a/bfc_allocator.cc:1] Stats: \r\nLimit: 5\r\n"
    assert [r.message for r in records(log_text(text.encode("utf-16")))] == ["Stats: \nLimit: 5\n"]


def test_lines_without_their_prefix() -> None:
    text = "I had this:\n> Allocator (GPU_0_bfc) ran out of memory\n> InUse at 7f00 of size 256 next 1\nFree at last"
    assert [(r.line, r.file, r.message.split()[0]) for r in found(text)] == [
        (1, "", "I"),
        (2, "", "Allocator"),
        (3, "", "InUse"),
    ]


def test_text_without_a_record() -> None:
    assert found("") == []
    assert [(r.line, r.file) for r in found("a\nb")] == [(1, "")]


PIECES = [
    "2017-11-06 08:55:24.5: I ",
    "I",
    "a/bfc_allocator",
    ".cc:12]",
    " ",
    "\n",
    "[1]",
    "W1225 18:43:39.740134 3 ",
]
TEXTS = st.lists(st.sampled_from([*PIECES, "Chunk at 0x1 of", "é\r", "x" * 90]) | st.text(max_size=9))


@given(TEXTS.map("".join))
def test_every_character_is_in_at_most_one_message(text: str) -> None:
    log = log_text(text.encode("utf-8", "replace"))
    place = 0
    for record in records(log):
        place = log.text.index(record.message, place) + len(record.message)
        assert 1 <= record.line <= text.count("\n") + 1


COMMON = ["I0000 00:00:1509958524.000001   7 a/b.cc:1] ", "2017-11-06 08:55:24.919712: I b.cc:2] "]
LINES = st.lists(st.lists(st.sampled_from([*PIECES, *COMMON, "Free at 0x1 of", "é\r", "\r"]), max_size=4))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES.map(lambda lines: "x\n" + "\n".join(map("".join, lines))))
def test_a_text_in_pieces_has_the_records_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, text: str
) -> None:
    monkeypatch.setattr(log_lines, "_PIECE", 20)
    monkeypatch.setattr("bfcviz.importers.file_content._PIECE", 7)
    path = tmp_path / "log"
    path.write_bytes(text.encode(encoding))
    pieces = LogPieces(path)
    whole = log_text(path.read_bytes())
    if "".join(pieces.pieces) == whole.text:
        assert list(records(pieces)) == list(records(whole))
    else:
        assert pieces.needs_whole


def test_lines_that_may_be_cut_or_of_another_arena_need_the_whole_text(tmp_path: Path) -> None:
    cut = f"{COMMON[1]}Chunk at 0x10\n00 of size 256\n"
    texts = [cut * 3, '{"log": "a"}\n', "2024-01-01 00:00:00.1 [E:o:, bfc_arena.cc:3 F] BFC Arena"]
    for number, text in enumerate(["a\n", cut * 2, *texts]):
        path = tmp_path / "log"
        path.write_text(text)
        pieces = LogPieces(path)
        assert "".join(pieces.pieces) == text
        assert pieces.needs_whole == (number > 1), text


def test_the_memory_of_a_log_in_pieces_does_not_grow_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "_PIECE", 1 << 14)
    monkeypatch.setattr("bfcviz.importers.file_content._PIECE", 1 << 14)
    path = tmp_path / "log"
    path.write_text((f"{COMMON[0]}a message\n" + "\tframe\n" * 20) * 8_000)
    tracemalloc.start()
    count = sum(1 for _ in records(LogPieces(path)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 8_000
    assert peak < path.stat().st_size / 4

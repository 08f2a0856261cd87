"""Dumps of which people pasted some chunk lines only: what failed, and why, follows from the other lines."""

import pytest

from bfcviz.analysis.failures import all_failures
from bfcviz.analysis.message_answer import StatedAnswer
from bfcviz.analysis.message_verdict import StatedCause
from bfcviz.events.origin import Status
from bfcviz.importers.message_reader import read_message_file
from bfcviz.importers.open_trace import open_trace

MIB = 1 << 20
CLOCK = "{year}-03-04 01:02:03.000001: {level} tensorflow/core/common_runtime/bfc_allocator.cc:9] "
HEAD = (
    "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.17GiB.  Current allocation summary follows."
)
CHUNKS = ("Chunk at 0x7f0000000000 of size 65536", "Free  at 0x7f0000010000 of size 2048")
NEW_CHUNKS = (
    "InUse at 703b12d00 of size 256 next 275",
    "InUse at 703b12e00 of size 256 next 18446744073709551615",
)
STATS = (
    "Stats: \nLimit:                  8589934592\nInUse:                  8053063680\n"
    "MaxInUse:               8422162432\nNumAllocs:                    4711\nMaxAllocSize:           2147483648\n"
)
STRIP = "*" * 90 + "_" * 10
ERROR = (
    "ResourceExhaustedError: OOM when allocating tensor with shape[30,64,256,640] and type float on "
    "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n"
)
ASKED = 30 * 64 * 256 * 640 * 4


def log(*messages, year=2021):
    return "".join(CLOCK.format(year=year, level="I") + f"{each}\n" for each in messages)


def answer(tmp_path, text):
    path = tmp_path / "a.log"
    path.write_text(text)
    found = read_message_file(path)
    return None if found is None else StatedAnswer.of(*found)


def advice(failure):
    return " ".join(each.text for each in failure.advice)


@pytest.mark.parametrize(
    "text",
    [
        log(HEAD, *CHUNKS) + "...\n" + log("Sum Total of in-use chunks: 7.50GiB", STATS, STRIP) + ERROR,
        log(*CHUNKS, STATS, STRIP) + ERROR,
        log(*NEW_CHUNKS, STATS, STRIP) + ERROR,
    ],
)
def test_the_statistics_decide_and_not_the_few_chunks(tmp_path, text):
    (failure,) = answer(tmp_path, text).failures
    assert (failure.judgement.cause, failure.stated.framework) == (StatedCause.CAPACITY, "TensorFlow")
    assert failure.stated.fact("requested") == ASKED
    assert (failure.stated.fact("limit"), failure.stated.fact("in_use")) == (8192 * MIB, 7680 * MIB)
    assert "list of chunks in the text is cut" in failure.judgement.sentence
    assert "at most 12 instead of 30" in failure.advice[0].text
    assert "TF_CPP_MIN_LOG_LEVEL" not in advice(failure)
    assert "keep the whole log" in advice(failure)


@pytest.mark.parametrize(
    ("text", "size", "version"),
    [
        (log(*CHUNKS) + ERROR, ASKED, ""),
        (log(*NEW_CHUNKS, "InUse at 703b12f00 of size 256 next 277") + ERROR, ASKED, ""),
        (f"ResourceExhaustedError: failed to allocate memory [Op:Mul]\n{log(*NEW_CHUNKS)}", None, ""),
        (
            log(
                "Bin (268435456): \tTotal Chunks: 1, Chunks in use: 1. 1.98GiB allocated for chunks. 1.98GiB in use in "
                "bin. 1.43GiB client-requested in use in bin.",
                "Bin for 1.17GiB was 256.00MiB, Chunk State: ",
                *CHUNKS,
                year=2018,
            )
            + ERROR,
            ASKED,
            "1.x",
        ),
    ],
)
def test_without_statistics_the_request_is_known_and_the_cause_is_not(tmp_path, text, size, version):
    (failure,) = answer(tmp_path, text).failures
    assert (failure.judgement.cause, failure.judgement.second) == (StatedCause.UNKNOWN, StatedCause.CAPACITY)
    assert (failure.stated.fact("requested"), failure.stated.version) == (size, version)
    assert "neither the limit nor all that was in use" in failure.judgement.sentence
    assert "TF_CPP_MIN_LOG_LEVEL" not in advice(failure)
    assert ("tf.config" in advice(failure)) is (version == "")


def test_a_pool_in_pieces_names_the_lines_that_are_missing(tmp_path):
    stats = STATS.replace("8053063680", "4026531840").replace("8422162432", "4026531840")
    (failure,) = answer(tmp_path, log(HEAD, *CHUNKS, stats, STRIP)).failures
    assert failure.judgement.second is StatedCause.OTHER_PROCESS
    assert "not all of them are in the text" in failure.judgement.sentence


def whole(asked, in_use):
    chunk, free = f"InUse at 700000000 of size {100 * MIB} next 2", f"Free at 706400000 of size {MIB} next 3"
    head = f"Allocator (GPU_0_bfc) ran out of memory trying to allocate {asked}MiB (rounded to {asked * MIB})"
    stats = STATS.replace("8589934592", str(110 * MIB)).replace("8053063680", str(in_use * MIB))
    return log(head, f"Next region of size {101 * MIB}", chunk, free, stats, STRIP)


@pytest.mark.parametrize(
    ("asked", "in_use", "is_heap"), [(50, 100, True), (50, 103, True), (2, 103, False), (50, 108, False)]
)
def test_a_heap_decides_where_what_is_missing_is_small(tmp_path, asked, in_use, is_heap):
    assert (answer(tmp_path, whole(asked, in_use)) is None) is is_heap
    trace = open_trace(tmp_path / "a.log")
    (found,) = all_failures(trace)
    assert found.recorded.has_heap is is_heap
    assert (found.pool_bytes, found.requested) == (101 * MIB, asked * MIB)
    assert trace.origin.status is (Status.COMPLETE if in_use == 100 else Status.DEGRADED)
    assert ("not all chunks of that moment" in str(found)) is not is_heap
    assert ("Only some chunks" in str(found)) is not is_heap


@pytest.mark.parametrize(
    "text",
    [
        log(*CHUNKS),  # no failure
        log("Allocated memory at 0x7f0000000000 to 0x7f0000010800", *CHUNKS) + ERROR,
        log("AllocateRaw GPU_0_bfc  256", *CHUNKS) + ERROR,
        whole(50, 100),
    ],
)
def test_a_text_without_a_failure_or_with_a_history_is_a_trace(tmp_path, text):
    assert answer(tmp_path, text) is None


def test_statistics_without_an_error_tell_of_a_failure(tmp_path):
    (failure,) = answer(tmp_path, log(*CHUNKS, STATS)).failures
    assert (failure.judgement.cause, failure.stated.message) == (StatedCause.CAPACITY, "tf-stats")


def test_a_small_request_of_a_full_pool_is_not_what_must_shrink(tmp_path):
    stats, small = STATS.replace("8053063680", "8589934400"), ERROR.replace("30,64,256,640", "32,30,30")
    (failure,) = answer(tmp_path, log(*CHUNKS, stats, STRIP) + small).failures
    assert failure.judgement.cause is StatedCause.CAPACITY
    assert "batch of the whole step" in failure.advice[0].text
    assert "192 B of the pool" in failure.advice[0].text


def test_a_whole_heap_without_its_request_says_what_the_request_passed(tmp_path):
    chunk, free = f"Chunk at 0x700000000 of size {MIB}", f"Free  at 0x700100000 of size {109 * MIB}"
    stats = STATS.replace("8589934592", str(110 * MIB)).replace("8053063680", str(MIB))
    path = tmp_path / "a.log"
    path.write_text(log(chunk, free, stats, STRIP))
    (found,) = all_failures(open_trace(path))
    assert (found.requested, found.largest_free_chunk, found.verdict) == (0, 109 * MIB, "unknown")
    assert "more than the largest free chunk, 109.0 MiB" in str(found)
    assert "free chunk that is large enough" not in str(found)
    assert "Place 1" not in str(found)
    assert any("which request failed" in gap for gap in found.gaps)

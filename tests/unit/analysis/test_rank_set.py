"""The ranks of one job: their order, what differs, each failure once, as data, text, JSON and HTML."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import SHARED, needs_shared, sample_trace
from unit.analysis.built import MIB, state

import bfcviz
from bfcviz.analysis.ranks import Rank, RankFailure, RankPlace, rank_of, rank_set
from bfcviz.errors import FileError, TraceError
from bfcviz.events.origin import Pool
from bfcviz.events.storage import blocks
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.model import trace_index
from bfcviz.model.trace_index import IndexBuilder


@pytest.fixture
def job(tmp_path):
    """Four ranks: 0 and 2 fail alike, 1 and 3 do not; rank 3 needs most, and holds a chunk that no other has."""
    states = [
        state([[-2, 3, -3, 1, -2]], 5, 11),
        state([[3, 1, -2]], limit=11),
        state([[-2, 3, -3, 1, -2]], 4, 11),
        state([[3, 1, 4, 1, 1]], limit=11),
    ]
    for rank, trace in enumerate(states):
        trace.save(tmp_path / f"rank{rank}.parquet")
    return tmp_path


def test_failures_come_first_then_the_highest_peak(job):
    found = bfcviz.open_all(job)
    assert [rank.place.rank for rank in found.ranks] == [0, 2, 3, 1]
    assert [rank.verdict for rank in found.ranks] == [
        "cached_fragmentation",
        "cached_fragmentation",
        "no_failure",
        "no_failure",
    ]
    assert [rank.peak for rank in found.ranks] == [4 * MIB, 4 * MIB, 10 * MIB, 4 * MIB]
    assert found.worst.place.rank == 0
    answers = [bfcviz.why(found), bfcviz.why(job)]
    assert [each.requested for each in answers] == [5 * MIB, 5 * MIB]
    among = f"rank 0 of {job}: 2 of 4 ranks had a failed request"
    assert [each.among for each in answers] == [among, among]
    told = " ".join(str(answers[0]).split())  # a long path of the folder wraps this line
    assert told.count("2 of 4 ranks") == answers[0]._repr_html_().count("2 of 4 ranks") - 1 == 1


def test_the_answer_about_a_folder_of_texts_names_the_rank_too(tmp_path):
    for rank, text in enumerate(
        ("step 1\n", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    ):
        (tmp_path / f"rank_{rank}.log").write_text(text)
    answer = bfcviz.why(tmp_path)
    assert answer.among.startswith("rank 1 of ")
    assert answer.among in answer.lines[1]


@pytest.mark.parametrize("take", [bfcviz.open, bfcviz.Inspector, bfcviz.holders])
def test_what_takes_one_file_says_what_takes_all_of_a_folder(take, job):
    with pytest.raises(FileError, match=r"4 files .*bfcviz\.open_all") as error:
        take(job)
    assert str(bfcviz.open_all(job).worst.place.file) in error.value.cause


def test_one_failure_is_told_once_with_its_ranks(job):
    (shared,) = bfcviz.open_all(job).failures
    assert (shared.ranks, shared.count, shared.requested) == (("rank 0", "rank 2"), 2, (4 * MIB, 5 * MIB))
    assert shared.failure.verdict == "cached_fragmentation"


def test_what_differs_is_measured(job):
    found = bfcviz.open_all(job)
    peak = next(spread for spread in found.spreads if spread.measure == "peak")
    assert (peak.least, peak.median, peak.most, peak.most_rank) == (4 * MIB, 4 * MIB, 10 * MIB, "rank 3")
    assert not any(spread.measure == "limit" for spread in found.spreads)
    only = {each.name: each.rank for each in found.only}
    assert only == {"op2": "rank 3", "op4": "rank 3"}


@pytest.mark.parametrize("name", ["conv", "oom_log"])
def test_a_summary_reads_the_index_and_not_all_events(name, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MOST_EVENTS", 300)
    monkeypatch.setattr(trace_index, "_EVENTS_A_CHUNK", 0)  # a keyframe in each block
    monkeypatch.setattr("bfcviz.model.model.BLOCK", 300)
    whole = sample_trace(name)
    trace = Trace.from_events(whole.read(0, min(12_000, len(whole))), whole.labels, whole.origin)
    path = trace.save(tmp_path / "rank0.bfc", describe=IndexBuilder(len(trace.origin.pools)))
    place, decoded = RankPlace(path, "rank 0"), []
    read = blocks.decoded
    monkeypatch.setattr(
        blocks, "decoded", lambda codec, found, data: decoded.append(found.first) or read(codec, found, data)
    )
    assert rank_of(Trace.open(path), place) == rank_of(trace, place)
    if name == "conv":  # the other is one state, which all its events build
        assert 1 <= len({*decoded}) <= 3
    assert rank_of(Trace.open(path), place, step="worst") == rank_of(trace, place, step="worst")


def test_a_folder_with_one_file_is_not_told_as_a_rank(job):
    for rank in (1, 2, 3):
        (job / f"rank{rank}.parquet").unlink()
    text = str(bfcviz.open_all(job))
    assert "1 of 1" not in text
    assert "1 rank" not in text.splitlines()[0]


def test_equal_ranks_differ_in_nothing(tmp_path):
    for rank in range(3):
        state([[3, -1]]).save(tmp_path / f"rank{rank}.parquet")
    found = bfcviz.open_all(tmp_path)
    assert (found.spreads, found.only, found.failures) == ((), (), ())
    assert "same peak" in str(found)


def test_json_and_html_have_all_ranks(job, tmp_path):
    (job / "rank4.parquet").write_bytes(b"PAR1 and nothing more")
    (job / "notes.md").write_text("x")
    found = bfcviz.open_all(job)
    values = json.loads(json.dumps(found.to_json(holders=True)))
    assert [entry["rank"] for entry in values["ranks"]] == [0, 2, 3, 1, 4]
    assert values["ranks"][0].keys() >= {
        "host",
        "file",
        "verdict",
        "failure",
        "peak_bytes_in_use",
        "pool_bytes",
    }
    assert (values["ranks"][-1]["verdict"], bool(values["ranks"][-1]["problem"])) == (None, True)
    assert values["shared_failures"][0]["ranks"] == ["rank 0", "rank 2"]
    assert (values["other_files"], values["files_not_read"]) == (1, 0)
    assert sum(values["ranks"][2]["holders"].values()) == values["ranks"][2]["bytes_in_use"] == 10 * MIB
    for rank in found.ranks:
        assert rank.name in found._repr_html_()
        assert rank.name in str(found)


def test_the_table_has_what_some_rank_knows_and_files_as_the_folder_calls_them(job, tmp_path):
    head, first, *_ = bfcviz.open_all(job).rows
    assert (head[0], head[-1]) == ("name", "file")
    assert "limit" in head
    assert (first[0], first[-1]) == ("rank 0", "rank0.parquet")
    unlimited = tmp_path / "unlimited"
    unlimited.mkdir()
    for rank in range(2):
        state([[3, 1, -2]]).save(unlimited / f"rank{rank}.parquet")
    found = bfcviz.open_all(unlimited)
    assert "limit" not in found.rows[0]
    assert all(len(line) <= 80 for line in found.table_lines)


def test_a_verdict_that_every_rank_lacks_is_told():
    failure = RankFailure("unknown", "", 0, "", "OOM", None)
    ranks = [Rank(RankPlace(Path(f"f{n}"), f"rank {n}", n), failures=(failure,)) for n in range(2)]
    head, *rows = rank_set(ranks, "x", bfcviz.open).rows
    assert head == ("name", "verdict", "file")
    assert [row[1] for row in rows] == ["unknown", "unknown"]


def test_files_that_tell_no_rank_are_called_files(tmp_path):
    for name in ("before", "after"):
        state([[3, 1, -2]], limit=11).save(tmp_path / f"{name}.parquet")
    told = str(bfcviz.open_all(tmp_path))
    assert "2 files" in told
    assert "rank" not in told.replace(str(tmp_path), "")


def test_texts_of_files_cannot_leave_their_cells():
    place = RankPlace(Path("<b>\x1b[31m"), "<script>", None, "<i>")
    bad = rank_set(
        [Rank(place, peak=1, holders={"<u>": 1}, in_use=1), Rank(place, problem="<p>")], "<s>", bfcviz.open
    )
    for tag in ("<script>", "<i>", "<b>\x1b", "<u>", "<s>", "\x1b"):
        assert tag not in bad._repr_html_()
    assert "\x1b" not in str(bad)


def test_a_trace_of_a_rank(job):
    found = bfcviz.open_all(job)
    assert found.trace.path == job / "rank0.parquet"
    assert found.open(3).path == found.open("rank 3").path == found.open(found.ranks[2]).path
    with pytest.raises(TraceError, match="no rank 17"):
        found.open(17)


def test_what_is_not_there(tmp_path):
    for words in ([tmp_path / "none"], [tmp_path / "*.pickle"]):
        found = bfcviz.open_all(*words)
        with pytest.raises(TraceError, match="no rank"):
            found.worst  # noqa: B018
    with pytest.raises(ValueError, match="give a folder"):
        bfcviz.open_all()
    with pytest.raises(ValueError, match="step='now'"):
        bfcviz.open_all(tmp_path, step="now")


def test_a_step_that_no_file_has_is_refused_and_one_that_some_have_is_told(tmp_path):
    for name, count in (("rank0", 2), ("rank1", 5)):
        recording = Recording(tmp_path / name, [Pool("gpu", 1 << 20)])
        heap = bfcviz.BFCAllocator(
            bfcviz.SimulatedSubAllocator(), 1 << 20, log=recording.log, labels=recording.labels
        )
        for _ in range(count):
            heap.allocate(1 << 10)
        recording.close()
    longest = len(bfcviz.open(tmp_path / "rank1"))
    for step in (longest + 1, -1):
        for source in (tmp_path, tmp_path / "rank1"):
            with pytest.raises(TraceError, match=f"step={step}"):
                bfcviz.open_all(source, step=step)
    short, long = sorted(bfcviz.open_all(tmp_path, step=longest).ranks, key=lambda rank: rank.name)
    assert f"{len(bfcviz.open(tmp_path / 'rank0'))}" in short.problem
    assert (long.problem, long.step) == ("", longest)


def test_an_interrupt_keeps_what_was_read(job, monkeypatch):
    done = []

    def interrupt(count, total):
        done.append((count, total))
        if count == 2:
            raise KeyboardInterrupt

    found = bfcviz.open_all(job, progress=interrupt)
    assert done == [(1, 4), (2, 4)]
    assert (len(found.ranks), found.left_out) == (2, 2)


def test_the_rank_that_failed_first_leads(tmp_path):
    """Rank 0 needs more, but rank 1 failed four seconds before it; rank 2 was killed while it recorded."""
    for rank, (start_s, limit) in enumerate(((5, "2MiB"), (1, "1MiB"), (0, "8MiB"))):
        details = {"started_ns": 10**18 + start_s * 10**9, "host": f"host{rank}", "rank": rank}
        recording = Recording(tmp_path / "cab"[rank], [Pool("gpu", limit)], details=details)
        heap = bfcviz.BFCAllocator(
            bfcviz.SimulatedSubAllocator(), limit, log=recording.log, labels=recording.labels
        )
        with suppress(bfcviz.OutOfMemory):
            for _ in range(4):
                heap.allocate(1 << 20)
        recording.close()
    (tmp_path / "b" / "origin.json").write_bytes(
        (tmp_path / "b" / "origin.json").read_bytes().replace(b'"events": ', b'"events": 1')
    )
    found = bfcviz.open_all(tmp_path)
    assert [(each.place.rank, each.place.host, each.place.rank_from) for each in found.ranks] == [
        (1, "host1", "recording"),
        (0, "host0", "recording"),
        (2, "host2", "recording"),
    ]
    assert [each.ended for each in found.ranks] == [True, True, False]
    (shared,) = found.failures
    assert (shared.ranks, shared.count) == (("rank 1", "rank 0"), 2)
    assert any("rank 1 failed first" in line for line in found.failure_lines)
    assert found.first_to_fail[:2] == ("rank 1", "rank 0")
    assert found.to_json()["first_to_fail"]["times_from"] == "recording"


def test_a_file_that_is_cut_is_not_compared_with_whole_ones():
    heaps = {0: [8, -2], 1: [8, -2], 2: [1, -2]}
    ranks = [
        rank_of(
            state([pieces], limit=99, lacks_end=rank == 2),
            RankPlace(Path(f"{rank}.pickle"), f"rank {rank}", rank),
        )
        for rank, pieces in heaps.items()
    ]
    found = rank_set(ranks, "job", bfcviz.open)
    assert "1 did not end cleanly" in found.headline
    assert [spread.measure for spread in found.spreads] == []
    assert found.ranks[0].place.rank == 2


sizes = st.integers(0, 1 << 40)


@given(st.lists(st.tuples(sizes, st.sampled_from(["", "a", "b"]), st.booleans()), min_size=1, max_size=12))
def test_every_failed_rank_is_told_once(rows):
    ranks = []
    for number, (size, what, failed) in enumerate(rows):
        failure = RankFailure("capacity", what, size, "heap", "OOM", 1)
        ranks.append(
            Rank(
                RankPlace(Path(f"f{number}"), f"rank {number}", number),
                peak=size,
                failures=(failure,) * failed,
            )
        )
    found = rank_set(ranks, "x", bfcviz.open)
    told = [name for each in found.failures for name in each.ranks]
    assert sorted(told) == sorted(f"rank {n}" for n, row in enumerate(rows) if row[2])
    assert len(found.failures) == len({(what, 0 if what else size) for size, what, failed in rows if failed})
    assert [bool(rank.failures) for rank in found.ranks] == sorted((row[2] for row in rows), reverse=True)
    assert len(found.ranks) == len(rows)
    if found.spreads:
        assert found.spreads[0].least <= found.spreads[0].median <= found.spreads[0].most


@needs_shared
def test_real_snapshots_of_several_ranks(tmp_path):
    snapshots = SHARED / "real" / "snapshots"
    names = ("torch_magma_cs336", "torch_magma_cs336", "torch_code_location_2.6M")
    for rank, name in enumerate(names):
        (tmp_path / f"rank{rank}.pickle").symlink_to(snapshots / f"{name}.pickle")
    (tmp_path / "rank3.pickle").write_bytes((snapshots / "torch_magma_cs336.pickle").read_bytes()[:5000])
    found = bfcviz.open_all(tmp_path)
    assert [rank.place.rank for rank in found.ranks] == [2, 0, 1, 3]
    assert (found.worst.verdict, found.ranks[1].peak) == ("capacity", found.ranks[2].peak)
    assert "cut off" in found.ranks[-1].problem
    assert {each.rank for each in found.only} == {"rank 2"}


@needs_shared
def test_real_logs_state_their_peaks():
    found = bfcviz.open_all(SHARED / "real" / "logs" / "*.log")
    peaks = {Path(rank.place.file).name: rank.peak for rank in found.ranks}
    assert peaks["tf2.14_2023-10_cifar10.log"] == 3288551168
    assert peaks["jax_2024-05_16_001.log"] is None
    assert sum(bool(rank.failures) for rank in found.ranks) == 10


@needs_shared
def test_files_of_different_formats_are_not_compared_as_ranks(tmp_path):
    for name in ("logs/tf1.4_2017-11_alexnet_k40c.log", "snapshots/torch_magma_cs336.pickle"):
        (tmp_path / Path(name).name).symlink_to(SHARED / "real" / name)
    found = bfcviz.open_all(tmp_path)
    assert not found.is_one_job
    assert (found.spreads, found.only) == ((), ())
    assert (len(found.failures), "1 of 2 files" in found.headline) == (1, True)
    assert len(found.rows) == 3


TEXTS = {
    "memory": "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total capacity; 14.1 GiB "
    "already allocated; 1.00 GiB free; 14.20 GiB reserved in total by PyTorch)\n",
    "other": "grpc.RpcError: RESOURCE_EXHAUSTED: Received message larger than max (5367821 vs. 4194304)\n",
    "late": "[E1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL\n",
    "none": "epoch 3 done\n",
}


@pytest.mark.parametrize(
    ("texts", "failed", "lacked"),
    [(("memory", "other", "none"), 2, 1), (("other", "other"), 2, 0), (("memory", "none"), 1, 1)],
)
def test_a_failure_for_another_reason_is_no_failed_request(texts, failed, lacked, tmp_path):
    for number, name in enumerate(texts):
        (tmp_path / f"rank{number}.log").write_text(TEXTS[name])
    found = bfcviz.open_all(tmp_path)
    assert sum(rank.has_failed for rank in found.ranks) == failed
    assert sum(rank.lacked_memory for rank in found.ranks) == lacked
    assert ("failed request" in found.headline) == (lacked > 0)
    assert (f"{lacked} of {len(texts)}" if lacked else f"{failed} of {len(texts)}") in found.headline


def test_every_silent_log_is_counted(tmp_path):
    for number in range(40):
        (tmp_path / f"rank{number}.log").write_text(TEXTS["none" if number else "late"])
    lines = bfcviz.open_all(tmp_path).failure_lines
    named = sum(line.startswith("rank ") for line in lines)
    assert any(line.startswith(f"{40 - named} more") for line in lines)

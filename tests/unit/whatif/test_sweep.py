import os
import sys
from dataclasses import fields
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from unit.whatif.sweep_streams import KiB, MiB, Raises, numbers, random_stream, record

import bfcviz
from bfcviz.errors import BfcvizError, FileError, InvalidRequest
from bfcviz.events.label_table import Labels
from bfcviz.whatif.policy_table import POLICIES, policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, RequestStream, stream_of
from bfcviz.whatif.sweep import SweepResults, sweep
from bfcviz.whatif.sweep_points import STREAMS, PointResult


def test_the_numbers_of_a_point_are_those_of_the_policy():
    stream = random_stream(1)
    limit = int(stream.live_bytes.max())  # no room for a hole
    results = sweep(stream, ["bfc", "first_fit:granule=4KiB"], [limit, "16MiB"])
    assert [(point.policy, point.limit_bytes) for point in results.points] == [
        ("bfc", limit),
        ("bfc", 16 * MiB),
        ("first_fit:granule=4KiB", limit),
        ("first_fit:granule=4KiB", 16 * MiB),
    ]
    for point in results.points:
        outcome = policy_of(point.policy).serve(stream, point.limit_bytes)
        assert (point.fits, point.failures) == (outcome.fits, len(outcome.failures))
        assert (point.peak_reserved, point.peak_in_use) == (outcome.peak_reserved, outcome.peak_in_use)
        assert point.peak_requested == limit
        assert point.reserved_not_in_use == outcome.reserved_not_in_use
        assert point.internal_fragmentation == outcome.internal_fragmentation
        assert (point.grants, point.refusals, point.releases) == outcome.driver_calls
        if not point.fits:
            first = stream.rows[outcome.failures[0]]
            assert (point.first_failure, point.first_failure_bytes) == (first["event"], first["size"])
    assert [point.outcome for point in results.points[:2]] == ["fails", "fits"]
    assert results.complete


def test_a_limit_is_also_a_part_of_what_each_trace_needs():
    one, two = random_stream(1), random_stream(2, requests=60)
    results = sweep([one, two], "first_fit:granule=1", "150%")
    expected = [round(1.5 * int(stream.live_bytes.max())) for stream in (one, two)]
    assert [point.limit_bytes for point in results.points] == expected


def test_paths_give_the_numbers_of_their_traces_and_are_read_once(monkeypatch, tmp_path):
    path, reads = record(tmp_path / "run"), []

    def counted(path, pool, **words):
        reads.append(path)
        return stream_of(path, pool, **words)

    monkeypatch.setattr("bfcviz.whatif.sweep_points.stream_of", counted)
    by_path = sweep(path, ["bfc", "first_fit"], ["8MiB", "16MiB"])
    by_trace = sweep(bfcviz.open(path), ["bfc", "first_fit"], ["8MiB", "16MiB"])
    assert [each.peak_reserved for each in by_path.points] == [each.peak_reserved for each in by_trace.points]
    assert reads == [str(path)]
    assert len(STREAMS) == 0


def test_points_that_cannot_be_served_have_a_message_and_the_others_numbers(tmp_path):
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1" + bytes(100))
    good = random_stream(1)
    without_frees = RequestStream(good.rows[good.rows["kind"] != FREE], Labels(), "without_frees")
    empty = RequestStream(good.rows[:0], Labels(), "empty")
    traces = [tmp_path / "missing", tmp_path / "damaged.parquet", empty, without_frees, good]
    results = sweep(traces, ["bfc", "first_fit", Raises()], [None, 0, -5, 1 << 63, "1GiB", "0%"])
    assert results.complete
    assert len(results) == 5 * 3 * 6
    outcomes = {(point.trace, point.policy, point.limit): point for point in results.points}
    for name in ("missing", "damaged.parquet"):
        path = str(tmp_path / name)
        assert path in outcomes[path, "bfc", str(1 << 30)].error
    assert "no allocation" in outcomes["empty", "bfc", str(1 << 30)].error
    assert "allow_growth" in outcomes["random_1", "bfc", "none"].error
    assert outcomes["random_1", "first_fit", "none"].fits
    for limit in ("0", "-5", str(1 << 63), "0%"):
        assert "limit is" in outcomes["random_1", "first_fit", limit].error
    assert "ZeroDivisionError" in outcomes["random_1", "raises", str(1 << 30)].error
    assert outcomes["without_frees", "bfc", str(1 << 30)].fits
    assert outcomes["without_frees", "bfc", str(1 << 30)].peak_in_use >= good.rows["size"].sum()


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_of_the_table_has_a_point(name):
    point = sweep(random_stream(3), name, "64MiB").points[0]
    assert (point.error, point.fits) == ("", True)
    assert point.peak_requested <= point.peak_in_use <= point.peak_reserved <= 64 * MiB


@pytest.mark.parametrize(
    "arguments",
    [
        ("worst_fit", "1MiB"),
        ("bfc:growth=true", "1MiB"),
        ("bfc", "much"),
        ("bfc", "many%"),
        ("bfc", 1.5),
        ("bfc", True),
    ],
)
def test_a_wrong_name_or_limit_is_told_at_once(arguments):
    with pytest.raises(InvalidRequest):
        sweep(random_stream(1), *arguments)


def test_what_is_no_trace_or_no_number_of_processes_is_refused():
    with pytest.raises(BfcvizError, match="int"):
        sweep([42], "bfc", "1MiB")
    with pytest.raises(InvalidRequest):
        sweep(random_stream(1), "bfc", "1MiB", processes=0)
    with pytest.raises(InvalidRequest):
        sweep(random_stream(1), "bfc", "1MiB", processes=1, client="tcp://127.0.0.1:1")


def test_progress_and_stop():
    seen, stop = [], Event()

    def progress(state):
        seen.append((state.done, state.asked, None if state.newest is None else state.newest.limit))
        if state.done == 2:
            stop.set()

    results = sweep(random_stream(1), "bfc", [MiB, 2 * MiB, 4 * MiB], progress=progress, stop=stop)
    assert seen == [(0, 3, None), (1, 3, str(MiB)), (2, 3, str(2 * MiB))]
    assert (len(results), results.asked, results.complete) == (2, 3, False)
    assert results.reason


def test_an_interrupt_returns_what_is_known(tmp_path):
    def progress(state):
        if state.done == 2:
            raise KeyboardInterrupt

    path = tmp_path / "results.parquet"
    results = sweep(random_stream(1), "bfc", [MiB, 2 * MiB, 4 * MiB], progress=progress, results=path)
    assert (len(results), results.complete) == (2, False)
    assert len(bfcviz.SweepResults.load(path)) == 2


def test_points_of_an_earlier_sweep_are_not_served_again(tmp_path):
    path, streams = tmp_path / "results.parquet", [random_stream(1), random_stream(2)]
    served = []

    def progress(state):
        if state.newest is not None:
            served.append((state.newest.trace, state.newest.policy, state.newest.limit))

    first = sweep(streams[0], ["bfc", "first_fit"], [None, "8MiB"], results=path)
    second = sweep(streams, ["bfc", "first_fit"], [None, "8MiB"], results=path, progress=progress)
    assert second.resumed == 3  # the point with an error is tried again
    assert served == [
        ("random_1", "bfc", "none"),
        ("random_2", "bfc", "none"),
        ("random_2", "bfc", str(8 * MiB)),
        ("random_2", "first_fit", "none"),
        ("random_2", "first_fit", str(8 * MiB)),
    ]
    assert second.points[:4] == (second.points[0], *first.points[1:])
    third = sweep(random_stream(9, name="random_1"), "first_fit", None, results=path)  # other requests
    assert third.resumed == 0
    assert len(bfcviz.SweepResults.load(path)) == 8 + 1


def test_a_changed_file_is_served_again(tmp_path):
    path, results = tmp_path / "trace.parquet", tmp_path / "results.parquet"
    bfcviz.open(record(tmp_path / "run")).save(path)
    one = sweep(path, "first_fit", None, results=results)
    again = sweep(path, "first_fit", None, results=results)
    bfcviz.open(record(tmp_path / "other", size=5 * MiB)).save(path, overwrite=True)
    other = sweep(path, "first_fit", None, results=results)
    assert [each.resumed for each in (one, again, other)] == [0, 1, 0]
    assert other.points[0].peak_requested > one.points[0].peak_requested


def test_a_file_that_holds_no_results_is_refused(tmp_path):
    path = tmp_path / "results.parquet"
    bfcviz.open(record(tmp_path / "run")).save(path)
    with pytest.raises(FileError):
        sweep(random_stream(1), "bfc", MiB, results=path)


def test_traces_of_one_name_and_points_given_twice():
    results = sweep([random_stream(1), random_stream(1)], ["bfc", "bfc"], [MiB, "1MiB", 1024 * KiB])
    assert [point.trace for point in results.points] == ["random_1", "random_1 (2)"]
    one, two = numbers(results)
    assert (one.peak_in_use, one.version) == (two.peak_in_use, two.version)


def test_requests_end_at_the_first_failure_if_asked():
    stream = random_stream(1)
    whole, stopped = (
        sweep(stream, "first_fit", "100%", stop_at_failure=stop).points[0] for stop in (False, True)
    )
    assert whole.tried == len(stream) > stopped.tried
    assert whole.served + whole.failures == len(stream)
    assert stopped.served + stopped.failures == stopped.tried
    assert stopped.failures == 1
    assert stopped.first_failure == whole.first_failure
    kinds = stream.rows["kind"]
    assert kinds[stopped.tried - 1] == ALLOCATE


def test_a_path_that_is_not_unicode_keeps_its_results(tmp_path):
    bad = os.fsdecode(os.fsencode(tmp_path) + b"/run\xff.parquet")
    saved = tmp_path / "results.parquet"
    found = sweep([bad, random_stream(1)], "first_fit", results=saved)
    assert [point.outcome for point in found.points] == ["error", "fits"]
    assert r"run\udcff.parquet" in found.points[0].trace
    again = sweep([bad, random_stream(1)], "first_fit", results=saved)
    assert again.resumed == 1
    assert "\\udcff" in SweepResults.load(saved).points[0].error


@pytest.mark.parametrize("pool", [-1, 1 << 70])
def test_a_number_that_no_heap_has_is_told_at_once(pool):
    with pytest.raises(InvalidRequest):
        sweep("run.parquet", "bfc", pool=pool)


class Own:
    """A policy of a user."""

    name, options = "own", {}

    def __init__(self, inner):
        self.serve = inner.serve


def test_two_policies_of_one_name_are_refused():
    with pytest.raises(InvalidRequest, match="own"):
        sweep(random_stream(1), [Own(policy_of("first_fit")), Own(policy_of("buddy"))])


def test_only_points_of_the_table_of_policies_are_resumed(tmp_path):
    arguments, saved = (
        ([random_stream(1)], [Own(policy_of("first_fit")), "buddy"]),
        tmp_path / "results.parquet",
    )
    assert sweep(*arguments, results=saved).resumed == 0
    assert sweep(*arguments, results=saved).resumed == 1


def test_results_of_another_version_are_not_resumed(tmp_path, monkeypatch):
    saved = tmp_path / "results.parquet"
    sweep(random_stream(1), "buddy", results=saved)
    monkeypatch.setattr("bfcviz.whatif.sweep.version", lambda _: "99")
    assert sweep(random_stream(1), "buddy", results=saved).resumed == 0


def test_a_class_of_a_notebook_is_refused_by_processes(monkeypatch):
    monkeypatch.setattr(Own, "__module__", "__main__")
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    with pytest.raises(InvalidRequest, match="Own"):
        sweep(random_stream(1), Own(policy_of("buddy")), processes=2)


def test_few_points_are_served_here_and_this_is_said():
    arguments = [random_stream(1), random_stream(2)], ["buddy", "first_fit"]
    found = sweep(*arguments, processes=2)
    assert found.note
    assert found.note in str(found)
    assert numbers(found) == numbers(sweep(*arguments))


def point(trace="a/one.parquet", policy="bfc", limit=8 * MiB, **numbers):
    known = {"limit_bytes": limit, "requests": 10, "served": 10, "failures": 0, "peak_reserved": 4 * MiB}
    return PointResult(trace, "v", "0", policy, str(limit), stop_at_failure=False, **{**known, **numbers})


def failed(**numbers):
    return point(failures=2, first_failure=7, first_failure_bytes=99, **numbers)


def results():
    error = PointResult(
        "a/two.parquet", "", "", "bfc", "none", stop_at_failure=False, error="there is no file"
    )
    return SweepResults([failed(limit=2 * MiB), point(limit=8 * MiB), point(limit=4 * MiB), error], asked=5)


def test_the_smallest_limit_that_fits():
    assert results().smallest_limits() == {("a/one.parquet", "bfc"): 4 * MiB}
    assert SweepResults([failed()]).smallest_limits() == {("a/one.parquet", "bfc"): None}
    stopped = point(served=5)
    assert (stopped.outcome, SweepResults([stopped]).smallest_limits()) == (
        "fails",
        {("a/one.parquet", "bfc"): None},
    )


def test_complete_and_errors():
    assert not results().complete
    assert [key.trace for key in results().errors] == ["a/two.parquet"]


def test_the_table_has_a_column_for_each_number_and_survives_a_file(tmp_path):
    path = tmp_path / "results.parquet"
    results().save(path)
    assert SweepResults.load(path).points == results().points
    table = results().to_arrow()
    assert table.column_names == [each.name for each in fields(PointResult)]
    assert table["failures"].to_pylist() == [2, 0, 0, None]
    frame = results().to_pandas()
    assert frame["limit_bytes"].dropna().tolist() == [2 * MiB, 8 * MiB, 4 * MiB]


def test_the_text_names_every_trace_and_policy_once():
    text = str(results())
    assert "one.parquet" in text
    assert "there is no file" in text
    assert "4.0 MiB" in text
    assert [text.count(name) for name in ("one.parquet", "two.parquet")] == [1, 1]
    assert len(text.splitlines()) == 2 + 1 + 2 + 3  # summary, titles, two traces, their rows and the message
    many = SweepResults([point(trace=f"trace_{number}") for number in range(100)])
    assert len(str(many).splitlines()) < 130
    assert "40 more" in str(many)


def test_the_text_is_at_most_80_columns_wide():
    policy = "bfc:allow_growth=true,garbage_collection=true,fragmentation_fraction=0.25"
    text = str(SweepResults([point(policy=policy, error="a cause " * 30), point(), failed()]))
    assert max(map(len, text.splitlines())) <= 80
    assert policy in text


def test_names_of_files_cannot_control_a_terminal():
    text = str(SweepResults([point(trace="a\x1b[31m"), failed(error="b\x1b[2J")], asked=3, reason="c\x1b[0m"))
    assert text.replace("\n", "").isprintable()


def test_what_fits_only_without_a_limit_says_so():
    none = str(SweepResults([failed()]))
    unlimited = str(SweepResults([failed(), point(limit=None)]))
    assert ("none of them" in none, "no limit only" in none) == (True, False)
    assert ("none of them" in unlimited, "no limit only" in unlimited) == (False, True)


def test_files_that_are_no_results_are_refused(tmp_path):
    damaged, other = tmp_path / "damaged.parquet", tmp_path / "other.parquet"
    damaged.write_bytes(b"PAR1" + bytes(50))
    pq.write_table(pa.table({"trace": ["a"]}), other)
    for path in (damaged, other, tmp_path / "missing", tmp_path):
        with pytest.raises(FileError):
            SweepResults.load(path)


def test_results_of_a_sweep_are_the_same_after_loading(tmp_path):
    made = bfcviz.sweep(random_stream(1), ["bfc", "first_fit"], ["90%", None])
    made.save(tmp_path / "results.parquet")
    assert SweepResults.load(tmp_path / "results.parquet").points == made.points

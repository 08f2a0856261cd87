import gzip
import json
import random
from pathlib import Path

import pytest
from unit.importers.chrome_events import BASE, EVENTS, OTHER, event, text_of

from bfcviz.cli.info import info
from bfcviz.errors import FileError
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Status, Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.model import Model


def opened(path: Path, text: str | bytes) -> Trace:
    (path / "run.pt.trace.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_trace(path / "run.pt.trace.json")


def in_use(trace: Trace, pool: int = 0) -> list[tuple[int, int]]:
    model = Model(trace, pool)
    model.seek(len(trace))
    return [(int(chunk["address"]), int(chunk["size"])) for chunk in model.chunks() if chunk["in_use"]]


@pytest.mark.parametrize("seed", range(4))
def test_events_in_any_order_give_the_same_heap(tmp_path: Path, seed: int) -> None:
    shuffled = [OTHER, *EVENTS]
    random.Random(seed).shuffle(shuffled)
    for text in (
        text_of(shuffled),
        json.dumps(shuffled),
        json.dumps(shuffled, indent=2),
        gzip.compress(text_of(EVENTS).encode()),
    ):
        trace = opened(tmp_path, text)
        assert in_use(trace) == [(BASE, 512), (BASE + 1024, 512)]
        times = trace.read(0, len(trace))["time"].tolist()
        assert (times[0], times[-1]) == (0, 2500)
        assert times == sorted(times)


def test_what_the_trace_states_is_compared_and_kept(tmp_path: Path) -> None:
    trace = opened(tmp_path, text_of(EVENTS))
    assert [pool.name for pool in trace.origin.pools] == ["cuda:0"]
    assert trace.origin.status == Status.DEGRADED
    assert len(trace.origin.reasons) == 1
    assert "derived" in trace.origin.reasons[0]
    assert trace.origin.details["totals"] == [{"allocations": 3, "frees": 1, "failures": 0}]
    (found,) = info(open_trace(trace.save(tmp_path / "saved.parquet")))["allocators"]  # type: ignore[misc]
    assert (found["bytes_in_use"], found["peak_bytes_in_use"]) == (1024, 1536)
    assert (found["pool_bytes"], found["free_bytes"]) == (2 << 20, (2 << 20) - 1024)
    assert (
        found["largest_free_chunk"]
        is found["external_fragmentation"]
        is found["requested_bytes_in_use"]
        is None
    )


def test_memory_from_before_the_trace_is_told(tmp_path: Path) -> None:
    events = [event(1, BASE, 1024, 6024), event(2, BASE + 4096, -1000, 5024), event(3, BASE, -1024, 4000)]
    trace = opened(tmp_path, text_of(events))
    reasons = " ".join(trace.origin.reasons)
    assert "cuda:0: 1 allocations of 1000 B were made before the trace" in reasons
    assert "3.9 KiB were allocated before the trace and not freed in it" in reasons
    assert in_use(trace) == []
    (earlier,) = [e for e in trace.read(0, len(trace)) if e["kind"] == Kind.ALLOCATE and e["label"]]
    assert trace.labels[int(earlier["label"])].name == "allocated before the trace"
    assert info(trace)["allocators"][0]["bytes_in_use"] == 4000  # type: ignore[index]


def test_missing_events_show_in_the_totals(tmp_path: Path) -> None:
    trace = opened(tmp_path, text_of([EVENTS[0], *EVENTS[2:]]))
    assert "cuda:0: 2 of 3 events state other bytes in use" in " ".join(trace.origin.reasons)
    twice = opened(tmp_path, text_of([EVENTS[0], EVENTS[0]]))
    assert "allocations over memory whose free was not seen" in " ".join(twice.origin.reasons)


def test_devices_and_processes_are_pools(tmp_path: Path) -> None:
    cpu = event(5, 64, 128, 128)
    cpu["args"] |= {"Device Type": 0, "Device Id": -1}
    trace = opened(tmp_path, text_of([*EVENTS, event(4, BASE, 256, 256, device=1), cpu]))
    assert [pool.name for pool in trace.origin.pools] == ["cuda:0", "cuda:1", "cpu"]
    assert [in_use(trace, pool) for pool in (1, 2)] == [[(BASE, 256)], [(64, 128)]]
    trace = opened(tmp_path, text_of([*EVENTS, event(4, BASE, 256, 256, pid=9)]))
    assert [pool.name for pool in trace.origin.pools] == ["cuda:0 (process 1)", "cuda:0 (process 9)"]
    many = opened(tmp_path, text_of([event(4, BASE, 256, 256, pid=pid) for pid in range(300)]))
    assert len(many.origin.pools) == 256
    assert "left out: 44 memory events of devices after the first 256" in many.origin.reasons


def test_a_failed_request_is_an_oom_event(tmp_path: Path) -> None:
    failed = event(1002.5, 0, 1 << 40, 512) | {"name": "[OutOfMemory]"}
    del failed["args"]["Addr"]
    trace = opened(tmp_path, text_of([*EVENTS, failed]))
    (failure,) = trace.origin.details["failures"]  # type: ignore[misc]
    found = trace.read(failure["event"], failure["event"] + 1)[0]
    assert (found["kind"], found["requested"], found["time"]) == (Kind.OOM, 1 << 40, 2000)


def test_a_trace_without_memory_events_says_how_to_record_them(tmp_path: Path) -> None:
    for text in (text_of([]), "[" + json.dumps(OTHER) + "]"):
        with pytest.raises(FileError, match="profile_memory=True"):
            opened(tmp_path, text)


def test_impossible_events_are_left_out_and_counted(tmp_path: Path) -> None:
    wrong: list[dict] = [dict(EVENTS[0], args=EVENTS[0]["args"] | change) for change in (
        {"Addr": -5}, {"Addr": 1 << 70}, {"Addr": "x"}, {"Addr": None}, {"Bytes": 1.5}, {"Bytes": True}, {"Bytes": 0},
        {"Addr": [1]}, {"Bytes": 1 << 62},
    )]  # fmt: skip
    wrong += [
        dict(EVENTS[0], args=7),
        dict(EVENTS[0], ts=-1),
        dict(EVENTS[0], ts="soon"),
        dict(EVENTS[0], ts=None),
    ]
    wrong += [dict(EVENTS[0], ts=1e300), dict(EVENTS[0], name=["[memory]"])]
    text = text_of([*EVENTS, *wrong]).replace('"ts": 1e+300', '"ts": NaN')
    trace = opened(tmp_path, text)
    assert in_use(trace) == in_use(opened(tmp_path, text_of(EVENTS)))
    assert "left out: 1 memory events without numbers" in trace.origin.reasons
    assert "left out: 2 memory events without memory" in trace.origin.reasons
    assert "left out: 11 memory events with impossible numbers" in trace.origin.reasons


def test_numbers_in_quotes_are_read(tmp_path: Path) -> None:
    quoted = [dict(e, ts=str(e["ts"]), args=e["args"] | {"Addr": hex(e["args"]["Addr"])}) for e in EVENTS]
    assert in_use(opened(tmp_path, text_of(quoted))) == in_use(opened(tmp_path, text_of(EVENTS)))


def test_keys_that_occur_twice_are_both_read(tmp_path: Path) -> None:
    text = text_of(EVENTS[2:], traceEvents=0).replace(
        '"traceName": "x"', '"traceEvents": ' + json.dumps(EVENTS[:2])
    )
    assert in_use(opened(tmp_path, text)) == in_use(opened(tmp_path, text_of(EVENTS)))


def test_a_cut_trace_keeps_the_events_before(tmp_path: Path) -> None:
    text = text_of(EVENTS)
    starts = [at for at in range(len(text)) if text.startswith('{"ph": "i"', at)]
    for whole, start in enumerate(starts[1:], 1):
        for keep in (start - 1, start, start + 40):
            trace = opened(tmp_path, text[:keep])
            assert trace.origin.reasons[0].startswith("the trace is cut off at character"), keep
            assert trace.origin.details["totals"][0]["allocations"] >= min(whole, 2)  # type: ignore[index]
    packed = gzip.compress(text.encode())
    assert "gzip file is cut off" in opened(tmp_path, packed[:-3]).origin.reasons[0]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('{"traceEvents": [' + "[" * 100_000, "nested too deeply"),
        (
            '{"traceEvents": [{"ph" "ts"}, {"name": "a long tail of the text"}]}',
            "corrupt Chrome trace: is not JSON",
        ),
        (
            '{"traceEvents": [1 2, "a long tail of the text, so that it is not cut"]}',
            "a comma or ] is missing",
        ),
        ('{"traceEvents" [], "ph": "ts"}', "a key is missing"),
        ('{"traceEvents": []} and more text', "is followed by more text"),
        ('{"traceEvents": [' + "1" * 5000 + ', "a long tail of the text"]}', "corrupt Chrome trace"),
    ],
)
def test_damaged_json_is_one_error_with_its_place(tmp_path: Path, text: str, cause: str) -> None:
    with pytest.raises(FileError, match="character") as caught:
        opened(tmp_path, text)
    assert cause in str(caught.value)

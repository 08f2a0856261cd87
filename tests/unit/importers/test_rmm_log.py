import gzip
import random
from pathlib import Path

import pytest
from unit.importers.rmm_lines import ERAS, ROWS, Row, current, of_2020, of_cnmem

from bfcviz.cli.info import info
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Status, Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.model import Model


def opened(path: Path, text: str | bytes, name: str = "rmm.csv") -> Trace:
    (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_trace(path / name)


def in_use(trace: Trace, pool: int = 0) -> list[tuple[int, int, int]]:
    model = Model(trace, pool)
    model.seek(len(trace))
    chunks = model.chunks()
    return [(int(c["address"]), int(c["size"]), int(c["requested"])) for c in chunks if c["in_use"]]


def counts(trace: Trace) -> dict[Kind, int]:
    kinds = trace.read(0, len(trace))["kind"].tolist()
    return {kind: kinds.count(kind) for kind in (Kind.ALLOCATE, Kind.FREE, Kind.OOM)}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("change", [str, lambda text: text.replace("\n", "\r\n")])
def test_every_version_gives_the_same_heap(tmp_path: Path, era: str, change) -> None:
    trace = opened(tmp_path, change(ERAS[era](ROWS)))
    assert in_use(trace) == [(0x7F0000001000, 512, 300), (0x7F0000001400, 256, 256)]
    failures = 0 if era == "of_cnmem" else 1
    assert counts(trace) == {Kind.ALLOCATE: 3, Kind.FREE: 1, Kind.OOM: failures}
    assert trace.origin.status == Status.DEGRADED
    assert any("derived" in reason for reason in trace.origin.reasons)
    assert any("rounded up to 256" in reason for reason in trace.origin.reasons)
    assert trace.origin.details["framework"] == "rmm"
    assert trace.origin.details["totals"] == [{"allocations": 3, "frees": 1, "failures": failures}]
    saved = open_trace(trace.save(tmp_path / "saved.parquet"))
    assert saved.origin.details == trace.origin.details
    assert in_use(saved) == in_use(trace)


def test_a_failure_is_an_oom_event_with_the_numbers_of_its_moment(tmp_path: Path) -> None:
    trace = opened(tmp_path, current(ROWS))
    (failure,) = trace.origin.details["failures"]  # type: ignore[misc]
    event = trace.read(failure["event"], failure["event"] + 1)[0]
    assert (event["kind"], event["requested"]) == (Kind.OOM, 1 << 30)
    assert (event["address"], event["size"]) == (1024, 1024)  # free bytes, largest free chunk


def test_streams_and_threads_are_numbered(tmp_path: Path) -> None:
    trace = opened(tmp_path, current(ROWS))
    events = trace.read(0, len(trace))
    allocates = events[events["kind"] == Kind.ALLOCATE]
    assert allocates["stream"].tolist() == [0, 1, 2]
    assert trace.origin.pools[0].options["streams"] == {"1": "0x55aa", "2": "0x2"}
    assert trace.origin.details["threads"] == {"1": "13395", "2": "13396"}
    assert allocates["thread"].tolist() == [1, 2, 1]


def test_times_go_on_after_midnight(tmp_path: Path) -> None:
    for era in (current, of_2020):
        trace = opened(tmp_path, era(ROWS, 86_398))
        times = trace.read(0, len(trace))["time"].tolist()
        assert times == sorted(times)
        assert times[-1] // 1_000_000_000 in (3, 4)


def test_sizes_stay_where_addresses_are_not_multiples_of_the_alignment(tmp_path: Path) -> None:
    trace = opened(tmp_path, current([("allocate", 0x1010, 100, 0), ("allocate", 0x1080, 100, 0)]))
    assert in_use(trace) == [(0x1010, 100, 100), (0x1080, 100, 100)]
    assert not any("rounded" in reason for reason in trace.origin.reasons)


def test_the_oldest_version_tells_the_driver_s_view_and_the_caller(tmp_path: Path) -> None:
    for location in (True, False):
        trace = opened(tmp_path, of_cnmem(ROWS, location))
        assert trace.origin.details["facts"] == [{"device_free": 996, "device_total": 16_000}]
        assert (trace.origin.pools[0].name, trace.origin.pools[0].limit) == ("rmm:0", 16_000)
        assert ("/a/driver.py:683" in [trace.labels[n].name for n in range(len(trace.labels))]) == location


def test_several_devices_are_several_pools(tmp_path: Path) -> None:
    text = of_cnmem(ROWS[:3]) + of_cnmem(ROWS[:1]).split("\n", 1)[1].replace("Alloc,0", "Alloc,1")
    trace = opened(tmp_path, text)
    assert [pool.name for pool in trace.origin.pools] == ["rmm:0", "rmm:1"]
    assert [len(in_use(trace, pool)) for pool in (0, 1)] == [1, 1]


def test_a_reallocation_replaces_memory(tmp_path: Path) -> None:
    text = (
        of_cnmem(ROWS[:1])
        + "Realloc,0,0x7f0000001000,0,5000,0,0,1,7,8,1,x:1\nRealloc,0,0x5000,0,100,0,0,1,9,9,1,x:1\n"
    )
    trace = opened(tmp_path, text)
    assert in_use(trace) == [(0x5000, 256, 100), (0x7F0000001000, 5120, 5000)]
    assert "left out: 1 frees of memory that a reallocation replaced" in " ".join(trace.origin.reasons)


def test_the_device_is_that_of_the_file_name(tmp_path: Path) -> None:
    assert opened(tmp_path, current(ROWS), "log.dev3.csv").origin.pools[0].name == "rmm:3"


def test_a_log_without_pointers_gets_made_up_addresses(tmp_path: Path) -> None:
    lines = ["Time,Action,Size,Stream", "10:00:00:000001,allocate,1000,0", "10:00:00:000002,allocate,1000,0"]
    lines += ["10:00:00:000003,free,1000,0", "10:00:00:000004,allocate,700,0x1", "10:00:00:000005,free,9,0"]
    trace = opened(tmp_path, "\n".join(lines) + "\n")
    found = info(trace)["allocators"][0]  # type: ignore[index]
    assert (found["bytes_in_use"], found["requested_bytes_in_use"], found["chunks_in_use"]) == (1792, 1700, 2)
    assert found["largest_free_chunk"] is found["pool_bytes"] is found["external_fragmentation"] is None
    assert "made up" in " ".join(trace.origin.reasons)
    assert "1 frees of memory whose allocation was not seen" in " ".join(trace.origin.reasons)


def test_a_repeated_header_goes_on_with_the_heap_where_it_can(tmp_path: Path) -> None:
    first, second = current(ROWS[:2]), current(ROWS[2:], 50_010)
    trace = opened(tmp_path, first + second)
    assert in_use(trace) == in_use(opened(tmp_path, current(ROWS)))
    assert [pool.name for pool in trace.origin.pools] == ["rmm"]
    over_midnight = opened(tmp_path, current(ROWS[:2], 86_390) + current(ROWS[2:], 10))
    assert len(over_midnight.origin.pools) == 1
    assert over_midnight.read(0, len(over_midnight))["time"][-1] // 1_000_000_000 == 22


def test_logs_of_several_runs_in_one_file_are_pools(tmp_path: Path) -> None:
    trace = opened(tmp_path, current(ROWS) + current(ROWS, 50_010) + of_2020(ROWS, 3))
    assert [pool.name for pool in trace.origin.pools] == ["rmm", "rmm (log 2)", "rmm (log 3)"]
    assert [dict(pool.options)["allocator_name"] for pool in trace.origin.pools] == ["rmm"] * 3
    assert trace.origin.pools[2].options["dump"] == 3
    for pool in range(3):
        assert in_use(trace, pool) == in_use(trace)
    events = trace.read(0, len(trace))
    for failure in trace.origin.details["failures"]:  # type: ignore[attr-defined]
        assert events[failure["event"]]["kind"] == Kind.OOM


def test_more_logs_than_pools_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = opened(tmp_path, current(ROWS) * 260)
    assert len(trace.origin.pools) == 256
    assert "left out: 4 logs after the first 256" in trace.origin.reasons


def test_a_cut_log_is_truncated(tmp_path: Path) -> None:
    text = current(ROWS)
    whole = opened(tmp_path, text)
    last = text.rstrip("\n").rindex("\n") + 1
    for keep in range(last + 1, len(text)):
        trace = opened(tmp_path, text[:keep])
        assert trace.origin.status == Status.TRUNCATED, text[last:keep]
        assert trace.origin.reasons[0].startswith("line 6 ")
        assert len(in_use(trace)) == (
            2 if text[:keep].endswith("300,0") else 1
        )  # stream 0x2 is not known before
    packed = gzip.compress(text.encode())
    trace = opened(tmp_path, packed[:-9])
    assert trace.origin.status == Status.TRUNCATED
    assert "gzip file is cut off" in trace.origin.reasons[0]
    assert trace.origin.lacks_end
    assert in_use(opened(tmp_path, packed)) == in_use(whole)
    one_stream = current([(*row[:3], 0x55AA) for row in ROWS])
    assert len(in_use(opened(tmp_path, one_stream[:-1]))) == 2  # only the line end is missing
    assert len(in_use(opened(tmp_path, one_stream[:-2]))) == 1  # stream 0x55a


def test_what_is_no_request_is_counted_not_dropped_silently(tmp_path: Path) -> None:
    text = current([*ROWS, ("free", 0x9000, 8, 0), ("allocate", 0x8000, 0, 0), ("free", 0x8000, 0, 0)])
    text += "what is this\n1,10:00:00.1,resize,0x1,2,0\n1,10:00:00.1,allocate,0x0,2,0\n"
    text += f"1,25:00:00.1,allocate,0x100,2,0\n1,10:00:00.1,allocate,{1 << 70},2,0\n1,nan,free,0x100,2,0\n"
    text += "1,1e400,free,0x100,2,0\n1,10:00:00.1,allocate,0x100,-4,0\n"
    trace = opened(tmp_path, text)
    reasons = " ".join(trace.origin.reasons)
    assert "left out: 7 lines that hold no request of RMM" in reasons
    assert "left out: 1 allocations of 0 bytes" in reasons
    assert "left out: 1 allocations at an impossible address" in reasons
    assert "1 frees of memory whose allocation was not seen" in reasons
    assert len(in_use(trace)) == 2


def test_a_log_of_nothing_is_an_empty_trace(tmp_path: Path) -> None:
    trace = opened(tmp_path, current([]))
    assert (len(trace), trace.origin.status, trace.origin.reasons) == (0, Status.COMPLETE, ())


def requests(rng: random.Random) -> list[Row]:
    """What a first-fit heap of 64 slots was asked for."""
    rows: list[Row] = []
    live: dict[int, int] = {}
    for _ in range(rng.randrange(41)):
        if live and rng.random() < 0.5:
            address = rng.choice(sorted(live))
            rows.append(("free", address, live.pop(address), 0))
        else:
            address = 0x7F0000000000 + 4096 * rng.randrange(64)
            if address not in live:
                live[address] = rng.choice((1, 4096, rng.randint(1, 4096)))
                rows.append(("allocate", address, live[address], rng.randrange(4)))
    return rows


@pytest.mark.parametrize("era", ERAS)
def test_round_trip(tmp_path: Path, era: str) -> None:
    for seed in range(10):
        rows = requests(random.Random(f"{era} {seed}"))
        live: dict[int, int] = {}
        for action, address, size, _ in rows:
            if action == "free":
                del live[address]
            else:
                live[address] = size
        trace = opened(tmp_path, ERAS[era](rows))
        assert [(address, requested) for address, _, requested in in_use(trace)] == sorted(live.items()), seed

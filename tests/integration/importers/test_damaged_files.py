"""Files of every framework that are cut, spliced or have other bytes or numbers: one error, or a sound trace.

Dumps in logs are in `test_damaged_logs.py`, snapshots of PyTorch in `test_hostile_snapshots.py`.
"""

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared import SHARED, needs_shared, write_anew
from unit.importers.bfc_log.tensor_lines import BASE, LOG, allocation, free
from unit.importers.bfc_log.vlog_maker import RecordingBFC, VlogMaker, random_run
from unit.importers.chrome_events import EVENTS, text_of
from unit.importers.pprof_maker import HOLDERS, made, said_to_be_cut
from unit.importers.profile_maker import chunk, number
from unit.importers.rmm_lines import ERAS, ROWS
from unit.importers.tensorflow.dump_maker import HEAP, dump
from unit.importers.vma_dump import DUMP

from bfcviz.cli.info import info
from bfcviz.errors import FileError
from bfcviz.events.trace import Trace
from bfcviz.importers.bfc_log.log_lines import log_text, records
from bfcviz.importers.bfc_log.vlog import read_vlog
from bfcviz.importers.open_trace import open_trace
from bfcviz.importers.tensorflow.memory_dump import read_memory_dump
from bfcviz.model.model import Model

REAL_PPROF = SHARED / "real" / "other" / "jax_microjax_2a10943c.prof"

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def vlog(level: int, *, named_threads: bool) -> str:
    maker = VlogMaker(level, named_threads=named_threads)
    maker.create("GPU_0_bfc")
    random_run(maker, RecordingBFC(300 << 20), "GPU_0_bfc", 12, seed=3)
    maker.fail("GPU_0_bfc", 5 << 20)
    return maker.text()


def read_as_vlog(path: Path) -> Trace:
    return read_vlog(records(log_text(path.read_bytes())), path)


FILES = {
    "chrome trace": ([text_of(EVENTS).encode()], open_trace),
    "pprof": ([made(HOLDERS)], open_trace),
    "vma": ([json.dumps(DUMP).encode()], open_trace),
    "rmm": ([make(ROWS * 3).encode() for make in ERAS.values()], open_trace),
    "memory dump": (
        [dump(*HEAP, chunk(2, number(2, 768)), stats=(9, 768, 5000, 4096))],
        read_memory_dump,
    ),
    "log_memory": ([(LOG + free(2) + allocation(9, BASE, 300)).encode()], open_trace),
    "vlog": (
        [vlog(level, named_threads=named).encode() for level in (1, 2, 3, 4) for named in (True, False)],
        read_as_vlog,
    ),
}
"""Good files of a format, and what reads them."""


def check(trace: Trace) -> None:
    json.dumps(info(trace), allow_nan=False)
    trace.origin.to_json()
    for pool in range(len(trace.origin.pools)):
        model = Model(trace, pool)
        model.seek(len(trace))
        chunks, stats = model.chunks(), model.stats()
        assert chunks["size"].sum() == stats.pool_bytes
        assert chunks["size"][chunks["in_use"]].sum() == stats.bytes_in_use


def opened(folder: Path, data: bytes) -> Trace:
    write_anew(folder / "file", data)
    return open_trace(folder / "file")


@pytest.mark.parametrize("name", FILES)
@settings(in_one_folder)
@given(data=st.data())
def test_damaged_bytes(tmp_path: Path, name: str, data: st.DataObject) -> None:
    whole, read = FILES[name]
    raw = bytearray(data.draw(st.sampled_from(whole)))
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        flipped = [raw[place] ^ 1 << bit for bit in range(8)]
        raw[place] = data.draw(st.sampled_from([*flipped, *b'0919 \nx(,{}":-\xff']) | st.integers(0, 255))
    if data.draw(st.sampled_from((False, False, True))):
        cut = data.draw(st.integers(0, len(raw)))
        raw = raw[:cut] + raw[data.draw(st.just(len(raw)) | st.integers(cut, len(raw))) :]
    write_anew(tmp_path / "damaged", raw)
    try:
        trace = read(tmp_path / "damaged")
    except FileError:
        return
    check(trace)


_NUMBERS = st.one_of(
    st.integers(-(1 << 70), 1 << 70), st.floats(), st.text(max_size=5), st.none(), st.booleans()
)


@in_one_folder
@given(rows=st.lists(st.tuples(*[_NUMBERS] * 6), max_size=6))
def test_any_numbers_in_a_chrome_trace(tmp_path: Path, rows: list) -> None:
    keys = ("Addr", "Bytes", "Total Allocated", "Device Type", "Device Id")
    odd = [{"name": "[memory]", "ts": ts, "args": dict(zip(keys, args, strict=True))} for ts, *args in rows]
    check(opened(tmp_path, text_of([*EVENTS, *odd]).encode()))


def test_a_chrome_trace_that_is_cut_anywhere_keeps_the_events_before(tmp_path: Path) -> None:
    text = text_of(EVENTS)
    starts = [at for at in range(len(text)) if text.startswith('{"ph": "i"', at)]
    for keep in range(text.index('"traceEvents"') + 20, len(text)):
        whole = sum(start < keep for start in starts) - 1
        try:
            trace = opened(tmp_path, text[:keep].encode())
        except FileError:
            assert whole < 1
            continue
        assert trace.origin.reasons[0].startswith("the trace is cut off at character"), keep
        assert trace.origin.lacks_end
        assert trace.origin.details["totals"][0]["allocations"] >= min(whole, 2)  # type: ignore[index]


def test_a_pprof_profile_that_is_cut_anywhere_says_so(tmp_path: Path) -> None:
    data = made(HOLDERS)
    assert said_to_be_cut(tmp_path, data, range(1, len(data)))


@needs_shared
def test_a_real_pprof_profile_that_is_damaged(tmp_path: Path) -> None:
    whole = gzip.decompress(REAL_PPROF.read_bytes())
    for seed in range(60):
        rng = random.Random(seed)
        raw = bytearray(whole)
        for _ in range(seed % 4):
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        del raw[rng.randrange(1, len(raw)) if seed % 2 else len(raw) :]
        try:
            trace = opened(tmp_path, bytes(raw))
        except FileError:
            continue
        json.dumps(info(trace), allow_nan=False)

"""Good files of every format that frameworks write: made here, and real ones where they lie beside the repository."""

import gzip
import json
import pickle
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from integration.attacks.opening import good_trace
from shared import SHARED
from unit.importers.bfc_log.log_maker import ERAS, SETTINGS, MadeChunk, MadeHeap, make_log
from unit.importers.bfc_log.tensor_lines import LOG as LOG_MEMORY
from unit.importers.bfc_log.vlog_maker import RecordingBFC, VlogMaker, random_run
from unit.importers.chrome_events import EVENTS, text_of
from unit.importers.made import profile
from unit.importers.pprof_maker import HOLDERS, made
from unit.importers.rmm_lines import ERAS as RMM_ERAS
from unit.importers.rmm_lines import ROWS
from unit.importers.tensorflow.dump_maker import HEAP, dump
from unit.importers.vma_dump import DUMP

from bfcviz.model.trace_index import IndexBuilder

REAL = {
    "log": ("logs/*.log", "logs/excerpts/*.log", "tensorflow/oom_transformer.log"),
    "history": ("tensorflow/lstm.vlog.gz",),
    "dump": ("tensorflow/*.memory_dump",),
    "snapshot": ("snapshots/*.pickle",),
    "vma": ("other/vma_sample.json",),
    "pprof": ("other/*.prof",),
    "xplane": ("tensorflow/*.xplane.pb.gz",),
}
"""Format -> where its real files are, below `real`."""

LONG = 400_000  # bytes; what is longer is cut in the middle, as each input is one of thousands


def logs(rng):
    for era in ERAS.values():
        heap = MadeHeap(regions=_regions(rng), request=rng.choice((300, 5000, 1 << 30)))
        yield rng.choice(list(SETTINGS.values()))(make_log(heap, era)).encode()


def histories(rng):
    for level in (1, 2, 3, 4):
        maker, heap = VlogMaker(level, named_threads=level % 2 == 0), RecordingBFC(1 << 24)
        maker.create("GPU_0_bfc")
        random_run(maker, heap, "GPU_0_bfc", 60, seed=rng.randrange(99))
        maker.fail("GPU_0_bfc", 1 << 30, soft=level == 2)
        yield maker.text().encode()
    yield LOG_MEMORY.encode()


def dumps(_rng):
    yield dump(*HEAP, stats=(9, 768, 5000, 4096))
    yield dump(*HEAP) + dump(*HEAP[:2], name="GPU_1_bfc")


def snapshot_value(rng, entries=30):
    """A snapshot as Python holds it: devices with segments, and a trace whose entries fit them mostly."""
    segments, trace = [], []
    for number in range(rng.randint(1, 3)):
        at, blocks = (number + 1) << 24, []
        for size in (rng.choice((512, 1024, 1 << 20)) for _ in range(rng.randint(1, 6))):
            state = rng.choice(("inactive", "active_allocated", "active_pending_free"))
            frames = [{"filename": "train.py", "line": len(blocks), "name": "step"}]
            block = {"address": at + sum(each["size"] for each in blocks), "size": size, "state": state}
            blocks.append(block | {"requested_size": size - 8, "frames": frames})
        total = sum(each["size"] for each in blocks)
        segments.append(
            {"device": number % 2, "address": at, "total_size": total, "stream": 0, "blocks": blocks,
             "segment_type": "large", "is_expandable": number == 2, "segment_pool_id": (0, number)}
        )  # fmt: skip
        for block in blocks * (entries // 10):
            action = rng.choice(("alloc", "free_requested", "free_completed", "oom", "snapshot"))
            trace.append(
                {"action": action, "addr": block["address"], "size": block["size"], "stream": 0,
                 "time_us": len(trace), "frames": block["frames"], "device_free": 4096}
            )  # fmt: skip
        trace.append({"action": "segment_alloc", "addr": at, "size": total, "stream": 0, "frames": []})
    note = {"name": "phase", "stage": "START", "time_us": 1, "device": 0}
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False, "max_split_size": -1}
    return rng.choice((
        {"segments": segments, "device_traces": [trace, []], "allocator_settings": settings,
         "external_annotations": [note, note | {"stage": "END", "time_us": 2}]},
        {"segments": segments, "device_traces": [trace]},
        segments,
    ))  # fmt: skip


def snapshots(rng):
    for protocol in (2, 2, 3, 4, 4, 5):
        yield pickle.dumps(snapshot_value(rng), protocol)


def rmm_logs(rng):
    for make in RMM_ERAS.values():
        yield make(ROWS * rng.randint(1, 8)).encode()


def vma_dumps(_rng):
    yield json.dumps(DUMP, indent=1).encode()
    yield json.dumps(DUMP).encode("utf-16")


def pprof_profiles(_rng):
    yield made(HOLDERS)
    yield gzip.compress(made(HOLDERS * 9), mtime=0)


def chrome_traces(_rng):
    yield text_of(EVENTS).encode()
    yield json.dumps(EVENTS * 20).encode()


def xplanes(_rng):
    yield from (profile(5), profile(60))


def block_files(_rng):
    with TemporaryDirectory() as folder:
        for number, count in enumerate((40, 400, 3000)):
            trace = good_trace(count, number)
            path = trace.save(Path(folder, f"{number}.bfc"), describe=IndexBuilder(len(trace.origin.pools)))
            yield path.read_bytes()


_MAKERS = {
    "bfc": block_files,
    "log": logs,
    "history": histories,
    "dump": dumps,
    "snapshot": snapshots,
    "rmm": rmm_logs,
    "vma": vma_dumps,
    "pprof": pprof_profiles,
    "kineto": chrome_traces,
    "xplane": xplanes,
}
FORMATS = tuple(_MAKERS)


@cache
def made_files(format_):
    """The files that are made here, the same in every run."""
    return tuple(_MAKERS[format_](random.Random(format_)))


@cache
def real_files(format_):
    """Real files, unpacked; none where they do not lie beside the repository."""
    paths = [path for pattern in REAL.get(format_, ()) for path in sorted((SHARED / "real").glob(pattern))]
    return tuple(
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in paths
    )


def seed(format_, rng):
    """The bytes of a good file: a real one half of the time; of a long one the beginning and the end, often."""
    real = real_files(format_)
    data = rng.choice(real if real and rng.random() < 0.5 else made_files(format_))
    if len(data) > LONG and rng.random() < 0.95:
        start = rng.choice((1 << 10, 1 << 14, 1 << 17))
        return data[:start] + data[len(data) - rng.choice((0, 1 << 10, 1 << 16)) :]
    return data


def _regions(rng):
    regions, address = [], 0x7F0000000000
    for _ in range(rng.randint(1, 3)):
        chunks = []
        for _ in range(rng.randint(1, 9)):
            size = 256 * rng.choice((1, 2, 4, 1000, 1 << 20))
            in_use = not chunks or not chunks[-1].in_use or rng.random() < 0.5
            chunks.append(MadeChunk(size, size - 7 if in_use else 0, in_use, "op" if in_use else ""))
        regions.append((address, chunks))
        address += sum(chunk.size for chunk in chunks) + (1 << 30)
    return regions

"""Synthetic events: plausible in every field, but not from a heap. For tests of files, not of models."""

import base64
import json
import zlib
from functools import cache, lru_cache

import numpy as np
import pyarrow.parquet as pq

from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.storage.parquet import LABELS_KEY, ORIGIN_KEY, ParquetLabelNames, parquet_table
from bfcviz.events.trace import BLOCK, Trace

SLOTS = 4000
NAMES = 200


def fabricate(count, seed=0):
    """`count` events in the usual order of a heap: split, allocate, free, merge; labels below NAMES."""
    return _fabricated(count, seed).copy()


@lru_cache(maxsize=8)
def _fabricated(count, seed):
    rng = np.random.default_rng(seed)
    sizes = (rng.lognormal(9, 2.5, SLOTS).astype(np.int64) // 256 + 1) * 256
    starts = 0x7F00_0000_0000 + np.cumsum(sizes) - sizes
    slot = rng.integers(0, SLOTS, count // 4 + 1)[np.arange(count) // 4]
    kind = np.resize(np.array([Kind.SPLIT, Kind.ALLOCATE, Kind.FREE, Kind.MERGE], np.uint8), count)
    odd = rng.random(count) < 0.3
    kind[odd] = rng.integers(min(Kind), max(Kind) + 1, int(odd.sum()))
    lived = (kind == Kind.ALLOCATE) | (kind == Kind.FREE)

    events = np.zeros(count, EVENT)
    events["seq"] = np.arange(count)
    events["time"] = np.cumsum(rng.integers(60, 4000, count))
    events["address"] = starts[slot] + 256 * rng.integers(0, 64, count) * odd
    events["size"] = np.where(odd, 256 * rng.integers(1, 100_000, count), sizes[slot])
    events["requested"] = np.where(lived, events["size"] - rng.integers(0, 256, count, np.uint64), 0)
    events["chunk"] = slot
    events["other"] = np.where(
        kind == Kind.FREE, np.maximum(np.arange(count) - rng.integers(1, 100_000, count), 0), slot[::-1]
    )
    events["label"] = np.where(lived, rng.integers(0, NAMES, SLOTS)[slot], 0)
    events["thread"] = events["by"] = rng.integers(0, 4, count)
    events["stream"] = rng.integers(0, 3, count)
    events["region"] = slot % 7
    events["kind"] = kind
    events["bin"] = np.minimum(20, np.log2(sizes[slot] // 256))
    return events


def fabricate_labels(count=NAMES):
    labels = Labels()
    for number in range(1, count):
        labels.intern(f"op{number}", shape=f"[{number},3]", stack=f"train.py:{number}\nloop.py:7")
    return labels


@cache
def _usual_labels():
    return fabricate_labels()


def fabricate_trace(count, seed=0, **origin):
    return Trace.from_events(fabricate(count, seed), fabricate_labels(), Origin(**origin))


def repacked(path, rows, *, labels=None, group=BLOCK, **changes):
    """A Parquet file of these events, packed by another program: `changes` replace what its origin says."""
    usual = _usual_labels()
    labels = usual if labels is None else labels
    origin = json.loads(Origin().to_json(events=len(rows), labels=len(labels), keyframes=[]))
    table = parquet_table(rows, ParquetLabelNames(usual))
    with pq.ParquetWriter(path, table.schema, use_dictionary=True) as writer:
        writer.write_table(table, row_group_size=group)
        packed = base64.b64encode(zlib.compress(labels.to_json().encode())).decode()
        writer.add_key_value_metadata({ORIGIN_KEY: json.dumps({**origin, **changes}), LABELS_KEY: packed})
    return path


def alike(count):
    """Equal events, which need almost no space in a file."""
    events = np.zeros(count, EVENT)
    events["seq"] = np.arange(count)
    events["kind"] = Kind.MARK
    return events


def read_all(path):
    """Open a trace and read everything that a viewer reads."""
    trace = Trace.open(path)
    for _ in trace.blocks():
        pass
    trace.keyframe_before(len(trace))
    trace.labels.names  # noqa: B018
    return trace

"""Attack: saved traces (Parquet) with damaged bytes, contradicting events, and footers, columns or sizes that lie."""

import base64
import json
import tempfile
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from integration.attacks.mutate import NUMBERS, damaged, odd, odd_events, odd_json
from integration.attacks.opening import good_trace, verdict

from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.storage.parquet import FIELDS, LABELS_KEY, ORIGIN_KEY
from bfcviz.model.keyframe_bytes import keyframes

TYPES = (
    pa.int8(),
    pa.uint8(),
    pa.int32(),
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.bool_(),
)

RARE = 1500  # of so many cases one takes gigabytes if nothing bounds it


@cache
def saved(count):
    """The bytes, table and footer entries of a good file; it has a keyframe in the middle."""
    with tempfile.TemporaryDirectory() as folder:
        path = good_trace(count).save(Path(folder) / "good.parquet")
        file = pq.ParquetFile(path)
        entries = {key: file.metadata.metadata[key.encode()] for key in (ORIGIN_KEY, LABELS_KEY)}
        middle, table = count // 2, file.read()
        frames = [None] * count
        frames[middle] = next(keyframes(good_trace(count), [middle]))
        table = table.set_column(
            table.column_names.index("keyframe"), "keyframe", pa.array(frames, pa.binary())
        )
        entries[ORIGIN_KEY] = json.dumps(json.loads(entries[ORIGIN_KEY]) | {"keyframes": [middle]})
        return path.read_bytes(), table, entries


def write(path, table, entries, rng):
    """Write a table as a Parquet file with these entries in its footer."""
    size = 1 + len(table) // rng.choice((1, 2, 40, 400))
    compression, dictionary = rng.choice(("lz4", "zstd", "none")), rng.random() < 0.5
    with pq.ParquetWriter(path, table.schema, compression=compression, use_dictionary=dictionary) as writer:
        writer.write_table(table, row_group_size=rng.choice((size, size, 65_536)))
        writer.add_key_value_metadata(entries)


def odd_entries(entries, rng):
    """Footer entries with wrong types, huge numbers, or labels that unpack to something else."""
    entries = dict(entries)
    if rng.random() < 0.7:
        origin = json.loads(entries[ORIGIN_KEY])
        if rng.random() < 0.3:
            key = rng.choice(("events", "labels", "keyframes"))
            origin[key] = (
                [rng.choice(NUMBERS)] if key == "keyframes" else rng.choice((odd(rng), rng.choice(NUMBERS)))
            )
            entries[ORIGIN_KEY] = json.dumps(origin)
        else:
            entries[ORIGIN_KEY] = odd_json(origin, rng)
    else:
        text = zlib.decompress(base64.b64decode(entries[LABELS_KEY]))
        bent = (
            odd_json(json.loads(text), rng).encode("utf-8", "replace")
            if rng.random() < 0.7
            else damaged(text, rng)
        )
        packed = base64.b64encode(zlib.compress(bent))
        entries[LABELS_KEY] = damaged(packed, rng).decode("latin-1") if rng.random() < 0.2 else packed
    if rng.random() < 0.05:
        del entries[rng.choice(list(entries))]
    return entries


def odd_table(table, rng):
    """A table with a column of nulls, of another type or of huge numbers, renamed, missing, or there twice."""
    at = rng.randrange(table.num_columns - 1)  # not the keyframes, which come last
    name, column = table.column_names[at], table.column(at)
    rows, last = len(table), table.num_columns - 1
    holed = pa.array([rng.choice((*[each] * 9, None)) for each in column.to_pylist()], column.type)
    frames = [damaged(frame, rng) if frame else frame for frame in table.column(last).to_pylist()]
    changes = (
        lambda: table.set_column(at, name, pa.nulls(rows, column.type)),
        lambda: table.set_column(at, name, holed),
        lambda: table.set_column(at, name, pa.nulls(rows, rng.choice(TYPES))),
        lambda: table.remove_column(at),
        lambda: table.rename_columns([rng.choice((each, each, each, "x")) for each in table.column_names]),
        lambda: table.add_column(0, name, column),
        lambda: table.slice(rng.randrange(rows), rng.randrange(rows)),
        lambda: table.set_column(last, "keyframe", pa.array(frames, pa.binary())),
        lambda: contradicting(table, rng),
        lambda: contradicting(table, rng),
    )
    return rng.choice(changes)()


def contradicting(table, rng):
    """A table of as many events, of which some contradict the others."""
    events = odd_events(good_trace(len(table)).read(0, len(table)), rng)
    columns = [pa.array(np.ascontiguousarray(events[name])) for name in events.dtype.names]
    return pa.table([*columns, table.column(table.num_columns - 1)], [*events.dtype.names, "keyframe"])


@cache
def large(rows, groups):
    """A file of few bytes with `groups` row groups of `rows` events, which take gigabytes once decoded."""
    events, entries = np.zeros(rows, EVENT), dict(saved(400)[2])
    events["kind"] = Kind.MARK
    origin = json.loads(entries[ORIGIN_KEY]) | {"events": rows * groups, "keyframes": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.parquet"
        schema = pa.schema(FIELDS)
        with pq.ParquetWriter(
            path,
            schema,
            column_encoding={"seq": "DELTA_BINARY_PACKED"},
            use_dictionary=False,
            compression="zstd",
        ) as writer:
            for group in range(groups):
                events["seq"] = np.arange(group * rows, (group + 1) * rows)
                columns = [pa.array(np.ascontiguousarray(events[name])) for name in schema.names]
                writer.write_table(pa.table(columns, schema), row_group_size=rows)
            writer.add_key_value_metadata(entries | {ORIGIN_KEY: json.dumps(origin)})
        return path.read_bytes()


def labels_bomb(entries, rng):
    """Footer entries whose labels unpack to hundreds of megabytes."""
    count = rng.choice((1_000_000, 20_000_000))
    text = json.dumps({"names": [""], "details": {}}).replace('""', '""' + ',"a"' * (count - 1)).encode()
    origin = json.loads(entries[ORIGIN_KEY]) | {"labels": count}
    return {ORIGIN_KEY: json.dumps(origin), LABELS_KEY: base64.b64encode(zlib.compress(text, 1))}


def case(number, rng, folder):
    path, way = folder / "run.parquet", rng.random()
    data, table, entries = saved(rng.choice((40, 400, 3000)))
    if number % RARE == RARE - 1:
        path.write_bytes(large(*rng.choice(((1 << 20, 17), (1 << 22, 4)))))
    elif number % RARE == RARE // 2:
        write(path, table, labels_bomb(entries, rng), rng)
    elif way < 0.4:
        data = damaged(data, rng)
        footer = data[-5000:] if rng.random() < 0.5 else b""
        path.write_bytes(data[: len(data) - len(footer)] + (damaged(footer, rng) if footer else b""))
    elif way < 0.65:
        write(path, table, odd_entries(entries, rng), rng)
    else:
        for _ in range(rng.choice((1, 1, 2))):
            table = odd_table(table, rng) if len(table) else table
        origin = json.loads(entries[ORIGIN_KEY]) | {"events": len(table)}
        write(path, table, entries | {ORIGIN_KEY: json.dumps(origin)}, rng)
    return verdict(path, rng)

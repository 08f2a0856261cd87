"""Attack: files of every framework that are damaged, spliced, nested, repeated, packed, or hold impossible numbers.

Case N is a file of the format `format_of(N)`. It opens or is refused with one `BfcvizError`; nothing is executed or
written.
"""

import copy
import gzip
import io
import json
import pickle
import re
import struct
import sys
import time
import zipfile
import zlib
from contextlib import suppress

from integration.attacks.bombs import bomb
from integration.attacks.mutate import NUMBERS, damaged, odd, odd_json
from integration.attacks.opening import verdict
from integration.attacks.profiles import bent, encoded, levels_of
from integration.attacks.seeds import FORMATS, LONG, real_files, seed, snapshot_value
from unit.importers.torch.test_pickle_reader import MALICIOUS

from bfcviz.events.storage.blocks import EVENTS as EVENTS_SECTION
from bfcviz.events.storage.blocks import HEADER, MAGIC, ORIGIN

SECONDS = 120  # of one case, on a machine that does other work, too
PROCESSOR_SECONDS = 15  # of looking at one file in every way, once or twice
RARE = 40  # of so many cases of a format, one is a bomb
EVENTS = ("os.", "pickle.find_class", "shutil.", "socket.", "subprocess.", "ctypes.dlopen")
_forbidden = []
_watching = []


def format_of(number):
    return FORMATS[number % len(FORMATS)]


def changed_bytes(data, _format, rng):
    for _ in range(rng.choice((1, 1, 2, 5))):
        data = damaged(data, rng)
    return data


def spliced(data, format_, rng):
    """The beginning of one file and the end of another, of this format or of any."""
    other = seed(format_ if rng.random() < 0.7 else rng.choice(FORMATS), rng)
    if rng.random() < 0.5 and b"\n" in data and b"\n" in other:
        lines, others = data.splitlines(keepends=True), other.splitlines(keepends=True)
        at, start = rng.randrange(len(lines)), rng.randrange(len(others))
        stop = rng.randrange(start, len(others)) + 1
        return b"".join(lines[:at] + others[start:stop] + lines[at:])
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def repeated(data, _format, rng):
    return (
        data[: 1 << 16] * rng.choice((2, 3, 20)) if len(data) > 1 << 10 else data * rng.choice((2, 10, 300))
    )


def shuffled(data, _format, rng):
    """Lines in another order, some twice, some missing."""
    lines = data.splitlines(keepends=True)
    for _ in range(rng.choice((1, 5, 50))):
        at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
        way = rng.random()
        if way < 0.4:
            lines[at], lines[to] = lines[to], lines[at]
        elif way < 0.7:
            lines[at:at] = lines[to : to + rng.choice((1, 3, 30))]
        elif len(lines) > 1:
            del lines[at]
    return b"".join(lines)


def other_numbers(data, _format, rng):
    """Text in which some numbers are huge, negative, or no numbers."""
    found = list(re.finditer(rb"0x[0-9a-f]+|\d+", data))
    if not found:
        return damaged(data, rng)
    for match in sorted(
        rng.sample(found, min(len(found), rng.choice((1, 1, 3, 30)))), key=lambda m: -m.start()
    ):
        value = rng.choice((*rng.sample(NUMBERS, 3), rng.choice(found).group().decode()))
        way = rng.random()
        text = f"{value:#x}" if isinstance(value, int) and way < 0.3 else str(value)
        text = rng.choice(("", "nan", "1e400", "-", "9" * 5000, "٣", "1.5", "(nil)")) if way > 0.9 else text
        data = data[: match.start()] + text.encode() + data[match.end() :]
    return data


def other_words(data, _format, rng):
    """Text in which a word takes the place of another, or grows long."""
    found = list(re.finditer(rb"[A-Za-z_]\w+|[^\w\s]+|\s+", data))
    if not found:
        return damaged(data, rng)
    for match in sorted(rng.sample(found, min(len(found), rng.choice((1, 3, 20)))), key=lambda m: -m.start()):
        word = rng.choice(
            (b"", rng.choice(found).group(), match.group() * 2000, b"\0", b"\xff\xfe", b"\x1b[31m")
        )
        data = data[: match.start()] + word + data[match.end() :]
    return data


def other_json(data, _format, rng):
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return other_numbers(data, _format, rng)
    return odd_json(value, rng).encode("utf-8", "replace")


def other_fields(data, _format, rng):
    """A Protocol Buffers message with changed fields, at any depth."""
    levels = levels_of(data)
    if not levels or not levels[0]:
        return damaged(data, rng)
    changes = {}
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        node = rng.choice(rng.choice(levels))
        changes[id(node)] = bent(node, rng, levels)
    return encoded(levels[0], changes)


def other_pickle(data, _format, rng):
    """A snapshot with values of other kinds; or one with instructions that would run code, somewhere inside."""
    if rng.random() < 0.4:
        attack = rng.choice(list(MALICIOUS.values()))
        at = rng.randrange(len(data) + 1)
        inner = attack[2:-1] if attack[:1] == b"\x80" else attack[:-1]
        return attack if rng.random() < 0.1 else data[:at] + inner + data[at:]
    value = _bent_value(snapshot_value(rng), rng)
    return pickle.dumps(value, rng.choice((0, 1, 2, 3, 4, 5)))


def other_sections(data, _format, rng):
    """Blocks with other bytes or numbers in their headers, or another origin; the checksums are right again."""
    starts = [match.start() for match in re.finditer(re.escape(MAGIC), data)]
    if not starts:
        return damaged(data, rng)
    at = rng.choice(starts)
    end = next((start for start in starts if start > at), len(data))
    if end - at < HEADER.size:
        return damaged(data, rng)
    fields, body = list(HEADER.unpack(data[at : at + HEADER.size])), data[at + HEADER.size : end]
    kind, way = fields[1], rng.random()
    if kind == ORIGIN and way < 0.7:
        with suppress(ValueError, RecursionError):
            body = odd_json(json.loads(body), rng).encode("utf-8", "replace")
    elif way < 0.6 and body:
        body = damaged(body, rng)
    if kind != EVENTS_SECTION:
        fields[5], fields[8] = zlib.crc32(body), len(body)
    elif rng.random() < 0.5:
        which = rng.randrange(1, 9)
        near = fields[which] + rng.choice((-1, 1, 8, 1 << 20))
        fields[which] = rng.choice((near, rng.choice(NUMBERS))) % (1 << (32 if which < 3 else 64))
    header = HEADER.pack(*fields[:-1], 0)[:-4]
    return data[:at] + header + struct.pack("<I", zlib.crc32(header)) + body + data[end:]


def _bent_value(value, rng):
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 10))):
        places = _places(value)
        if not places:
            return value
        place, key = rng.choice(places)
        near = place[key] + rng.choice((-512, -1, 1, 512)) if type(place[key]) is int else None
        new = rng.choice((odd(rng), near, rng.choice(NUMBERS), rng.choice(rng.choice(places)[:1])))
        if isinstance(place, dict) and rng.random() < 0.2:
            del place[key]
        else:
            place[key] = copy.deepcopy(new)
    return value


def _places(value):
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [each for key, inner in pairs for each in ((value, key), *_places(inner))]


def nested(data, format_, rng):
    """The file inside another one: as text of a notebook or JSON, a name in a pickle, a field of a message, text."""
    text = data[: 1 << 17].decode("utf-8", "replace")
    other = seed(rng.choice(FORMATS), rng)
    return rng.choice((
        lambda: json.dumps({"cells": [{"outputs": [{"text": text.splitlines(keepends=True)}]}]}).encode(),
        lambda: json.dumps({"traceEvents": [{"ph": "i", "ts": 1, "args": {"x": text}}], "a": text}).encode(),
        lambda: json.dumps([json.dumps([json.dumps(text)])]).encode(),
        lambda: pickle.dumps({"segments": text, "device_traces": [data]}, rng.choice((2, 4))),
        lambda: pickle.dumps(pickle.dumps(data)),
        lambda: b"\x0a\x05label" + data,
        lambda: other[: len(other) // 2] + data + other[len(other) // 2 :],
        lambda: data.replace(b"\n", b"\n" + data[:200] + b"\n", 20),
        lambda: "\n".join(f"> {line}" for line in text.splitlines()).encode("utf-16"),
        lambda: b"\xef\xbb\xbf" + data,
        lambda: b"\n" * rng.choice((1, 100, 70_000)) + data,
    ))()  # fmt: skip


def packed(data, _format, rng):
    """A gzip file in a gzip file, members one after another, a zip file; maybe damaged."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(rng.choice(("a", "../../a", "/a", "data.pkl")), data[: 1 << 17])
    middle = rng.randrange(len(data) + 1)
    new = rng.choice((
        gzip.compress(gzip.compress(data, 1, mtime=0), mtime=0),
        gzip.compress(data[:middle], 1, mtime=0) + gzip.compress(data[middle:], 1, mtime=0),
        gzip.compress(data, 1, mtime=0) + bytes(rng.choice((1, 600))),
        gzip.compress(data, 1, mtime=0) + data[:100],
        file.getvalue(),
    ))  # fmt: skip
    return damaged(new, rng) if rng.random() < 0.4 else new


TEXT = (changed_bytes, spliced, repeated, shuffled, other_numbers, other_numbers, other_words, nested, packed)
BINARY = (changed_bytes, changed_bytes, spliced, repeated, nested, packed)
CHANGES = dict.fromkeys(("log", "history", "rmm"), TEXT)
CHANGES |= dict.fromkeys(("vma", "kineto"), (*TEXT, *[other_json] * 5))
CHANGES |= dict.fromkeys(("dump", "pprof", "xplane"), (*BINARY, *[other_fields] * 5))
CHANGES["bfc"] = (*BINARY, *[other_sections] * 9)
CHANGES["snapshot"] = (*BINARY, *[other_pickle] * 5)


def made_input(number, rng):
    """The bytes of a case."""
    format_ = format_of(number)
    if number // len(FORMATS) % RARE == RARE - 1:
        return bomb(format_, rng)
    data = seed(format_, rng)
    for _ in range(rng.choice((1, 1, 1, 2))):
        change = rng.choice(CHANGES[format_]) if len(data) <= 2 * LONG else changed_bytes
        data = change(data, format_, rng) or b"\0"
    if rng.random() < 0.1:
        data = gzip.compress(data, 1, mtime=0)
        data = damaged(data, rng) if rng.random() < 0.3 else data
    return data


def _watch():
    """Note what would run code, start a process, or write or remove a file."""

    def hook(event, values):
        if _watching and (
            (event.startswith(EVENTS) and event not in {"os.listdir", "os.scandir", "os.putenv"})
            or (event == "open" and isinstance(values[1], str) and set(values[1]) & set("wax+"))
        ):
            _forbidden.append(f"{event} {values}"[:300])

    sys.addaudithook(hook)
    sys.dont_write_bytecode = True  # an importer is imported with the first file of its format


def case(number, rng, folder):
    if not _watching:
        _watch()
    path = folder / "input"
    path.write_bytes(made_input(number, rng))
    _watching[:], _forbidden[:] = [True], []
    begun = time.process_time()
    try:
        word = verdict(path, rng, thorough=True)
    finally:
        _watching[:] = []
    spent = time.process_time() - begun
    assert not _forbidden, _forbidden[:5]
    assert spent < PROCESSOR_SECONDS, f"{spent:.0f} s of processor time for {path.stat().st_size:,} bytes"
    return f"{word} {format_of(number)}"


def loaded():
    """Read all seeds once, before the workers are forked."""
    return [real_files(format_) for format_ in FORMATS]

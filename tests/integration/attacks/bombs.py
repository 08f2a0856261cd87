"""Files whose content is far larger, deeper or slower to read than their size: a bomb for each format."""

import gzip
import io
import json
import pickle
import random
import zipfile
import zlib

from integration.attacks.seeds import made_files
from unit.importers.profile_maker import chunk, number, varint

from bfcviz.events.storage.blocks import LABELS, ORIGIN, section

MEMBER = 8 << 20  # bytes that one member of a gzip bomb unpacks to
LINE = 1 << 20  # bytes of a long line


def _packed(unit, rng):
    member = gzip.compress(unit * max(1, MEMBER // len(unit)), 1, mtime=0)
    return member * rng.choice((1, 8, 40))


def _any(format_, rng):
    """Bombs that do not depend on the format: the file many times, zeros after it, or all of it in a zip file."""
    data = rng.choice(made_files(format_))
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(MEMBER))
    return (
        lambda: _packed(data, rng),
        lambda: gzip.compress(data, mtime=0) + _packed(bytes(1 << 16), rng),
        lambda: gzip.compress(data, mtime=0) * rng.choice((100, 3000)),
        lambda: gzip.compress(gzip.compress(_packed(bytes(1 << 16), random.Random(1))), mtime=0),
        zipped.getvalue,
    )


def _texts(format_, rng):
    """Text with long lines, and repeated characters for which patterns may go back and forth."""
    data = rng.choice(made_files(format_))
    unit = rng.choice(
        (
            b" ",
            b"\t ",
            b"[",
            b"1,",
            b"*",
            b"_",
            b"0x",
            b"(",
            b'"',
            b"\\",
            b"a: ",
            b"9",
            b"\x1b[",
            b"{ ",
            b"\n",
            b"I ",
        )
    )
    piece = rng.choice(data.splitlines(keepends=True) or [b"x"])
    at = rng.randrange(len(data) + 1)
    return (
        lambda: data[:at] + unit * (LINE // len(unit)) + data[at:],
        lambda: data[:at] + piece * (LINE // max(1, len(piece))) + data[at:],
        lambda: data[:at] + piece.strip() * (LINE // max(1, len(piece))) + data[at:],
        lambda: data.replace(b"\n", b"") * 20,
        lambda: data * max(1, LINE // len(data)),
    )


def _json(format_, rng):
    opening, close = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"Blocks":', b"}")))
    depth = rng.choice((1000, 100_000, 1_000_000))
    data = rng.choice(made_files(format_))
    inner = opening * depth + rng.choice((b"1", b"")) + close * rng.choice((depth, 0))
    at = rng.randrange(len(data) + 1)
    key = {"vma": b'{"DefaultPools": ', "kineto": b'{"traceEvents": '}[format_]
    events = b'{"ph":"i","name":"[memory]","ts":1,"pid":%d,"args":{"Addr":%d,"Bytes":512,'
    events += b'"Device Type":1,"Device Id":%d}}'
    many = b",".join(events % (n, n << 10, n) for n in range(5000))
    blocks = {str(n): {"TotalBytes": 1 << 60, "Suballocations": []} for n in range(20_000)}
    return (
        lambda: key + inner + b"}",
        lambda: data[:at] + inner + data[at:],
        lambda: (
            b"[" + many + b"]"
            if format_ == "kineto"
            else key + json.dumps({"T": {"Blocks": blocks}}).encode() + b"}"
        ),
        lambda: key + b"[" + b"1," * 500_000 + b"1]}",
        lambda: key + b'"' + b"\\u0041" * 200_000 + b'"}',
        lambda: key + b"1" * 300_000 + b"}",
    )


def _pickles(_format, rng):
    entry = pickle.dumps({"action": "alloc", "addr": 512, "size": 512, "stream": 0}, 2)[2:-1]
    frame = b"}(U\x08filenameU\x01aU\x04lineK\x01U\x04nameU\x01bu"
    block = b"}(U\x04sizeM\x00\x02U\x05stateU\x08inactiveu"
    count = rng.choice((10_000, 300_000))
    stack = b"]q\x01(" + frame * 900 + b"e"
    traced = b"}(U\x06actionU\x05allocU\x04addrM\x00\x02U\x04sizeM\x00\x02U\x06framesh\x01u"
    segment = (
        b"}(U\x06deviceK\x00U\x07addressM\x00\x02U\x0atotal_sizeM\x00\x02U\x06streamK\x00U\x06blocks]q\x02("
    )
    one = segment + block + b"eu"
    return (
        lambda: b"\x80\x02}(U\x08segments]U\x0ddevice_traces](](" + entry * (count // 10) + b"eeu.",
        lambda: (
            b"\x80\x02}(U\x08segments]U\x01x" + stack + b"U\x0ddevice_traces](](" + traced * 9000 + b"eeu."
        ),
        lambda: b"\x80\x02}(U\x08segments](" + one + b"h\x02" * count + b"eu.",
        lambda: b"\x80\x02](" + one * 9000 + b"e.",
        lambda: b"\x80\x02](" + segment + block * count + b"eue.",
        lambda: b"\x80\x02}(U\x08segments]U\x0ddevice_traces](" + b"](" * count + b"e" * count + b"eu.",
        lambda: b"\x80\x02}(U\x08segments]U\x0ddevice_traces](" + b"]" * count + b"eu.",
        lambda: b"\x80\x02]q\x01(" + b"]q\x01(h\x01h\x01e" * 5000 + b"e.",
        lambda: b"\x80\x02" + b"(" * count + b"t" * count + b".",
        lambda: b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little") + b"a" * 1000,
        lambda: pickle.dumps([{"x": "y" * 3_000_000}] * 5, rng.choice((0, 2, 4))),
        lambda: pickle.dumps(
            {"segments": [], "device_traces": [[{"action": str(n)} for n in range(20_000)]]}
        ),
    )


def _messages(format_, rng):
    data = rng.choice(made_files(format_)) if format_ != "pprof" else made_files(format_)[0]
    field, depth = rng.randint(1, 9), rng.choice((100, 3000))
    deep = b""
    for _ in range(depth):
        deep = chunk(field, deep)
    locations = b"".join(map(varint, [1] * 100_000))
    return (
        lambda: data + chunk(field, b"") * rng.choice((10_000, 400_000)),
        lambda: data + chunk(2, chunk(1, locations) + chunk(2, b"\1\1")) * 10,
        lambda: data + chunk(2, chunk(1, b"\1\1\1") + chunk(2, b"\1\1")) * 40_000,
        lambda: data + chunk(3, chunk(1, chunk(field, b"\1")) * 50_000),
        lambda: (
            chunk(1, b"a" * 64) + chunk(3, number(1, 1 << 40) + number(2, 1 << 60) + number(3, 1)) * 50_000
        ),
        lambda: chunk(1, b"a" * 1_000_000) + data,
        lambda: data + deep,
        lambda: data * rng.choice((300, 5000)),
        lambda: data + chunk(field, varint(1 << 63) * 200_000),
    )


def _blocks(format_, rng):
    """Sections again and again, and labels that unpack to much."""
    data = rng.choice(made_files(format_))
    labels = zlib.compress(b"[" + b'"a",' * 5_000_000 + b'"a"]')
    return (
        lambda: data * rng.choice((30, 300)),
        lambda: data[:100] + data * 20,
        lambda: section(LABELS, labels) + data,
        lambda: section(LABELS, b"\0" * 4_000_000) + data,
        lambda: b"".join([section(9, b"")] * 50_000) + data,
        lambda: data + section(ORIGIN, b"[" * 1_000_000),
    )


_OF_FORMAT = {
    "bfc": _blocks,
    "log": _texts, "history": _texts, "rmm": _texts, "vma": _json, "kineto": _json,
    "snapshot": _pickles, "dump": _messages, "pprof": _messages, "xplane": _messages,
}  # fmt: skip


def bomb(format_, rng):
    """The bytes of a file, up to some megabytes; one in five is packed."""
    ways = [*_OF_FORMAT[format_](format_, rng) * 2, *_any(format_, rng)]
    if format_ in {"vma", "kineto"} and rng.random() < 0.3:
        ways = _texts(format_, rng)
    data = rng.choice(ways)()
    return gzip.compress(data, 1, mtime=0) if rng.random() < 0.2 else data

"""Attack: profiles with damaged bytes, fields of other kinds and lengths, and gzip files that unpack to far more."""

import gzip
from functools import cache
from itertools import chain
from typing import NamedTuple

from integration.attacks.mutate import NUMBERS, damaged
from integration.attacks.opening import verdict
from unit.importers.made import profile
from unit.importers.profile_maker import PlaneMaker, chunk, number, varint

from bfcviz.samples import sample

DEEPEST = 7
MEMBER = 32 << 20  # bytes that one member of a gzip bomb unpacks to
RARE = 500  # of so many cases one is a bomb
good = cache(profile)


class Node(NamedTuple):
    """One field. `inside` is None where the payload is no message."""

    field: int
    wire: int
    payload: bytes
    inside: tuple["Node", ...] | None


def parsed(data, depth=0):
    """The fields of a message; None if `data` is none."""
    nodes, at = [], 0
    try:
        while at < len(data):
            tag, at = read_varint(data, at)
            start, size = at, {0: 0, 1: 8, 5: 4}.get(tag & 7)
            if tag & 7 == 2:
                size, start = read_varint(data, at)
            at = read_varint(data, at)[1] if tag & 7 == 0 else start + size
            if at > len(data) or not tag >> 3:
                return None
            payload = data[start:at]
            inside = parsed(payload, depth + 1) if tag & 7 == 2 and depth < DEEPEST else None
            nodes.append(Node(tag >> 3, tag & 7, payload, inside or None))
    except (IndexError, TypeError):
        return None
    return tuple(nodes)


def read_varint(data, at):
    value = shift = 0
    while data[at] > 0x7F:
        value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
    return value | data[at] << shift, at + 1


def encoded(nodes, changed):
    """The bytes of these fields; `changed` has, by a node's id, other bytes for it."""
    return b"".join(changed[id(node)] if id(node) in changed else whole(node, changed) for node in nodes)


def whole(node, changed):
    payload = node.payload if node.inside is None else encoded(node.inside, changed)
    tag = varint(node.field << 3 | node.wire)
    return tag + (varint(len(payload)) if node.wire == 2 else b"") + payload


@cache
def tree(count):
    """A good profile's fields, and all of them in one list for each depth."""
    return levels_of(good(count))


def levels_of(data):
    """The fields of a message, and all fields inside of them in one list for each depth."""
    levels = [parsed(data) or ()]
    while inside := tuple(chain.from_iterable(node.inside or () for node in levels[-1])):
        levels.append(inside)
    return levels


def bent_fields(rng):
    """A profile with some fields that are changed, at any depth."""
    levels = tree(rng.choice((5, 30, 120)))
    changed = {}
    for _ in range(rng.choice((1, 1, 2, 3, 20))):
        node = rng.choice(rng.choice(levels))
        changed[id(node)] = bent(node, rng, levels)
    return encoded(levels[0], changed)


def bent(node, rng, levels):
    as_it_was = whole(node, {})
    size = rng.choice((len(node.payload) + 1, *rng.sample(NUMBERS, 3)))
    return rng.choice(
        (
            lambda: b"",
            lambda: as_it_was * rng.choice((2, 3, 1000)) if len(as_it_was) < 1000 else as_it_was * 2,
            lambda: number(node.field, rng.choice(NUMBERS)),
            lambda: number(rng.choice((0, 1, 2, 7, 19, 1 << 29)), rng.choice(NUMBERS)),
            lambda: varint(node.field << 3 | rng.choice((1, 3, 4, 5, 6, 7))) + node.payload,
            lambda: varint(node.field << 3 | 2) + varint(size) + node.payload,  # a length that is not so
            lambda: chunk(node.field, damaged(node.payload, rng)),
            lambda: chunk(node.field, rng.randbytes(rng.choice((1, 8, 200)))),
            lambda: chunk(rng.randint(1, 12), node.payload),
            lambda: whole(rng.choice(rng.choice(levels)), {}),
            lambda: nested(node.field, rng.choice((10, 100, 2000))),
        )
    )()


def nested(field, depth):
    data = b""
    for _ in range(depth):
        data = chunk(field, data)
    return data


@cache
def member(filler):
    """One member of a gzip file: the same few bytes again and again."""
    return gzip.compress(filler * (MEMBER // len(filler)), 1, mtime=0)


def bomb(rng):
    """A gzip file that unpacks to gigabytes, after the start of a good profile or without it."""
    plane = PlaneMaker()
    plane.line("t", [("MemoryAllocation", 0, {"addr": 1})])
    fillers = (b"\0", chunk(1, b""), chunk(9, bytes(1 << 16)), chunk(1, chunk(3, b"") * 50), plane.to_bytes())
    start = rng.choice((b"", gzip.compress(good(30), mtime=0)))
    return start + member(rng.choice(fillers)) * rng.choice((8, 64, 200))


def case(number, rng, folder):
    way = rng.random()
    if number % RARE == RARE - 1:
        data = bomb(rng)
    elif number % RARE % 300 == 299:
        data = damaged(gzip.decompress(sample(rng.choice(("lstm", "conv"))).read_bytes()), rng)
    elif way < 0.55:
        data = bent_fields(rng)
        data = damaged(data, rng) if rng.random() < 0.1 else data
    else:
        data = damaged(good(rng.choice((5, 30, 120))), rng)
        data = damaged(data, rng) if rng.random() < 0.3 else data
    if len(data) < MEMBER // 32 and rng.random() < 0.25:
        data = gzip.compress(data, 1, mtime=0)
        data = damaged(data, rng) if rng.random() < 0.5 else data
    path = folder / "run.xplane.pb"
    path.write_bytes(data)
    del data  # up to 58 MiB, which are not the importer's
    return verdict(path, rng)

"""Damage for files: bytes, JSON values and events, changed at random."""

import copy
import json

import numpy as np

NUMBERS = [
    sign * ((1 << bits) + more)
    for bits in (0, 7, 8, 15, 16, 31, 32, 53, 62, 63, 64, 70)
    for more in (-1, 0, 1)
    for sign in (1, -1)
]
DEEP = "[" * 5000 + "]" * 5000


def damaged(data, rng):
    """Bytes with flips, a cut, or a part overwritten, taken out, repeated or put in."""
    data = bytearray(data)
    way = rng.choice(("flip", "flip", "flips", "cut", "fill", "delete", "repeat", "insert"))
    at = rng.randrange(len(data) + 1)
    stop = min(len(data), at + rng.choice((1, 4, 8, 64, 4096)))
    if way in {"flip", "flips"} and data:
        for _ in range(1 if way == "flip" else rng.randint(2, 50)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif way == "cut":
        del data[at:]
    elif way == "fill":
        data[at:stop] = rng.choice((b"\0", b"\xff", b"\x80")) * (stop - at)
    elif way == "delete":
        del data[at:stop]
    elif way == "repeat":
        data[at:at] = data[at:stop] * rng.choice((1, 2, 100))
    else:
        data[at:at] = rng.randbytes(rng.choice((1, 8, 300)))
    return bytes(data)


def odd(rng):
    """A JSON value where another was expected."""
    plain = (
        None,
        True,
        "",
        "x",
        "\ud800",
        "\0",
        "x" * 10_000,
        0.5,
        1e308,
        [],
        {},
        [[]],
        {"": None},
        [None] * 300,
    )
    return rng.choice((*plain, *rng.sample(NUMBERS, 8)))


def odd_json(value, rng):
    """A JSON text in which one or two values are of another kind, missing, or huge."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place, key = rng.choice(_places(value) or [(None, None)])
        if place is None or rng.random() < 0.02:
            value = odd(rng)
        elif isinstance(place, dict) and rng.random() < 0.2:
            del place[key]
        else:
            place[key] = odd(rng)
    text = json.dumps(value)
    way = rng.random()
    if way < 0.05:
        return text.replace("null", rng.choice((DEEP, "NaN", "-Infinity", "1" * 5000)))
    return damaged(text.encode(), rng).decode("latin-1") if way < 0.15 else text


def _places(value):
    """Every (container, key) in a JSON value."""
    pairs = list(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [(value, key) for key, _ in pairs] + [place for _, inner in pairs for place in _places(inner)]


def odd_events(events, rng):
    """Events of which some contradict the others, or hold numbers that cannot be."""
    events = events.copy()
    if not len(events):
        return events
    for _ in range(rng.choice((1, 1, 2, 10, 100))):
        at = rng.randrange(len(events))
        way = rng.random()
        if way < 0.7:
            name = rng.choice([name for name in events.dtype.names if name != "seq"])
            limits = np.iinfo(events.dtype[name])
            near = int(events[name][at]) + rng.choice((-256, -1, 1, 256))
            value = rng.choice((*rng.sample(NUMBERS, 3), near, int(rng.choice(events)[name])))
            events[name][at] = min(max(value, int(limits.min)), int(limits.max))
        elif way < 0.8:
            events[at:] = events[at : at + 1]
        elif way < 0.9:
            events[at : at + 5] = events[at : at + 5][::-1]
        else:
            events[at:-1] = events[at + 1 :]
    events["seq"] = np.arange(len(events)) if rng.random() < 0.97 else events["seq"]
    return events

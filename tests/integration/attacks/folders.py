"""Attack: recording folders with files that are damaged, missing, huge, or pipes, folders, sockets and links."""

import json
import os
import socket
import tempfile
from functools import cache
from pathlib import Path

from integration.attacks.mutate import damaged, odd, odd_events, odd_json
from integration.attacks.opening import good_trace, verdict

from bfcviz.events.storage.recording import Recording

FILES = ("events.bin", "origin.json", "labels.jsonl")


@cache
def recorded(count, *, whole):
    """The files of a good recording; where it is not whole, those of one that was killed."""
    trace = good_trace(count)
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(Path(folder) / "run", trace.origin.pools, labels=trace.labels)
        trace.read(0, count).tofile(recording.events_path)
        begun = (recording.folder / "origin.json").read_bytes()
        recording.close()
        files = {name: (recording.folder / name).read_bytes() for name in FILES}
    return (
        files
        if whole
        else files | {"origin.json": begun, "events.bin": files["events.bin"] + bytes(64 * 100)}
    )


def special(path, rng):
    """Put something at `path` that is no regular file, or one of another kind than it seems."""
    (
        lambda: None,  # it is missing
        path.touch,
        lambda: os.mkfifo(path),
        path.mkdir,
        lambda: socket.socket(socket.AF_UNIX).bind(str(path)) if len(str(path)) < 100 else None,
        lambda: path.symlink_to(
            rng.choice(("/dev/zero", "/dev/full", "/dev/tty", "/proc/self/mem", "/etc/passwd"))
        ),
        lambda: path.symlink_to(rng.choice(("gone", path.name, ".", "..", "origin.json", "events.bin"))),
        lambda: _sparse(path, rng.choice((1 << 20, 1 << 31, 1 << 36))),
        lambda: path.touch(0),
    )[rng.randrange(9)]()


def _sparse(path, size):
    path.touch()
    os.truncate(path, size)


def odd_lines(data, rng):
    """Lines of labels of which some hold other values, are repeated, or swapped."""
    lines = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(len(lines))
        way = rng.random()
        if way < 0.7 and lines[at]:
            lines[at] = odd_json({"id": at + 1, "name": "x", "details": {"a": "b"}}, rng).encode(
                "utf-8", "replace"
            )
        elif way < 0.8:
            lines[at] = json.dumps({"id": at + 1, "name": rng.choice(("x" * (1 << 20), odd(rng)))}).encode()
        else:
            lines.insert(at, rng.choice(lines))
    return b"\n".join(lines)


def bent(name, data, events, rng):
    """Other content for one of the files."""
    if rng.random() < 0.5:
        return damaged(data, rng)
    if name == "events.bin":
        return odd_events(events, rng).tobytes() + data[events.nbytes :]
    if name == "origin.json":
        return odd_json(json.loads(data), rng).encode("utf-8", "replace")
    return odd_lines(data, rng)


def case(_number, rng, folder):
    run, count = folder / "run", rng.choice((40, 400, 3000))
    run.mkdir()
    files = recorded(count, whole=rng.random() < 0.6)
    chosen = rng.sample(FILES, rng.choice((1, 1, 1, 2, 3)))
    events = good_trace(count).read(0, count)
    for name, data in files.items():
        if name not in chosen:
            (run / name).write_bytes(data)
        elif rng.random() < 0.3:
            special(run / name, rng)
        else:
            (run / name).write_bytes(bent(name, data, events, rng))
    return verdict(run, rng)

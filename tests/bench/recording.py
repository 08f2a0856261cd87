"""What a long recording costs while it is written, on disk, and when it is opened.

    python tests/bench/recording.py [--millions 1 3 10 30 100] [--rate 5] [--picture]

A process runs a heap (random sizes, 4,000 live chunks, 300 labels) that records to a folder, at most `--rate` million
events/s (0: as fast as it can); this process packs the folder meanwhile, as `bfcviz record` does. Then a new process
opens it, makes an Inspector, and goes to random steps.
With `--picture` the rows are drawn into recording.svg, beside this file.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.replay import Operations, Replay
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.events.origin import Pool
from bfcviz.events.storage.drain import FolderDrain
from bfcviz.events.storage.files import OpenFile
from bfcviz.events.storage.recording import Recording
from bfcviz.model.trace_index import IndexBuilder

if "--picture" in sys.argv:  # not in the processes that are measured
    from bfcviz.figures.panel import Margins, Panel, Place, panels_picture
    from bfcviz.figures.theme import LIGHT

PAIRS, LIVE, LABELS = 40_000, 4000, 300


def churn(seed: int = 1) -> Operations:
    """Allocate and free at random; at the end all is free again."""
    rng = np.random.default_rng(seed)
    alive, where = np.arange(LIVE), rng.integers(0, LIVE, PAIRS)
    kinds, ids = [np.zeros(LIVE, np.uint8)], [alive.copy()]
    pairs = np.zeros((PAIRS, 2), np.int64)
    for i, slot in enumerate(where.tolist()):
        pairs[i] = alive[slot], LIVE + i
        alive[slot] = LIVE + i
    kinds += [np.tile(np.array([1, 0], np.uint8), PAIRS), np.ones(LIVE, np.uint8)]
    ids += [pairs.reshape(-1), alive]
    number = np.concatenate(ids)
    sizes = np.exp(rng.normal(9, 2.5, LIVE + PAIRS)).astype(np.int64) + 1
    labels = rng.integers(1, LABELS, LIVE + PAIRS).astype(np.uint32)
    return Operations(np.concatenate(kinds), number, sizes[number], 256, 0, labels[number])


def write(folder: str | None, length: int, rate: float) -> None:
    """Run the heap until it wrote `length` events, to a folder or (None) to a ring in memory.

    Args:
        folder: of the recording.
        length: events.
        rate: the most events a second; 0: as fast as it can.
    """
    recording = None if folder is None else Recording(folder, [Pool("heap")])
    options = AllocatorOptions(allow_growth=True)
    if recording is not None:
        for number in range(1, LABELS):
            recording.labels.intern(f"layer_{number % 48}/op_{number}")
    log = None if recording is None else recording.log
    heap = BFCAllocator(SimulatedSubAllocator(capacity=1 << 40), 1 << 40, options, log=log)
    operations, pairs, cpu, begun = churn(), 0, 0.0, 0.0
    while heap.log.head < length:
        replay = Replay(heap.heap, operations)
        begun, at = begun or time.perf_counter(), time.process_time()
        replay.run()
        cpu += time.process_time() - at
        pairs += PAIRS + LIVE
        if rate:
            time.sleep(max(begun + heap.log.head / rate - time.perf_counter(), 0))
    seconds = time.perf_counter() - begun
    print(json.dumps({"events": heap.log.head, "ns": cpu / pairs * 1e9, "seconds": seconds}), flush=True)
    if recording is not None:
        recording.close()


def most_memory() -> int:
    """KiB; that of `getrusage` begins with what the starting process has."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) if found else 0


def show(folder: str, begun: float) -> None:
    """Open the folder, make an Inspector and go to random steps; print what it cost since this process was started."""
    import bfcviz  # noqa: PLC0415  its import is measured
    from bfcviz.model import Model  # noqa: PLC0415

    count, read, read_into = [0], OpenFile.read_at, OpenFile.read_into

    def counted(self, start, num_bytes):
        count[0] += num_bytes
        return read(self, start, num_bytes)

    def counted_into(self, into, start):
        count[0] += len(into)
        return read_into(self, into, start)

    OpenFile.read_at, OpenFile.read_into = counted, counted_into
    trace = bfcviz.open(folder)
    bfcviz.Inspector(trace)
    found = {
        "first": time.monotonic() - begun,
        "first_cpu": time.process_time(),
        "mib": most_memory() / 1024,
        "read": count[0],
    }
    model, times = Model(trace), []
    for step in np.random.default_rng(1).integers(0, len(trace), 40).tolist():
        at = time.process_time()
        model.seek(step)
        model.chunks()
        times.append((time.process_time() - at) * 1000)
    print(json.dumps(found | {"step": float(np.median(times)), "slowest": max(times)}))


def run(*words: object) -> dict[str, float]:
    """What another process of this file prints."""
    done = subprocess.run(
        [sys.executable, __file__, *map(str, words)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def used(folder: Path) -> int:
    """Bytes that the files take on disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def measure(folder: Path, length: int, rate: float) -> dict[str, float]:
    """Record, pack, open."""
    ring = run("--ring", length, "--rate", rate)
    drain, cpu = FolderDrain(folder, IndexBuilder), time.process_time()
    words = [sys.executable, __file__, "--write", str(folder), str(length), "--rate", str(rate)]
    writer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    most = 0
    while writer.poll() is None:
        time.sleep(0.05)
        most = max(most, used(folder)) if folder.is_dir() else 0
    wrote = json.loads(writer.communicate()[0])
    begun = time.perf_counter()
    drain.end()
    packed = {"late": time.perf_counter() - begun, "cpu": time.process_time() - cpu}
    sizes = {"most": most, "size": used(folder), "ring": ring["ns"]}
    return wrote | packed | sizes | run("--show", folder, time.monotonic())


def row(found: dict[str, float]) -> str:
    """A row of the table."""
    events, size = found["events"], found["size"]
    cells = (
        f"{events / 1e6:.1f} M",
        f"{found['seconds']:.1f} ({events / found['seconds'] / 1e6:.1f})",
        f"{found['ring']:.0f}",
        f"{found['ns']:.0f}",
        f"{found['cpu'] / events * 1e9:.0f}",
        f"{found['most'] / events:.1f}",
        f"{found['late']:.1f}",
        f"{size / events:.2f}",
        f"{found['first']:.1f} ({found['first_cpu']:.1f})",
        f"{found['mib']:.0f}",
        f"{100 * found['read'] / size:.2f}",
        f"{found['step']:.0f}, {found['slowest']:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def decades(values: list[float], room: float = 1) -> dict[str, object]:
    """A logarithmic axis around these values, which leaves a factor of room at its end."""
    first, last = np.floor(np.log10(min(values))), np.log10(max(values) * room)
    ticks = [10.0**power for power in range(int(first), int(np.ceil(last)) + 1)]
    texts = [f"{tick / 1e6:g} M" if tick >= 1e6 else f"{tick:,g}" for tick in ticks]
    return {"type": "log", "range": [first, last], "tickvals": ticks, "ticktext": texts}


def plot(name: str, events: list[float], lines: dict[str, list[float]]) -> "Panel":
    """Lines against the number of events, the last value of each as text."""
    traces = []
    for number, (line, values) in enumerate(lines.items()):
        colour = LIGHT.classes[number].line
        points = {"type": "scatter", "mode": "lines+markers+text", "x": events, "y": values, "name": line}
        drawn = {"line": {"color": colour}, "marker": {"color": colour, "size": 7}, "cliponaxis": False}
        last = f"{values[-1]:,.0f}" if values[-1] >= 10 else f"{values[-1]:.2g}"
        ends = {"text": [*[""] * (len(values) - 1), last], "textposition": "middle right"}
        traces.append(points | drawn | ends | {"textfont": {"color": LIGHT.text, "size": 11}})
    across = decades(events, 2.5) | {"title": {"text": "events"}}
    along = decades([value for values in lines.values() for value in values], 2)
    return Panel(name, name, "", traces, across, along)


def picture(rows: list[dict[str, float]]) -> str:
    """What the rows cost against their events, both logarithmic, as SVG."""

    def column(name: str, unit: float = 1) -> list[float]:
        return [found[name] / unit for found in rows]

    mib = 1 << 20
    seconds = {
        "record": column("seconds"),
        "first picture": column("first"),
        "a step": column("step", 1000),
    }
    memory = {
        "disk, meanwhile": column("most", mib),
        "disk, at rest": column("size", mib),
        "memory": column("mib"),
        "read": column("read", mib),
    }
    panels = [plot("Seconds", column("events"), seconds), plot("MiB", column("events"), memory)]
    places = [Place(left, left + 0.44, panels[0].above, 330) for left in (0, 0.56)]
    still = panels_picture(panels, places, LIGHT, Margins(60, 20, 50)).still()
    return still.replace(">", f'><rect width="100%" height="100%" fill="{LIGHT.paper}"/>', 1) + "\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 3, 10, 30, 100])
    parser.add_argument("--rate", type=float, default=5, help="million events/s")
    parser.add_argument("--picture", action="store_true")
    parser.add_argument("--ring", type=int)
    parser.add_argument("--write", nargs=2)
    parser.add_argument("--show", nargs=2)
    words = parser.parse_args()
    if words.ring:
        write(None, words.ring, words.rate * 1e6)
    elif words.write:
        write(words.write[0], int(words.write[1]), words.rate * 1e6)
    elif words.show:
        show(words.show[0], float(words.show[1]))
    else:
        print(
            "| events | recorded, s (M events/s) | ring, ns a pair | recorded, ns a pair | drain, ns an event | "
            "most bytes an event on disk | packed, s after the end | bytes an event | first picture, s (CPU) | MiB | "
            "% read | a step, ms (median, slowest of 40) |\n|" + "---:|" * 12
        )
        rows = []
        for millions in words.millions:
            with tempfile.TemporaryDirectory(dir=os.environ.get("BFCVIZ_BENCH")) as place:
                rows.append(measure(Path(place, "run"), int(millions * 1e6), words.rate))
            print(row(rows[-1]), flush=True)
        if words.picture:
            Path(__file__).with_suffix(".svg").write_text(picture(rows))


if __name__ == "__main__":
    main()

"""Each policy against the allocator whose rules it has, on the same requests: how many runs are exact, the worst error.

python tests/bench/fidelity.py [--only PEER ...] [--seed N] [--seconds S] [--tensorflow FOLDER] [--driver FOLDER]
    [--torch PYTHON] [--cupy PYTHON] [--snapshots FOLDER]

A run is exact if each request is served or refused as by the real allocator, and leaves the same bytes in use and in
the pool. Where ties between equal free blocks matter, the last column says how often the peak lies in the range that
what-if gives. `--seed` makes other sequences of requests; a peer that is not named is skipped.

    --tensorflow  has src/oracle_py.py and build/liboracle.so: TensorFlow's own class out of its wheel
    --driver      has libcuda.so.1 and libcudart.so.13 over host memory, for the next two
    --torch       a Python with PyTorch 2.11 or later
    --cupy        a Python with CuPy 14 whose runtime module is linked with that library
    --snapshots   has snapshots of PyTorch with their history, whose jobs `bfcviz tune` tunes
"""

import argparse
import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from minimalloc import CAPACITY, INSTANCES, instance

import bfcviz
from bfcviz.events.label_table import Labels
from bfcviz.whatif.planner import pack
from bfcviz.whatif.policy import NO_LIMIT
from bfcviz.whatif.policy_table import POLICIES, policy_of, policy_text, uncompared
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream, requests_of
from bfcviz.whatif.tie_breaking import InOrder, in_orders
from bfcviz.whatif.tuning import setting_line, tune

KiB, MiB = 1 << 10, 1 << 20
SHARES = (None, 1.0, 0.97, 0.9, 0.8, 0.65)
"""Limits, as shares of the peak pool without a limit."""

DEVICE = 1 << 36
"""Bytes of the device where the limit is a share of it, or where there is none."""

UNLIMITED_FAILURES = 1 << 30
ANY_ORDER = "device, addresses fall and are used again"

# ------------------------------------------------------------------------------
# The requests.


class Requests:
    """Builds a stream of requests."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._made = 0

    def allocate(self, size: int, stream: int = 0) -> int:
        """Returns the number of the block."""
        self._rows.append((ALLOCATE, self._made, max(int(size), 1), stream))
        self._made += 1
        return self._made - 1

    def free(self, block: int) -> None:
        self._rows.append((FREE, block, 0, 0))

    def stream(self, name: str) -> RequestStream:
        rows = np.zeros(len(self._rows), STREAM_ROW)
        for column, values in zip(
            ("kind", "block", "size", "stream"), zip(*self._rows, strict=True), strict=True
        ):
            rows[column] = values
        rows["time"] = rows["event"] = np.arange(len(rows))
        return RequestStream(rows, Labels(), name)


def churn(random, number, live, low, high, *, streams=1):
    """Blocks of any size from `low` to `high` bytes come and go; about `live` are in use."""
    found, blocks = Requests(), []
    for _ in range(number):
        if blocks and (len(blocks) >= live or random.random() < 0.46):
            found.free(blocks.pop(random.randrange(len(blocks))))
        else:
            size = math.exp(random.uniform(math.log(low), math.log(high)))
            blocks.append(found.allocate(size, random.randrange(streams)))
    return found


def training(random, layers, steps, size, vary):
    """Weights, then steps of activations, workspaces and gradients; sizes vary with the batch."""
    found = Requests()
    sizes = [math.exp(random.uniform(math.log(size / 8), math.log(size * 4))) for _ in range(layers)]
    for each in sizes:
        found.allocate(each)
    for step in range(steps):
        batch, kept, gradients = 1 + vary * random.uniform(-1, 1), [], []
        for each in sizes:
            kept.append(found.allocate(2 * each * batch))
            found.free(found.allocate(0.7 * each * batch))
        for each in reversed(sizes):
            gradients.append(found.allocate(each))
            workspace = found.allocate(2 * each * batch)
            found.free(kept.pop())
            found.free(workspace)
        if step == 0:
            for each in sizes:
                found.allocate(2 * each)
        for each in gradients:
            found.free(each)
    return found


def serving(random, number, most, block):
    """Caches of requests to a language model, of as many blocks as the text has; of twenty some end."""
    found, blocks = Requests(), []
    for _ in range(number):
        blocks.append(found.allocate(random.randrange(1, most) * block))
        if len(blocks) > 20:
            for _ in range(random.randrange(1, 6)):
                found.free(blocks.pop(random.randrange(len(blocks))))
    return found


def growing(random, number, size, factor):
    """A block that is made anew, larger, with small ones between."""
    found, before = Requests(), None
    for _ in range(number):
        block = found.allocate(size)
        if before is not None:
            found.free(before)
        before, size = block, size * factor
        found.allocate(random.choice((4 * KiB, 2 * MiB)))
    return found


def comb(random, number, size):
    """Every other block of a row is freed, then larger ones are asked for."""
    found = Requests()
    blocks = [found.allocate(size + random.randrange(4) * 512) for _ in range(number)]
    for block in blocks[::2]:
        found.free(block)
    for _ in range(number // 4):
        found.allocate(2 * size + 1)
    return found


def edges(random, number):
    """Sizes at which rules change, a little more and a little less."""
    found, blocks = Requests(), []
    sizes = [512, MiB, 2 * MiB, 10 * MiB, 19 * MiB, 20 * MiB, 21 * MiB, 40 * MiB, 64 * MiB, 128 * MiB]
    for _ in range(number):
        if blocks and (len(blocks) > 25 or random.random() < 0.47):
            found.free(blocks.pop(random.randrange(len(blocks))))
        else:
            blocks.append(found.allocate(random.choice(sizes) + random.choice((0, 0, 1, -1, 512, -512))))
    return found


def phases(random):
    """Phases of growing sizes; a few blocks of each stay."""
    found = Requests()
    for phase in range(1, 7):
        blocks = [
            found.allocate(math.exp(random.uniform(math.log(64 * KiB * phase), math.log(8 * MiB * phase))))
            for _ in range(120)
        ]
        random.shuffle(blocks)
        for block in blocks[10:]:
            found.free(block)
    return found


def sequences(seed: int) -> dict[str, RequestStream]:
    """Request sequences by name."""
    random = Random(seed)
    found = {
        "churn small": churn(random, 4000, 400, 256, 64 * KiB),
        "churn middle": churn(random, 4000, 250, 4 * KiB, 4 * MiB),
        "churn large": churn(random, 3000, 60, MiB, 200 * MiB),
        "churn wide": churn(random, 4000, 180, 256, 256 * MiB),
        "churn, 3 streams": churn(random, 3000, 120, 4 * KiB, 40 * MiB, streams=3),
        "training": training(random, 24, 10, 8 * MiB, 0),
        "training, batches vary": training(random, 24, 14, 8 * MiB, 0.4),
        "training, large": training(random, 12, 20, 48 * MiB, 0.6),
        "training, deep": training(random, 80, 6, 2 * MiB, 0.2),
        "serving": serving(random, 1200, 512, 64 * KiB),
        "growing": growing(random, 60, MiB, 1.08),
        "comb small": comb(random, 600, 300 * KiB),
        "comb large": comb(random, 160, 12 * MiB),
        "edges": edges(random, 3000),
        "phases": phases(random),
    }
    return {name: requests.stream(name) for name, requests in found.items()}


# ------------------------------------------------------------------------------
# A run, and the table.


@dataclass(frozen=True)
class Real:
    """What the real allocator did, after each request until it ended: bool[n], int64[n], int64[n]."""

    ok: np.ndarray
    in_use: np.ndarray
    reserved: np.ndarray


@dataclass(frozen=True)
class Run:
    """One sequence under one limit, by both. `error`: of the peak pool, as a share of the real one."""

    title: str
    sequence: str
    limit: int | None
    exact: bool
    error: float
    in_range: bool
    first: int


def compared(title, name, stream, *, text, limit, real) -> Run:
    """The run of a policy beside that of the real allocator."""
    policy, n = policy_of(text), len(real.ok)
    asked = (stream.rows["kind"][:n] == ALLOCATE) & (stream.rows["size"][:n] > 0)
    outcome = policy.serve(stream, limit)

    def measured(found) -> InOrder:
        return InOrder(bool((found.address[:n][asked] != 0).all()), int(found.reserved[:n].max(initial=0)))

    orders = in_orders(
        policy, measured(outcome), lambda rules: measured(rules.serve(stream, limit)), requests=n
    )
    peak, fits = int(real.reserved.max(initial=0)), bool(real.ok[asked].all())
    differs = (outcome.reserved[:n].astype(np.int64) != real.reserved) | (
        outcome.in_use[:n].astype(np.int64) != real.in_use
    )
    differs |= asked & ((outcome.address[:n] != 0) != real.ok)
    first = int(differs.argmax()) if differs.any() else -1
    return Run(
        title,
        name,
        limit,
        exact=first < 0,
        error=abs(orders.found[0].amount - peak) / max(peak, 1),
        in_range=orders.least <= peak <= orders.most and fits in {each.fits for each in orders.found},
        first=first,
    )


def table(runs: list[Run]) -> Iterator[str]:
    """One row for each policy and kind of limit."""
    yield "| real allocator | runs | exact | share | worst error of the peak | peak in the range |"
    yield "|---|---:|---:|---:|---:|---:|"
    for title in dict.fromkeys(run.title for run in runs):
        mine = [run for run in runs if run.title == title]
        exact = sum(run.exact for run in mine)
        inside = sum(run.in_range for run in mine)
        yield (
            f"| {title} | {len(mine)} | {exact} | {exact / len(mine):.1%} | {max(run.error for run in mine):.2%} | "
            f"{inside} |"
        )


def limits_of(stream, text) -> list[int | None]:
    """The limits to serve under, multiples of 2 MiB."""
    peak = policy_of(text).serve(stream, NO_LIMIT).peak_reserved
    return [
        None if share is None else max(int(peak * share) // (2 * MiB) * 2 * MiB, 2 * MiB) for share in SHARES
    ]


# ------------------------------------------------------------------------------
# PyTorch and CuPy, in a process with their own Python.


class Worker:
    """A process that serves jobs by a real allocator; `version` is that of its framework."""

    def __init__(self, process) -> None:
        self._process = process
        self.version = pickle.load(process.stdout)  # noqa: S301  our own process

    def serve(self, stream, *, limit, **job) -> Real | str:
        """What the allocator did; the text of an error."""
        rows = stream.rows
        columns = {name: rows[name].copy() for name in ("kind", "block", "size", "stream")}
        order = {"FAKECUDA_ASCENDING": "1"} if job.pop("rising", True) else {}
        environment = {"FAKECUDA_MEMORY": str(limit), "FAKECUDA_EXACT": job.pop("exact", ""), **order}
        environment = {name: value for name, value in environment.items() if value}
        pickle.dump({**columns, "environment": environment, **job}, self._process.stdin)
        self._process.stdin.flush()
        found = pickle.load(self._process.stdout)  # noqa: S301  our own process
        return found if isinstance(found, str) else Real(**found)


@contextmanager
def worker(name: str, python: str, driver: Path):
    """A worker of this framework."""
    libraries = " ".join(str(driver / each) for each in ("libcuda.so.1", "libcudart.so.13"))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver), "LD_PRELOAD": libraries}
    environment = {key: value for key, value in environment.items() if not key.startswith("FAKECUDA_")}
    script = Path(__file__).with_name("real_allocators.py")
    process = subprocess.Popen(
        [python, str(script), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    try:
        yield Worker(process)
    finally:
        process.stdin.close()
        process.wait(60)


TORCH_OPTIONS = {
    "": "",
    "expandable_segments=true": "expandable_segments:True",
    "max_split_size=64MiB": "max_split_size_mb:64",
    "roundup_power2_divisions=4": "roundup_power2_divisions:4",
    "expandable_segments=true,roundup_power2_divisions=8": "expandable_segments:True,roundup_power2_divisions:8",
    "max_split_size=32MiB,max_non_split_rounding=200MiB": "max_split_size_mb:32,max_non_split_rounding_mb:200",
    "max_split_size=64MiB,large_segment_size=64MiB": "max_split_size_mb:64,large_segment_size_mb:64",
    "large_segment_size=12MiB": "large_segment_size_mb:12",
    "expandable_segments=true,large_segment_size=12MiB": "expandable_segments:True,large_segment_size_mb:12",
    "roundup_power2_divisions=[16:1,64:4,>:2]": "roundup_power2_divisions:[16:1,64:4,>:2]",
    "expandable_segments=true,max_split_size=64MiB": "expandable_segments:True,max_split_size_mb:64",
    "garbage_collection_threshold=0.7": "garbage_collection_threshold:0.7",
}
"""Options of the policy, and the same as PyTorch's setting."""


def torch_runs(arguments, streams) -> Iterator[Run]:
    """PyTorch's allocator, under the limit of a device and under a share of one."""
    yield from _torch_runs(arguments, streams, "device", "fraction")


def tied_torch_runs(arguments, streams) -> Iterator[Run]:
    """PyTorch's allocator on a driver whose addresses fall and are used again: they decide between equal blocks."""
    yield from _torch_runs(arguments, streams, ANY_ORDER)


def _torch_runs(arguments, streams, *kinds) -> Iterator[Run]:
    with worker("torch", arguments.torch, arguments.driver) as real:
        for kind in kinds:
            for options, settings in TORCH_OPTIONS.items():
                if ("garbage" in options and kind != "fraction") or (
                    "expandable" in options and kind == ANY_ORDER
                ):
                    continue  # the one works only under a fraction, of the other each pool has one segment
                title = f"PyTorch {real.version}, {settings or 'default'}, limit: {kind}"
                for name, stream in streams.items():
                    for limit in limits_of(stream, f"torch:{options}"):
                        yield from _torch_run(
                            real,
                            title,
                            name,
                            stream,
                            options=options,
                            settings=settings,
                            limit=limit,
                            kind=kind,
                        )


def _torch_run(real, title, name, stream, *, options, settings, limit, kind) -> Iterator[Run]:
    device, fraction = limit or DEVICE, None
    if kind == "fraction":
        if limit is None:
            return
        device, fraction = DEVICE, limit / DEVICE
        options += f"{',' if options else ''}device={DEVICE}"
    found = real.serve(
        stream,
        limit=device,
        fraction=fraction,
        settings=settings,
        failures=UNLIMITED_FAILURES,
        rising=kind != ANY_ORDER,
    )
    if isinstance(found, str):
        raise SystemExit(f"{title}: {name}: {found}")
    under = limit if fraction else device
    yield compared(title, name, stream, text=f"torch:{options}", limit=under, real=found)


def tune_runs(arguments, _) -> Iterator[Run]:
    """Jobs of PyTorch's snapshots under their own settings, and under those that `bfcviz tune` proposes."""
    with worker("torch", arguments.torch, arguments.driver) as real:
        for path in sorted(arguments.snapshots.glob("*.pickle")):
            stream = requests_of(bfcviz.open(path))
            if not (stream.rows["kind"] == FREE).any():
                continue  # a state without history
            found, stream = tune(stream), stream.without_failed()
            for trial in filter(None, (found.now, found.best)):
                settings = setting_line(trial, "").partition("=")[2]
                device = found.limit or DEVICE
                served = real.serve(
                    stream, limit=device, fraction=None, settings=settings, failures=UNLIMITED_FAILURES
                )
                if isinstance(served, str):
                    raise SystemExit(f"{path.name}: {settings}: {served}")
                text = policy_text(trial.policy, trial.options)
                title = f"PyTorch {real.version}, snapshots, own and proposed settings"
                yield compared(title, f"{path.stem} {settings}", stream, text=text, limit=device, real=served)


def cupy_runs(arguments, streams) -> Iterator[Run]:
    """CuPy's pool, under the limit of a device and under its own."""
    with worker("cupy", arguments.cupy, arguments.driver) as real:
        title = f"CuPy {real.version}, limit: device"
        for name, stream in streams.items():
            for number, limit in enumerate(limits_of(stream, "cupy")):
                device = limit or DEVICE
                found = real.serve(stream, limit=device, exact="1", pool_limit=0, seed=number, failures=1)
                if isinstance(found, str):
                    raise SystemExit(f"{title}: {name}: {found}")
                yield compared(title, name, stream, text="cupy", limit=device, real=found)


# ------------------------------------------------------------------------------
# TensorFlow's class, in this process; and the instances of MiniMalloc.

BFC_OPTIONS = (
    {},
    {"allow_growth": True},
    {"allow_growth": True, "garbage_collection": True},
    {"allow_growth": True, "garbage_collection": True, "fragmentation_fraction": 0.1},
    {"fragmentation_fraction": 0.05},
    {"allow_growth": True, "mode": "contiguous", "supports_coalescing": True},
    {"allow_growth": True, "mode": "descending", "garbage_collection": True},
)
_MODES = {"contiguous": 0, "gapped": 1, "descending": 2}


def tensorflow_runs(arguments, streams) -> Iterator[Run]:
    """TensorFlow's BFC allocator."""
    sys.path.insert(0, str(arguments.tensorflow / "src"))
    import oracle_py  # noqa: PLC0415  only where it is

    columns = [oracle_py.STAT_FIELDS.index(name) for name in ("bytes_in_use", "pool_bytes")]
    for options in BFC_OPTIONS:
        own = dict(options)
        own["addr_mode"] = _MODES[own.pop("mode", "gapped")]
        own["coalesce"] = own.pop("supports_coalescing", False)
        text = policy_text("bfc", options)
        for name, stream in streams.items():
            live = int(stream.live_bytes.max())
            for share in (0.6, 0.9, 1.0, 1.02, 1.1, 1.5, 3):
                limit = int(live * share) // 256 * 256
                oracle = oracle_py.Oracle(limit, capacity=NO_LIMIT, **own)
                rows = stream.rows
                sizes = np.where(rows["kind"] == ALLOCATE, rows["size"], 0)
                found, numbers, _ = oracle.run(
                    rows["kind"], rows["block"], sizes, np.zeros(len(rows)), alignment=256, stats_every=1
                )
                oracle.close()
                ok = (rows["kind"] != ALLOCATE) | (found["allocated_size"] > 0)
                real = Real(ok, numbers[:, columns[0]], numbers[:, columns[1]])
                yield compared(f"TensorFlow, {text}", name, stream, text=text, limit=limit, real=real)


def minimalloc_runs(_, __) -> Iterator[Run]:
    """Plans for MiniMalloc's challenging instances, beside the capacity that is known to suffice."""
    for name in INSTANCES:
        peak = pack(instance(name), 60.0, lambda plan: plan.height > CAPACITY).height
        is_met = peak <= CAPACITY
        error = max(peak - CAPACITY, 0) / CAPACITY
        yield Run("MiniMalloc's instances, packed", name, CAPACITY, is_met, error, is_met, -1)


# ------------------------------------------------------------------------------

PEERS = {
    "tensorflow": (tensorflow_runs, ("tensorflow",)),
    "torch": (torch_runs, ("driver", "torch")),
    "torch-ties": (tied_torch_runs, ("driver", "torch")),
    "tune": (tune_runs, ("driver", "torch", "snapshots")),
    "cupy": (cupy_runs, ("driver", "cupy")),
    "minimalloc": (minimalloc_runs, ()),
}
"""What is compared, and the arguments that it needs."""


def main() -> None:
    """Print the table, what differs, what was skipped, and which policies no real allocator was compared with."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="for each peer")
    for name in ("tensorflow", "driver", "snapshots"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--torch")
    parser.add_argument("--cupy")
    arguments = parser.parse_args()
    streams, runs = sequences(arguments.seed), []
    for name in arguments.only:
        serve, needs = PEERS[name]
        missing = [need for need in needs if getattr(arguments, need) is None]
        if missing:
            print(f"{name}: skipped: give {' and '.join(f'--{need}' for need in missing)}\n")
            continue
        begun, mine = time.perf_counter(), []
        for run in serve(arguments, streams):
            mine.append(run)
            if time.perf_counter() - begun > arguments.seconds:
                print(f"{name}: stopped after {arguments.seconds:g} s\n")
                break
        runs += mine
    print(*table(runs), sep="\n")
    for run in sorted((run for run in runs if not run.exact), key=lambda run: -run.error)[:10]:
        print(
            f"{run.title}: {run.sequence} under {run.limit}: from request {run.first}; peak off by {run.error:.2%}"
        )
    print("", *uncompared(POLICIES), sep="\n")


if __name__ == "__main__":
    main()

"""What watching PyTorch costs on a GPU: `python tests/bench/torch_overhead.py [--rounds 5]`.

Each way runs in a process of its own, for an allocator stays; the ways take turns, and the median over rounds is told.

==========  =====================================================================================================
`cached`    PyTorch's caching allocator, as it is
`history`   the same, keeping a memory history with Python stacks that are never read
`observed`  `observe_torch`, which reads that history meanwhile
`flight`    `bfcviz.flight_recorder`: a history without stacks, read only when something fails
`pool`      `serve_torch(mechanism="pool")`
`replaced`  `serve_torch(mechanism="replace")`
`bare`      cudaMalloc and cudaFree for each tensor: why there are pools (PYTORCH_NO_CUDA_MEMORY_CACHING=1)
==========  =====================================================================================================

Without a GPU there is nothing to measure, and it says so.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = ("cached", "history", "observed", "flight", "pool", "replaced", "bare")
ROOT = Path(__file__).resolve().parents[2]


def way_in(torch, way, folder):
    """The `with` for a way, recorded to a folder."""
    import bfcviz  # noqa: PLC0415  after PyTorch, as a program would
    from bfcviz.events.storage.recording import Recording  # noqa: PLC0415
    from bfcviz.live.torch.observe import observe_torch  # noqa: PLC0415
    from bfcviz.live.torch.serve import serve_torch  # noqa: PLC0415

    stack = contextlib.ExitStack()
    if way == "flight":
        stack.enter_context(bfcviz.flight_recorder(torch=True, folder=folder))
    elif way == "history":
        memory = torch.cuda.memory
        memory._record_memory_history("all", context="alloc", stacks="python", max_entries=100_000)
        stack.callback(memory._record_memory_history, None)
    elif way in ("observed", "pool", "replaced"):
        recording = stack.enter_context(Recording(folder))
        mechanism = "replace" if way == "replaced" else "pool"
        source = (
            observe_torch(log=recording)
            if way == "observed"
            else serve_torch(log=recording, mechanism=mechanism)
        )
        stack.enter_context(source)
    return stack


def network_step(torch):
    """A training step of a network; its batches grow with the number of the step."""
    layers = [torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(2048, 10)).cuda()
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)

    def step(number):
        batch = torch.randn(256 + number % 50 * 8, 512, device="cuda")
        loss = network(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def training(torch):
    """Seconds a step."""
    return timed(torch, network_step(torch), warm=60, count=300)


def pairs(torch):
    """A tensor made and dropped, nothing done with it, as seconds a pair."""
    sizes = [1000, 70_000, 3_000_000, 512]
    return timed(
        torch,
        lambda number: torch.empty(sizes[number % 4], dtype=torch.uint8, device="cuda"),
        warm=100,
        count=5000,
    )


def timed(torch, work, warm, count):
    for number in range(warm):
        work(number)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for number in range(count):
        work(number)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


def measure(way):
    """In the process of one way: its seconds, as JSON."""
    import torch  # noqa: PLC0415  where it is not installed, main says so

    with tempfile.TemporaryDirectory() as folder, way_in(torch, way, Path(folder) / "run"):
        print(json.dumps({"step": training(torch), "pair": pairs(torch)}))


def run(way):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    if way == "bare":
        env["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    command = [sys.executable, __file__, "--way", way]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{way}: status {done.returncode}\n{done.stderr[-2000:]}", flush=True)
        return []
    print(f"{way}: {done.stdout.splitlines()[-1]}", flush=True)  # there if the time is over before the table
    return [json.loads(done.stdout.splitlines()[-1])]


def why_not():
    """What is missing, None where nothing is."""
    try:
        import torch  # noqa: PLC0415
    except ImportError as error:
        return f"PyTorch cannot be imported: {error}"
    return None if torch.cuda.is_available() else "PyTorch sees no CUDA device"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--way", choices=WAYS, help="measure this one here, and print JSON")
    arguments = parser.parse_args()
    if missing := why_not():
        sys.exit(f"nothing was measured: this needs an NVIDIA GPU and PyTorch with CUDA. {missing}")
    if arguments.way:
        measure(arguments.way)
        return
    found = {way: [] for way in WAYS}
    for _ in range(arguments.rounds):
        for way in WAYS:
            found[way] += run(way)
    if not found["cached"]:
        sys.exit("there is nothing to compare with: PyTorch alone was not measured")
    print("| way | training step | against cached | tensor made and dropped | against cached |")
    print("|---|---:|---:|---:|---:|")
    middle = {
        way: {key: statistics.median(each[key] for each in rounds) for key in ("step", "pair")}
        for way, rounds in found.items()
        if rounds
    }
    for way, times in middle.items():
        steps, pairs_ = (times[key] / middle["cached"][key] for key in ("step", "pair"))
        print(
            f"| {way} | {times['step'] * 1e3:.3f} ms | {steps:.3f} | {times['pair'] * 1e6:.2f} us | {pairs_:.2f} |"
        )


if __name__ == "__main__":
    main()

"""First facts on a real GPU: `python tests/gpu/first.py [PART ...]`; prints, and one failure does not stop the rest.

==============  =================================================================================================
`machine`       the versions of what is installed, and which compiled modules of bfcviz are missing
`driver`        time of a grant and a free from each sub-allocator, and what a request beyond the device gives
`ipc`           whether IPC handles of two arrays differ: they mean a whole region, not an array
`capture`       what a heap that grows does to a graph being captured, and the memory afterwards
`values`        bytes that four streams wrote, freed under another stream than their own: none may be wrong
`torch`         each way to watch PyTorch, in a process of its own
`jax`           what JAX tells of its memory, and which arrays hold it
`recordings`    small runs of CuPy and PyTorch, saved to the folder $OUT as Parquet
==============  =================================================================================================
"""

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

MIB = 1 << 20
OUT = Path(os.environ.get("OUT", "."))


def microseconds(work, *arguments):
    begin = time.perf_counter()
    found = work(*arguments)
    return round((time.perf_counter() - begin) * 1e6, 1), found


def told(work, *arguments):
    """What it returns, or its failure, as text."""
    try:
        return str(work(*arguments))
    except Exception as error:  # noqa: BLE001  a fact, too
        return f"{type(error).__name__}: {str(error)[:300]}"


def machine():
    print(sys.version)
    names = compiled_modules()
    found = [name for name in names if "abi3" in str(getattr(find_spec(name), "origin", ""))]
    print(f"compiled modules: {len(found)} of {len(names)}; missing: {sorted(set(names) - set(found))}")
    wanted = ("cupy", "torch", "jax", "numpy", "pyarrow", "rmm", "pytest", "hypothesis", "cuda", "nvidia")
    for each in sorted(
        f"{it.name} {it.version}" for it in distributions() if it.name.lower().startswith(wanted)
    ):
        print(each)


def compiled_modules():
    """The names of all of them, as the build has them."""
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    return [module["name"] for module in settings["tool"]["setuptools"]["ext-modules"]]


def driver():
    from bfcviz.allocator.cuda import KINDS, cuda_sub_allocator  # noqa: PLC0415
    from bfcviz.devices import cuda_gpus  # noqa: PLC0415

    for gpu in cuda_gpus():
        print(gpu, gpu.description, gpu.compute_capability, f"{gpu.available_bytes() >> 20} MiB free")
    for kind in KINDS:
        sources = [cuda_sub_allocator(kind) for _ in range(8)]  # as many reserved ranges of addresses
        for size in (2 * MIB, 1024 * MIB):
            print(f"{kind:8} {size >> 20:5} MiB: {told(grant_and_free, sources[0], size)}")
        if kind != "managed":  # which may exceed the device
            took, where = microseconds(sources[0].allocate, 256, 1 << 40)
            print(f"{kind:8}     1 TiB: {where} after {took} us")


def grant_and_free(source, size):
    took, where = microseconds(source.allocate, 256, size)
    if where is None:
        return f"refused after {took} us"
    gave, _ = microseconds(source.free, *where)
    return f"grant {took} us, free {gave} us, at {where[0]:#x}"


def ipc():
    import cupy  # noqa: PLC0415

    from bfcviz.live.cupy import serve_cupy  # noqa: PLC0415

    handle = cupy.cuda.runtime.ipcGetMemHandle
    for kind in ("device", "async", "virtual"):
        with serve_cupy("1GiB", memory=kind):
            one, two = cupy.zeros(MIB, "u1"), cupy.zeros(MIB, "u1")
            same = told(lambda a, b: bytes(handle(a.data.ptr)) == bytes(handle(b.data.ptr)), one, two)
            print(f"{kind:8} handles of two arrays are the same: {same}")
            del one, two


def capture():
    import cupy  # noqa: PLC0415

    runtime = cupy.cuda.runtime
    modes = {"global": runtime.streamCaptureModeGlobal, "relaxed": runtime.streamCaptureModeRelaxed}
    for kind in ("device", "async", "virtual"):
        for name, mode in modes.items():
            gc.collect()
            runtime.deviceSynchronize()
            for line in captured(cupy, kind, mode):
                print(f"{kind:8} {name:8} {line}")


def captured(cupy, kind, mode):
    """Grow within a capture, end it, and use the memory."""
    from bfcviz.live.cupy import serve_cupy  # noqa: PLC0415

    with serve_cupy("1GiB", memory=kind):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            cupy.zeros(10)
            stream.synchronize()
            stream.begin_capture(mode)
            grown = told(lambda: hex(cupy.empty(100 * MIB, "u1").data.ptr))
            yield f"growth in the capture: {grown}"
            yield f"end of the capture: {told(lambda: type(stream.end_capture()).__name__)}"

            def use():
                made = cupy.full(100 * MIB, 7, "u1")
                stream.synchronize()
                return int(made[-1])

            yield f"memory afterwards, 7 is right: {told(use)}"


def values():
    import cupy  # noqa: PLC0415

    from bfcviz.live.cupy import serve_cupy  # noqa: PLC0415

    for kind in ("device", "async", "virtual", "managed"):
        with serve_cupy("2GiB", memory=kind) as served:
            wrong = wrong_bytes(cupy)
            served.settle()
            heaps = served.heaps
            in_use = sum(heap.stats().chunks_in_use for heap in heaps)
            print(f"{kind:8} wrong bytes {wrong}, heaps {len(heaps)}, chunks in use {in_use}")
            for heap in heaps:
                heap.check_invariants()


def wrong_bytes(cupy, turns=1500, most=40):
    choose = random.Random(1)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    held, wrong = [], 0
    for turn in range(turns):
        with choose.choice(streams) as stream:
            held.append((stream, turn % 251, cupy.full(choose.randrange(1, MIB), turn % 251, "u1")))
            if len(held) > most:
                other, value, array = held.pop(choose.randrange(len(held)))
                other.synchronize()
                wrong += int((array != value).sum())
                del array  # freed under another stream than its own
    return wrong


def torch():
    for way in ("cached", "observed", "pool", "replaced"):
        command = [sys.executable, "tests/bench/torch_overhead.py", "--way", way]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).strip().splitlines() or ["nothing was printed"]
        print(f"{way:8} status {done.returncode}: {lines[-1][:300]}")


def jax():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax.numpy  # noqa: PLC0415

    from bfcviz.live.jax import observe_jax  # noqa: PLC0415

    with observe_jax() as observed:
        (jax.numpy.ones((1000, 1000)) @ jax.numpy.ones((1000, 1000))).block_until_ready()
        kept = jax.numpy.ones((1000, 1000))
        observed.settle()
    heap = observed.heaps[0]
    print(json.dumps(observed.latest, default=str))
    print(kept.nbytes, heap.stats().bytes_in_use, heap.labels.names[-1])


def recordings():
    for name, run in (("cupy", record_cupy), ("torch", record_torch)):
        print(name, told(recorded, name, run))


def recorded(name, run):
    from bfcviz.events.storage.recording import Recording  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        with Recording(Path(folder) / name) as recording:
            run(recording)
        trace = recording.trace()
        path = trace.save(OUT / f"{name}_gpu.parquet", overwrite=True)
        return f"{len(trace)} events, {path.stat().st_size} bytes in {path.name}"


def record_cupy(recording):
    from gpu.cuda_machine import trained  # noqa: PLC0415

    from bfcviz.live.cupy import serve_cupy  # noqa: PLC0415

    with serve_cupy("64MiB", log=recording):
        trained(10)


def record_torch(recording):
    import torch  # noqa: PLC0415

    from bfcviz.live.torch.observe import observe_torch  # noqa: PLC0415

    with observe_torch(log=recording, every_s=0.05):
        network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
        optimizer = torch.optim.Adam(network.cuda().parameters(), 1e-3)
        for step in range(10):
            loss = network(torch.randn(32 + 17 * step, 64, device="cuda")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


PARTS = {each.__name__: each for each in (machine, driver, ipc, capture, values, torch, jax, recordings)}

if __name__ == "__main__":
    failed = 0
    for part in sys.argv[1:] or PARTS:
        print(f"\n== {part}", flush=True)
        begin = time.perf_counter()
        try:
            PARTS[part]()
        except Exception:  # noqa: BLE001  the next part is another fact
            traceback.print_exc(file=sys.stdout)
            failed = 1
        print(f"-- {time.perf_counter() - begin:.1f} s", flush=True)
    sys.exit(failed)

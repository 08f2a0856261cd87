"""The allocators of PyTorch and CuPy themselves: they serve requests that `fidelity.py` sends, one process a job.

`fidelity.py` starts this with the interpreter that has the framework, so this imports nothing of bfcviz. Jobs come and
results go as pickles through pipes between the two; each job is a fork, in which CUDA begins with a device of its size.
"""

import os
import pickle
import random
import sys
import warnings

import numpy as np

STREAMS = 4


def serve_torch(job):
    """Serve a job by PyTorch's caching allocator."""
    import torch  # noqa: PLC0415  loaded before the forks

    torch.cuda.init()
    if job["settings"]:
        torch.cuda.memory._set_allocator_settings(job["settings"])
    if job["fraction"] is not None:
        torch.cuda.set_per_process_memory_fraction(job["fraction"])
    allocate = torch._C._cuda_cudaCachingAllocator_raw_alloc
    free = torch._C._cuda_cudaCachingAllocator_raw_delete
    statistics = torch._C._cuda_memoryStats
    handles = [torch.cuda.current_stream(0).cuda_stream]
    handles += [torch.cuda.Stream().cuda_stream for _ in range(STREAMS - 1)]
    statistics(0)

    def pool():
        found = statistics(0)
        return found["allocated_bytes"]["all"]["current"], found["reserved_bytes"]["all"]["current"]

    return _served(
        job,
        lambda size, stream: allocate(size, handles[stream % STREAMS]),
        free,
        pool,
        torch.OutOfMemoryError,
    )


def serve_cupy(job):
    """Serve a job by CuPy's pool; the order of its sets of free chunks depends on where Python's objects lie."""
    import cupy  # noqa: PLC0415  loaded before the forks

    cupy.cuda.Device(0).use()
    chance = random.Random(job["seed"])
    kept = [object() for _ in range(chance.randrange(10_000))]
    kept = [each for each in kept if chance.random() < 0.5]  # holes, so that objects lie elsewhere
    pool = cupy.cuda.memory.MemoryPool()
    if job["pool_limit"]:
        pool.set_limit(size=job["pool_limit"])
    streams = [cupy.cuda.Stream.null]
    streams += [cupy.cuda.Stream(non_blocking=True) for _ in range(STREAMS - 1)]

    def allocate(size, stream):
        with streams[stream % STREAMS]:
            return pool.malloc(size)

    return _served(
        job,
        allocate,
        lambda _: None,  # a chunk is free when its object is gone
        lambda: (pool.used_bytes(), pool.total_bytes()),
        cupy.cuda.memory.OutOfMemoryError,
    )


def _served(job, allocate, free, pool, refused):
    """After each request: whether it was served, bytes of the blocks in use and of the pool; until a second failure."""
    kind, block, size, stream = (job[name].tolist() for name in ("kind", "block", "size", "stream"))
    number = len(kind)
    ok, in_use, reserved = np.ones(number, bool), np.zeros(number, np.int64), np.zeros(number, np.int64)
    blocks, stop, failures = {}, number, 0
    for at in range(number):
        if kind[at] == 0 and size[at] > 0:
            try:
                blocks[block[at]] = allocate(size[at], stream[at])
            except refused:
                ok[at] = False
                failures += 1
        elif kind[at] == 1 and block[at] in blocks:
            free(blocks.pop(block[at]))
        in_use[at], reserved[at] = pool()
        if failures == job["failures"]:
            stop = at + 1
            break
    return {"ok": ok[:stop], "in_use": in_use[:stop], "reserved": reserved[:stop]}


SERVERS = {"torch": serve_torch, "cupy": serve_cupy}


def in_a_process(serve, job):
    """The result of a job, or the text of its error, from a process in which CUDA begins."""
    mine, other = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(mine)
        os.environ.update(job["environment"])
        try:
            found = serve(job)
        except BaseException as error:  # noqa: BLE001  the text of any error is the result
            found = f"{type(error).__name__}: {error}"
        with os.fdopen(other, "wb") as pipe:
            pickle.dump(found, pipe)
        os._exit(0)
    os.close(other)
    with os.fdopen(mine, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    if not content:
        return "the process ended without a result"
    return pickle.loads(content)  # noqa: S301  our own process


def main(name):
    """Serve jobs from the standard input until it ends; results go to the standard output."""
    warnings.simplefilter("ignore")
    jobs, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module = __import__(name)
    pickle.dump(str(module.__version__), results)
    results.flush()
    while True:
        try:
            job = pickle.load(jobs)  # noqa: S301  fidelity.py's
        except EOFError:
            return
        pickle.dump(in_a_process(SERVERS[name], job), results)
        results.flush()


if __name__ == "__main__":
    main(sys.argv[1])

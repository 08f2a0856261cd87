"""Whether there is a GPU to test on, and what to put on it."""

import pytest

try:
    import cupy

    WHY = None if cupy.cuda.is_available() else "CuPy finds no GPU, or no driver"
except ImportError as error:
    cupy, WHY = None, f"CuPy cannot be imported: {error}"
except RuntimeError as error:  # CuPy 13
    WHY = f"CuPy finds no driver: {error}"

needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(WHY is not None, reason=f"needs an NVIDIA GPU: {WHY}")]


def trained(steps=40, seed=3):
    """A small network, trained with batches that grow: its losses, and its weights on the host."""
    random = cupy.random.RandomState(seed)
    first, second = (random.standard_normal(shape, cupy.float32) * 0.1 for shape in ((64, 128), (128, 1)))
    truth = random.standard_normal((64, 1), cupy.float32)
    losses = []
    for step in range(steps):
        batch = random.standard_normal((32 + 17 * step, 64), cupy.float32)
        target = cupy.tanh(batch @ truth)
        hidden = cupy.maximum(batch @ first, 0)
        error = hidden @ second - target
        losses.append(float((error**2).mean()))
        slope = 2 * error / len(batch)
        back = (slope @ second.T) * (hidden > 0)
        second -= 0.05 * (hidden.T @ slope)
        first -= 0.05 * (batch.T @ back)
    return losses, first.get(), second.get()


def spinner():
    """A kernel that waits for so many clock ticks, then copies: its stream is busy meanwhile."""
    return cupy.RawKernel(
        r"""
        extern "C" __global__ void spin(const int *from, int *to, int count, long long ticks) {
            long long begin = clock64();
            while (clock64() - begin < ticks) {}
            for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
        }
        """,
        "spin",
    )

"""Training steps with all tensors in an allocator's memory: forward, backward, optimizer.

::

    Training(MLP(...), allocator, release=Deferred()).run(100)
        networks ──> operations (gradients, kernels, when to free) ──> Tensor ──> allocator

In: an allocator, the sizes of a network, a release policy. Out: losses, and the heap's events with names, steps and
phases. NumPy or CuPy computes in the tensors themselves. If no memory backs the addresses nothing is computed, and the
same memory is allocated and freed. May import devices, and what devices may import.
"""

from bfcviz.devices.training.networks import MLP, Attention, ConvNet, Network
from bfcviz.devices.training.operations import Deferred, Eager, EndOfStep, KernelRunner
from bfcviz.devices.training.training import Adam, Momentum, Training

__all__ = [
    "MLP",
    "Adam",
    "Attention",
    "ConvNet",
    "Deferred",
    "Eager",
    "EndOfStep",
    "KernelRunner",
    "Momentum",
    "Network",
    "Training",
]

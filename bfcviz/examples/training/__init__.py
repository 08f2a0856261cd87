"""Training steps whose every tensor lies in an allocator's memory: forward, backward, optimizer.

::

    Training(MLP(...), allocator, release=Deferred()).run(100)
        models ──> operations ──> graph (who needs what for the gradients) ──> machine ──> Tensor ──> allocator
                                                                                  └─> release: when memory goes back

In: an allocator, a model's sizes, when to give memory back. Out: losses, and the heap's events with names, steps and
phases. The arithmetic is NumPy's or CuPy's, in the tensors themselves; where the memory is only pretended nothing is
computed, and the same memory is taken and given back. May import devices, and what those import.
"""

from bfcviz.examples.training.attention import Attention
from bfcviz.examples.training.convolution import ConvNet
from bfcviz.examples.training.kernel_runner import Machine
from bfcviz.examples.training.networks import MLP, Model
from bfcviz.examples.training.optimizers import Adam, Momentum
from bfcviz.examples.training.release_policy import Deferred, Eager, EndOfStep
from bfcviz.examples.training.training import Training

__all__ = [
    "MLP",
    "Adam",
    "Attention",
    "ConvNet",
    "Deferred",
    "Eager",
    "EndOfStep",
    "Machine",
    "Model",
    "Momentum",
    "Training",
]

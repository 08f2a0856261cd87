"""PyTorch's memory snapshots, of every version: `torch.cuda.memory._snapshot()`, pickled.

::

    pickle --> pickle_reader --> allocation_history (entries of the traces, as columns; stacks, each once)
                             `-> segments, settings --> snapshot (checked)
    the state at the end + trace --> Rewind (the state before the first entry) --> device_replay (events)

Enters: a file that may be hostile. Leaves: a trace, one heap a device.
`pickle_reader` and `allocation_history` are compiled where there is a compiler.
`formats.torch_segments` has the grants and blocks, as observed PyTorch has them.
"""

from bfcviz import _compiled

_compiled.load("bfcviz._snapshot")

"""Programs that use a heap like a framework does, for notebooks and tests.

`training` has networks that train in an allocator's memory. In: an allocator and the sizes of a network. Out: the
events of a training run, with names, steps and phases. May import devices, allocator, events and errors; never the
model or figures. In bfcviz only the command may import it.
"""

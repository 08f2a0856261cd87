"""Programs that use a heap as a framework does, for notebooks and tests.

`training` has networks that train in an allocator's memory. In: an allocator and a model's sizes. Out: the events of a
training run, with names, steps and phases. May import devices, allocator, events and errors; never the model or
pictures. Nothing in bfcviz imports it but the command.
"""

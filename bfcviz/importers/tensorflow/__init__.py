"""Import profiles of TensorFlow and XLA (`xplane.pb`), and TensorFlow's memory dumps.

`profile` reads the messages of a profile and collects its allocations and frees as requests, and `reconstruct`
rebuilds events: by replay, or from the recorded addresses if the start of the heap was not recorded; it compares the
result with every recorded number. `profiler_windows` finds the windows of a job. `memory_dump` reads the
chunks of one moment.
"""

"""Import profiles of TensorFlow and XLA (`xplane.pb`), and TensorFlow's memory dumps.

`protobuf_messages` and `profile_messages` read a profile, `memory_events` collects its allocations and
frees as `requests`, and `reconstruct` rebuilds events: by `replay`, or from `recorded_addresses` if the start of the
heap was not recorded. `comparison` compares the result with every recorded number; `interleave` joins the events of
several heaps. `memory_dump` reads the chunks of one moment.
"""

"""A stand-in for libcuda, strict as the driver is: what it refuses, it refuses with the driver's status.

::

    driver.py   FakeCuda: functions by name; start, fork, devices, a stack of contexts for each thread
    memory.py   memory of each device: plain, managed, pinned, asynchronous, virtual
    streams.py  streams, events, stream capture
    status.py   the driver's status codes

Memory is addresses only, kernels are numbers: `library.launch(stream)` puts work on a stream, and `library.finish()`
completes it.
"""

from fake_cuda.driver import FakeCuda as FakeCuda
from fake_cuda.memory import GRANULE as GRANULE
from fake_cuda.status import GLOBAL as GLOBAL
from fake_cuda.status import RELAXED as RELAXED
from fake_cuda.status import THREAD_LOCAL as THREAD_LOCAL
from fake_cuda.status import Status as Status

OUT_OF_MEMORY = Status.OUT_OF_MEMORY

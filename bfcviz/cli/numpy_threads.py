"""Import NumPy with all signals blocked: it starts threads, which inherit that, so that none of them takes a signal.

`bfcviz record` imports this before anything that imports NumPy: it blocks signals, which stay pending until it takes
them. In a thread that does not block them a SIGTERM would end it at once.
"""

import signal
from importlib import import_module

_before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
try:
    import_module("numpy")
finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, _before)

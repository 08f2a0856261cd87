"""Run a program with the input, output and signals of this process, and return its exit status."""

import errno
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from bfcviz.errors import BfcvizError

_FORWARDED: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these signals, and a program that it starts would inherit that."""


@contextmanager
def signals_blocked() -> Iterator[set[int]]:
    """Block signals so that they stay pending for `run` to forward; yields the previous signal mask.

    Threads that start inside inherit the mask. Without it a thread of a library (NumPy starts some when it is imported)
    would receive a signal, and `run` would wait for it forever.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_FORWARDED, signal.SIGCHLD})
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(words: Sequence[str], environment: Mapping[str, str], mask: set[int] | None = None) -> int:
    """Start a program, wait for its end, and return its exit status as shells report it (128 + a signal).

    Ctrl-C reaches the program through the terminal; signals sent to this process alone are forwarded.

    Args:
        words: the program and its arguments.
        environment: its environment.
        mask: its signal mask, if the caller is inside `signals_blocked`; None: that of this process.

    Raises:
        BfcvizError: the program cannot be started.
    """
    with signals_blocked() as before:
        own = before if mask is None else mask
        try:
            process = os.posix_spawnp(
                words[0], [*words], environment, setsigmask=own, setsigdef=_IGNORED_BY_PYTHON
            )
            status = os.waitstatus_to_exitcode(_wait(process, {*_FORWARDED, signal.SIGCHLD}))
        except OSError as error:
            raise BfcvizError(f"cannot start {words[0]}: {_why(words[0], error)}") from error
        return status if status >= 0 else 128 - status


def _why(program: str, error: OSError) -> str:
    known = error.errno in {errno.ENOENT, errno.EACCES, errno.ENOEXEC}
    if known and program.endswith(".py") and os.path.isfile(program):  # noqa: PTH113  the path as typed
        return f"it is a Python file; write: python {program}"
    return error.strerror or str(error)


def _wait(process: int, signals: set[signal.Signals]) -> int:
    """Wait for the end of the process, forward signals to it, and return its status from `waitpid`."""
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        number, typed = _next(signals)
        if number != signal.SIGCHLD and not typed:
            os.kill(process, number)


def _next(signals: set[signal.Signals]) -> tuple[int, bool]:
    """Wait for a signal; also whether it was typed: then the terminal has sent it to the program too."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(signals)
        return info.si_signo, info.si_code > 0  # from the kernel, not from a process
    number = signal.sigwait(signals)
    return number, number in {signal.SIGINT, signal.SIGQUIT} and os.isatty(0)

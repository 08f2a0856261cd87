"""A program run in our place: its input and output are ours, so are its signals, and its exit status becomes ours."""

import errno
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from bfcviz.errors import BfcvizError

_PASSED_ON: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_PYTHONS_OWN: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, and what it starts would inherit that."""


@contextmanager
def signals_kept() -> Iterator[set[int]]:
    """Keep signals pending for `run` to pass on; yields the signal mask from before.

    Threads that begin inside inherit the mask. Without it a thread of a library (NumPy starts some when it is imported)
    would take a signal, and `run` would wait for it for ever.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(words: Sequence[str], environment: Mapping[str, str], mask: set[int] | None = None) -> int:
    """Start a program, wait for its end, and return its exit status as a shell counts it (128 + a signal).

    Ctrl-C reaches the program through the terminal, as it would without us; signals that somebody sends to this
    process alone are passed on.

    Args:
        words: the program and its arguments.
        environment: its environment.
        mask: its signal mask, where the caller is inside `signals_kept`; None: that of this process.

    Raises:
        BfcvizError: it cannot be started.
    """
    with signals_kept() as before:
        own = before if mask is None else mask
        try:
            process = os.posix_spawnp(words[0], [*words], environment, setsigmask=own, setsigdef=_PYTHONS_OWN)
            status = os.waitstatus_to_exitcode(_wait(process, {*_PASSED_ON, signal.SIGCHLD}))
        except OSError as error:
            raise BfcvizError(f"cannot start {words[0]}: {_why(words[0], error)}") from error
        return status if status >= 0 else 128 - status


def _why(program: str, error: OSError) -> str:
    known = error.errno in {errno.ENOENT, errno.EACCES, errno.ENOEXEC}
    if known and program.endswith(".py") and os.path.isfile(program):  # noqa: PTH113  as it was typed
        return f"that is a Python file; write: python {program}"
    return error.strerror or str(error)


def _wait(process: int, signals: set[signal.Signals]) -> int:
    """What `waitpid` says of the process once it ended."""
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        number, typed = _next(signals)
        if number != signal.SIGCHLD and not typed:
            os.kill(process, number)


def _next(signals: set[signal.Signals]) -> tuple[int, bool]:
    """The next signal that comes, and whether it was typed: then the terminal has sent it to the program too."""
    if hasattr(signal, "sigwaitinfo"):
        came = signal.sigwaitinfo(signals)
        return came.si_signo, came.si_code > 0  # from the kernel, not from a process
    number = signal.sigwait(signals)
    return number, number in {signal.SIGINT, signal.SIGQUIT} and os.isatty(0)

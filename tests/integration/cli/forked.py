"""A command line of bfcviz in a fork of the process of the tests, which has imported what the command needs.

It takes half a second less than a process of its own, as which few tests need it.
"""

import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings

from bfcviz.cli import main

LIMIT_S = 120


def forked(words, env, input="", cwd="."):  # noqa: A002  the name that `subprocess.run` has
    """What `subprocess.run` would return of `bfcviz WORDS`; also what was patched in this process is so there."""
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        given.write(input)
        given.seek(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on: pytest-xdist has a thread
            child = os.fork()
        if child == 0:
            status = 70
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(LIMIT_S)  # ends a hang
                warnings.resetwarnings()
                for ignored in (DeprecationWarning, ImportWarning, ResourceWarning):  # as Python starts
                    warnings.simplefilter("ignore", ignored)
                for number, file in enumerate((given, out, err)):
                    os.dup2(file.fileno(), number)
                sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
                os.environ.clear()
                os.environ.update(env)
                os.chdir(cwd)
                status = main([*map(str, words)])
            except SystemExit as left:
                status = left.code if isinstance(left.code, int) else 1
            except BaseException:  # noqa: BLE001  nothing of this process may run on in the child
                traceback.print_exc()
            finally:
                try:
                    sys.stdout.flush()
                    sys.stderr.flush()
                finally:
                    os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, status, out.read(), err.read())

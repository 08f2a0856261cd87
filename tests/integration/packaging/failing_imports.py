"""Lets each import that compiled modules do as they start fail in turn: `failing_imports.py ERROR MOST MODULE...`.

Each try is a fork of this process, which has imported everything that is not bfcviz's. After the failure the module is
loaded again, as a notebook's cell is run again, and must be refused. At most MOST imports of a module fail: those of C
come first. Prints each try that ends badly, and the number of tries.
"""

import _imp
import builtins
import contextlib
import importlib
import os
import sys
import warnings

from bfcviz import _compiled


class Injected(BaseException):
    """No handler in the package expects it."""


ERRORS = {error.__name__: error for error in (KeyboardInterrupt, ImportError, MemoryError, Injected)}


def starts_compiled(frame):
    """Whether the import that got to this frame was begun by a compiled module's start."""
    while frame is not None and frame.f_code.co_name != "_call_with_frames_removed":
        if not frame.f_code.co_filename.startswith("<frozen importlib"):
            return False
        frame = frame.f_back
    return frame is not None and frame.f_locals["f"] is _imp.exec_dynamic


class Failing:
    """Raises `error` at import number `turn` of those that a compiled module's start begins."""

    def __init__(self, turn, error):
        self.turn, self.error, self.count = turn, error, 0
        self.plain = builtins.__import__
        builtins.__import__ = self.load
        sys.meta_path.insert(0, self)

    def note(self):
        self.count += 1
        if self.count == self.turn:
            raise self.error

    def load(self, *arguments, **options):
        if starts_compiled(sys._getframe(1)):
            self.note()
        return self.plain(*arguments, **options)

    def find_spec(self, name, path, target=None):
        if starts_compiled(sys._getframe(1)):  # not all imports of C come by `load`
            self.note()


def attempt(module, turn, error):
    """The exit status of a child: 0 where `error` came out and it is said how to go on, 1 where none was raised."""
    failing = Failing(turn, error)
    try:
        _compiled.load(module)
    except error:
        pass
    else:
        return 0 if failing.count >= turn else 1  # Cython makes a warning of some
    try:
        _compiled.load(module)
    except ImportError as refused:
        is_told = module in str(refused) and error.__name__ in str(refused)
        return 0 if is_told else 2
    return 2


def in_child(work, *arguments):
    """Exit status of a forked process that ends with what `work` returns; 2 where it raised."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 2
        try:
            status = work(*arguments)
        except BaseException as error:  # noqa: BLE001  the child must not go on with the parent's work
            print(arguments, repr(error))
        finally:
            sys.stdout.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def warm_up(modules):
    """Import what they need of others, so that a child has little to do."""
    reading, writing = os.pipe()

    def list_needs():
        for module in modules:
            importlib.import_module(module)
        os.write(writing, "\n".join(name for name in sys.modules if not name.startswith("bfcviz")).encode())
        return 0

    assert in_child(list_needs) == 0
    for name in os.read(reading, 1 << 16).decode().splitlines():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main(name, most, *modules):
    warnings.simplefilter("ignore")
    warm_up(modules)
    for module in modules:
        turn, status = 0, 0
        while status != 1 and turn < int(most):
            turn += 1
            status = in_child(attempt, module, turn, ERRORS[name])
            if status not in (0, 1):
                print(f"{module}, import {turn}: ended with {status}")
        print(module, turn - (status == 1))


main(*sys.argv[1:])

"""Every Python that `bfcviz record` starts runs this first: it begins to record after the framework's import.

Not before: a program may set variables that the framework reads on import, and a program that never imports it stays
unchanged. Errors here are reported to `bfcviz record`, and the program runs as it would without. This uses only the
standard library, because this Python may lack bfcviz.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  cheaper than importing pathlib
ORDER = "BFCVIZ_RECORD"
LOST = ".lost"
"""The suffix of an empty file that stands for a report which could not be written."""

UNWRITTEN = "unwritten"
"""The fact that a recording could not be written, without other errors."""


def tell(order: dict[str, Any], fact: str, why: str = "") -> None:
    """Report from Python's startup to `bfcviz record`."""
    line = json.dumps({"fact": fact, "python": sys.executable, "why": why}) + "\n"
    place = os.path.join(order["told"], str(os.getpid()))  # noqa: PTH118
    try:
        with open(place, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(line)
    except OSError:  # a full disk still takes an empty file, which stands for the lost report
        try:  # noqa: SIM105  contextlib need not be imported here
            open(place + LOST, "a").close()  # noqa: PTH123
        except OSError:
            pass


def wanted(order: dict[str, Any]) -> str:
    """The module that Python's startup waits for: its import starts the recording."""
    if order["framework"]:
        return str(order["framework"])
    has_gpu = os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")  # noqa: PTH110
    for name, needs_gpu in order["defaults"]:
        if not needs_gpu or (has_gpu and importlib.util.find_spec(name)):
            return str(name)
    return "numpy"


def import_recorder(module: str, home: str) -> Any:
    """The module of bfcviz that records, of this Python or, where it has none, of the one `bfcviz record` runs in."""
    if sys.version_info < (3, 11):  # noqa: UP036  the program may run in an older Python
        raise ImportError("bfcviz needs Python 3.11 or later, this is {}.{}".format(*sys.version_info))
    path = list(sys.path)
    sys.path.append(home)
    try:
        return importlib.import_module(module)  # only here: it imports NumPy
    finally:
        sys.path[:] = path


def begin(order: dict[str, Any], framework: str) -> None:
    """At Python's startup, after the awaited import: record this process from now on."""
    tell(order, "imported")
    try:
        fact = import_recorder(order["recorder"], order["home"]).begin(order, framework)
    except Exception as error:  # noqa: BLE001  the program must not fail
        is_of_disk = isinstance(error, OSError) or type(error).__name__ == "FileError"
        tell(order, UNWRITTEN if is_of_disk else "unable", f"{type(error).__name__}: {error}")
    else:
        tell(order, fact)


class StartupImportHook:
    """The first of Python's finders until the module is imported; then calls `then`, once."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """At Python's startup: the spec that the other finders find, with a loader that reports when it is done."""
        if name != self.name:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find and find(name, path, target)
            if spec:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = StartupLoader(spec.loader, self.done)  # type: ignore[assignment]
                return spec
        return None

    def done(self) -> None:
        """The module that Python's startup waits for is imported."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self.then()


class StartupLoader:
    """Wraps a loader; restores that loader in the module before the module's code runs."""

    def __init__(self, loader: Any, done: Callable[[], None]) -> None:
        self._loader = loader
        self._done = done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then report it."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._done()


def run_hidden_sitecustomize() -> None:
    """Run the sitecustomize that this one hides, if there is one; remove this folder from the path."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != HERE]  # noqa: PTH100
    mine = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = mine


def main() -> None:
    """Called when Python starts: begin to record this process after the import of its framework."""
    order = json.loads(os.environ.get(ORDER, "null"))
    if order and os.path.isdir(order["told"]):  # noqa: PTH112  else `bfcviz record` has ended, and a daemon started late
        framework = wanted(order)
        tell(order, "began", framework)
        if framework in sys.modules:
            begin(order, framework)
        else:
            sys.meta_path.insert(0, StartupImportHook(framework, lambda: begin(order, framework)))
    run_hidden_sitecustomize()


if __name__ == "sitecustomize":
    main()

"""Run by every Python that `bfcviz record` starts, before the program: recording begins when NumPy was imported.

Not before: a program may set what NumPy reads as it is imported, and one that never imports it is left alone. Whatever
goes wrong here is told to `bfcviz record`, and the program runs as it would without. Only the standard library is
used, for this Python may lack bfcviz.
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
"""Ends the name of a file that stands for a word which could not be written."""

UNWRITTEN = "unwritten"
"""The fact that a recording could not be written, where all else went well."""


def tell(order: dict[str, Any], fact: str, why: str = "") -> None:
    """Leave word with `bfcviz record`, if it is still there."""
    line = json.dumps({"fact": fact, "python": sys.executable, "why": why}) + "\n"
    place = os.path.join(order["told"], str(os.getpid()))  # noqa: PTH118
    try:
        with open(place, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(line)
    except OSError:  # a full disk still takes an empty file, which says that there was more to say
        try:  # noqa: SIM105  contextlib need not be imported here
            open(place + LOST, "a").close()  # noqa: PTH123
        except OSError:
            pass


def wanted(order: dict[str, Any]) -> str:
    """The module after whose import recording begins."""
    if order["framework"]:
        return str(order["framework"])
    has_gpu = os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")  # noqa: PTH110
    for name, needs_gpu in order["defaults"]:
        if not needs_gpu or (has_gpu and importlib.util.find_spec(name)):
            return str(name)
    return "numpy"


def borrowed(home: str) -> Any:
    """bfcviz.live.process.record, from this Python or, where it has none, from the one that `bfcviz record` runs in."""
    if sys.version_info < (3, 11):  # noqa: UP036  it is a stranger's Python
        raise ImportError("bfcviz needs Python 3.11 or later, this is {}.{}".format(*sys.version_info))
    path = list(sys.path)
    sys.path.append(home)
    try:
        return importlib.import_module("bfcviz.live.process.record")  # only now: it imports NumPy
    finally:
        sys.path[:] = path


def begin(order: dict[str, Any], framework: str) -> None:
    """Record this process from now on."""
    tell(order, "imported")
    try:
        is_mine = borrowed(order["home"]).begin(order, framework)
    except Exception as error:  # noqa: BLE001  the program must not notice
        is_of_disk = isinstance(error, OSError) or type(error).__name__ == "FileError"
        tell(order, UNWRITTEN if is_of_disk else "unable", f"{type(error).__name__}: {error}")
    else:
        tell(order, "recorded" if is_mine else "other")


class Awaiting:
    """Stands first among Python's finders, until the module was imported; then calls `then`, once."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec that others find, with a loader that says when it is done."""
        if name != self.name:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find and find(name, path, target)
            if spec:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, self.done)  # type: ignore[assignment]
                return spec
        return None

    def done(self) -> None:
        """The module is there."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self.then()


class Loader:
    """Another loader, whose place it leaves to that one before any of the module's code can look."""

    def __init__(self, loader: Any, done: Callable[[], None]) -> None:
        self._loader = loader
        self._done = done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module, and say so."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._done()


def give_way() -> None:
    """Run the sitecustomize that this one hides, if there is one; leave no trace on the path."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != HERE]  # noqa: PTH100
    mine = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = mine


def main() -> None:
    """What happens as Python begins."""
    order = json.loads(os.environ.get(ORDER, "null"))
    if order and os.path.isdir(order["told"]):  # noqa: PTH112  else `bfcviz record` is done, and a daemon came late
        framework = wanted(order)
        tell(order, "began", framework)
        if framework in sys.modules:
            begin(order, framework)
        else:
            sys.meta_path.insert(0, Awaiting(framework, lambda: begin(order, framework)))
    give_way()


if __name__ == "sitecustomize":
    main()

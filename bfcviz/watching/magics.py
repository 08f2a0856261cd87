"""The magics of `%load_ext bfcviz`: `%%bfcviz` records a cell, `%bfcviz_live` shows what runs from here on."""

import argparse
import ast
import shlex
from contextlib import ExitStack
from typing import Any, Final, NoReturn

from IPython.core.error import UsageError

from bfcviz.errors import LiveError
from bfcviz.events.trace import Trace
from bfcviz.figures import draw
from bfcviz.frameworks.table import FRAMEWORKS, WATCHABLE
from bfcviz.live.numpy.serve import unserved
from bfcviz.watching import notebook
from bfcviz.watching.plan import Capture
from bfcviz.watching.report import report
from bfcviz.watching.session import Watch
from bfcviz.watching.start_watch import watch

_OFF: Final = "off"


class _Parser(argparse.ArgumentParser):
    """A wrong word is an error of the cell, and does not end the kernel."""

    def __init__(self, name: str) -> None:
        super().__init__(name, add_help=False, allow_abbrev=False)
        for each in WATCHABLE:
            self.add_argument(f"--{each}", action="store_true", help=f"watch {FRAMEWORKS[each].title}")
        self.add_argument("--limit", metavar="SIZE", help="what the heap may grow to, such as 512MiB")
        self.add_argument("--stack", action="store_true", help="record the Python stack with each allocation")
        self.add_argument("--path", metavar="FOLDER", help="a new folder to record to")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_help()}")

    def read(self, line: str) -> argparse.Namespace:
        """The words of a magic's line."""
        return self.parse_args(shlex.split(line))


_CELL: Final = _Parser("%%bfcviz")
_CELL.add_argument(
    "--into", metavar="NAME", help="the variable that gets the Watch, with its trace and dashboard"
)
_LIVE: Final = _Parser("%bfcviz_live")
_LIVE.add_argument("do", nargs="?", choices=["on", _OFF], default="on", help="off ends it")


class BfcvizMagics:
    """What `%load_ext bfcviz` adds to a notebook's shell."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self._live: Watch | None = None
        self._between: ExitStack | None = None

    def record(self, line: str, cell: str) -> Any:
        """Record this cell, and show the heap at its peak and who held it."""
        wanted = _CELL.read(line)
        if wanted.into is not None and not wanted.into.isidentifier():
            raise UsageError(f"--into {wanted.into} was asked for: give the name of a variable")
        watched = _watch(wanted, dashboard=False)
        with watched:
            if wanted.into is not None:  # before the cell runs: it is of most use where that fails
                self.shell.user_ns[wanted.into] = watched
            result = self._run(cell)
        for trace in watched.traces:
            _tell(watched, trace)
        return result

    def live(self, line: str) -> None:
        """Show a live dashboard of what runs from here on, until `%bfcviz_live off`."""
        wanted = _LIVE.read(line)
        if wanted.do == _OFF:
            self._end()
        elif self._live is not None:
            raise LiveError(
                "the live dashboard is there already: end it with %bfcviz_live off, and begin a new one"
            )
        else:
            self._begin(_watch(wanted, dashboard=True))

    def unload(self) -> None:
        """End what was begun; the magics are gone with the extension."""
        if self._live is not None:
            self._end()

    # -- a cell ---------------------------------------------------------------------------------------------

    def _run(self, cell: str) -> Any:
        """Run it here, in the user's variables; returns what its last expression gives, to be displayed."""
        shell = self.shell
        source = shell.transform_cell(cell)
        name = shell.compile.cache(source, shell.execution_count)
        tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), shell.user_ns)  # noqa: S102  as the cell would be
        if last is None:
            return None
        value = eval(compile(ast.Expression(last.value), name, "eval"), shell.user_ns)  # noqa: S307
        return None if source.rstrip().endswith(";") else value

    # -- from cell to cell ----------------------------------------------------------------------------------

    def _begin(self, watched: Watch) -> None:
        watched.__enter__()
        self._live = watched
        self.shell.events.register("pre_run_cell", self._cell_begins)
        self.shell.events.register("post_run_cell", self._cell_ends)

    def _end(self) -> None:
        if self._live is None:
            raise UsageError("nothing is shown live: begin with %bfcviz_live")
        watched, self._live = self._live, None
        self.shell.events.unregister("pre_run_cell", self._cell_begins)
        self.shell.events.unregister("post_run_cell", self._cell_ends)
        self._cell_begins(None)
        watched.__exit__(None, None, None)

    def _cell_begins(self, _: Any) -> None:
        if self._between is not None:
            self._between.close()
            self._between = None

    def _cell_ends(self, result: Any) -> None:
        """Between cells NumPy is not served: what the kernel itself does then is not the workload."""
        if self._live is None or self._between is not None:
            return
        self._between = ExitStack()
        self._between.enter_context(unserved())
        if result.error_in_exec is not None:
            self._live.tell(result.error_in_exec)


class _Loaded:
    """The magics there are, of the one shell of this process."""

    magics: BfcvizMagics | None = None


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext bfcviz` calls."""
    _Loaded.magics = BfcvizMagics(shell)
    shell.register_magic_function(_Loaded.magics.record, "cell", "bfcviz")
    shell.register_magic_function(_Loaded.magics.live, "line", "bfcviz_live")


def unload_ipython_extension(shell: Any) -> None:
    """What `%unload_ext bfcviz` calls."""
    if _Loaded.magics is not None:
        _Loaded.magics.unload()
        _Loaded.magics = None
    for kind, name in (("cell", "bfcviz"), ("line", "bfcviz_live")):
        shell.magics_manager.magics[kind].pop(name, None)


def _watch(wanted: argparse.Namespace, *, dashboard: bool) -> Watch:
    asked: dict[str, Any] = {name: True for name in WATCHABLE if getattr(wanted, name)}
    capture: Capture | None = "stack" if wanted.stack else None
    return watch(**asked, limit=wanted.limit, capture=capture, path=wanted.path, dashboard=dashboard)


def _tell(watched: Watch, trace: Trace) -> None:
    found = report(trace, says=watched.says)
    if not notebook.has_kernel():
        print(found)  # noqa: T201  a terminal shows no tables
        return
    notebook.show(found)
    if found.stats.bytes_in_use:
        notebook.show(draw("region_map", trace, found.step))

"""The magics of `%load_ext bfcviz`: `%%bfcviz` records a cell, `%bfcviz_live` shows the next cells live."""

import argparse
import ast
import shlex
from contextlib import ExitStack
from typing import Any, Final, NoReturn

from IPython.core.error import UsageError

from bfcviz import notebook
from bfcviz.errors import LiveError
from bfcviz.events.trace import Trace
from bfcviz.frameworks import CAPTURE, FRAMEWORKS, WATCHABLE
from bfcviz.live.numpy import unserved
from bfcviz.watching.watch_reports import report
from bfcviz.watching.watch_session import Watch, watch

_OFF: Final = "off"


class _MagicParser(argparse.ArgumentParser):
    """A parser of a magic, whose usage error is an error of the cell; argparse would end the kernel."""

    def __init__(self, name: str) -> None:
        super().__init__(name, add_help=False, allow_abbrev=False)
        for each in WATCHABLE:
            self.add_argument(f"--{each}", action="store_true", help=f"watch {FRAMEWORKS[each].title}")
        self.add_argument("--limit", metavar="SIZE", help="how large the heap may grow, such as 512MiB")
        self.add_argument(
            "--capture",
            choices=CAPTURE.words,
            help="what to record with each allocation; default: the Python stack",
        )
        self.add_argument("--path", metavar="FOLDER", help="a new folder to record to")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_help()}")

    def read(self, line: str) -> argparse.Namespace:
        """Parse the line of a magic."""
        return self.parse_args(shlex.split(line))


_CELL: Final = _MagicParser("%%bfcviz")
_CELL.add_argument("--into", metavar="NAME", help="the variable to store the Watch in")
_LIVE: Final = _MagicParser("%bfcviz_live")
_LIVE.add_argument("do", nargs="?", choices=["on", _OFF], default="on", help="off ends it")


class BfcvizMagics:
    """What `%load_ext bfcviz` adds to a notebook's shell."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self._live: Watch | None = None
        self._unserved: ExitStack | None = None  # between cells

    def record(self, line: str, cell: str) -> Any:
        """The magic `%%bfcviz`: record this cell, then show the peak of the heap and its largest holders."""
        arguments = _CELL.read(line)
        if arguments.into is not None and not arguments.into.isidentifier():
            raise UsageError(f"--into {arguments.into} is not the name of a variable")
        watched = _watch_from_magic(arguments, dashboard=False)
        with watched:
            if arguments.into is not None:  # before the cell runs, for a cell that fails
                self.shell.user_ns[arguments.into] = watched
            result = self._run(cell)
        for trace in watched.traces:
            _show_cell_report(watched, trace)
        return result

    def live(self, line: str) -> None:
        """The magic `%bfcviz_live`: show a live dashboard of the next cells, until `%bfcviz_live off`."""
        arguments = _LIVE.read(line)
        if arguments.do == _OFF:
            self._end()
        elif self._live is not None:
            raise LiveError("a live dashboard is already shown: end it with %bfcviz_live off first")
        else:
            self._begin(_watch_from_magic(arguments, dashboard=True))

    def unload(self) -> None:
        """End the live dashboard of the magics, if one is shown."""
        if self._live is not None:
            self._end()

    # -- a cell ---------------------------------------------------------------------------------------------

    def _run(self, cell: str) -> Any:
        """Run the cell of a magic in the user's namespace; return the value of its last expression, to display."""
        shell = self.shell
        source = shell.transform_cell(cell)
        name = shell.compile.cache(source, self._cell_number())
        tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), shell.user_ns)  # noqa: S102  as IPython would run the cell
        if last is None:
            return None
        value = eval(compile(ast.Expression(last.value), name, "eval"), shell.user_ns)  # noqa: S307
        return None if source.rstrip().endswith(";") else value

    def _cell_number(self) -> int:
        """For the magics: the n in `In[n]` of the cell that runs; newer IPython's `execution_count` is the next."""
        history = self.shell.history_manager
        return self.shell.execution_count if history is None else len(history.input_hist_parsed) - 1

    # -- from cell to cell ----------------------------------------------------------------------------------

    def _begin(self, watched: Watch) -> None:
        watched.__enter__()
        self._live = watched
        self.shell.events.register("pre_run_cell", self._cell_begins)
        self.shell.events.register("post_run_cell", self._cell_ends)

    def _end(self) -> None:
        if self._live is None:
            raise UsageError("no live dashboard is shown: start one with %bfcviz_live")
        watched, self._live = self._live, None
        self.shell.events.unregister("pre_run_cell", self._cell_begins)
        self.shell.events.unregister("post_run_cell", self._cell_ends)
        self._cell_begins(None)
        watched.__exit__(None, None, None)

    def _cell_begins(self, _: Any) -> None:
        if self._unserved is not None:
            self._unserved.close()
            self._unserved = None

    def _cell_ends(self, result: Any) -> None:
        """After a cell with magics, stop serving NumPy until the next: the kernel's arrays are not of the workload."""
        if self._live is None or self._unserved is not None:
            return
        self._unserved = ExitStack()
        self._unserved.enter_context(unserved())
        if result.error_in_exec is not None:
            self._live.tell(result.error_in_exec)


class _Loaded:
    """The magics of the one shell of this process."""

    magics: BfcvizMagics | None = None


def load_ipython_extension(shell: Any) -> None:
    """Register the magics; `%load_ext bfcviz` calls this."""
    _Loaded.magics = BfcvizMagics(shell)
    shell.register_magic_function(_Loaded.magics.record, "cell", "bfcviz")
    shell.register_magic_function(_Loaded.magics.live, "line", "bfcviz_live")


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics; `%unload_ext bfcviz` calls this."""
    if _Loaded.magics is not None:
        _Loaded.magics.unload()
        _Loaded.magics = None
    for kind, name in (("cell", "bfcviz"), ("line", "bfcviz_live")):
        shell.magics_manager.magics[kind].pop(name, None)


def _watch_from_magic(arguments: argparse.Namespace, *, dashboard: bool) -> Watch:
    asked: dict[str, Any] = {name: True for name in WATCHABLE if getattr(arguments, name)}
    return watch(
        **asked, limit=arguments.limit, capture=arguments.capture, path=arguments.path, dashboard=dashboard
    )


def _show_cell_report(watched: Watch, trace: Trace) -> None:
    found = report(trace, says=watched.says)
    if notebook.has_kernel():
        notebook.show(found)
    else:
        print(found)  # noqa: T201  a terminal cannot show HTML

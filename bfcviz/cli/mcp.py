"""`bfcviz mcp`: lets agents and editors ask about the files of one folder, by the Model Context Protocol.

A host starts it and talks to it by standard input and output. The tools only read, and only below the folder: a path
that leads out of it, also by a symbolic link, is refused. An answer is the text that the command of the same name
prints, cut to a length that a conversation can hold; a picture is a PNG. One tool runs at a time.
"""

import argparse
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any, Final

import bfcviz
from bfcviz.cli.info import info, info_lines, opened_file_name
from bfcviz.errors import BfcvizError, FileError
from bfcviz.events.storage.folder import ORIGIN_FILE, recordings_in
from bfcviz.extras import needed
from bfcviz.importers.open_trace import open_trace, others_than_opened
from bfcviz.model.find_steps import NAMED_STEPS, failing_pool
from bfcviz.terminal import printable
from bfcviz.units import format_bytes

_MOST_TEXT: Final = 20_000  # characters of an answer

_OUTSIDE: Final = "leads out of the folder that may be read: give a path below it"
_MOST_FILES: Final = 200
_MOST_POLICIES: Final = 8
_SEARCH_S: Final = 60.0  # a search of settings ends after so long, with what it knows then

_HELP: Final = (
    "Answers about GPU memory: why requests failed, who holds memory, what leaks, what another setting would change. "
    "Begin with `open` without a path, which lists the files. A step is a number of events, the state after them."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz mcp`."""
    parser.add_argument(
        "folder", metavar="FOLDER", type=Path, help="the folder of the files; nothing outside it is read"
    )


def run(arguments: argparse.Namespace) -> None:
    """Serve the Model Context Protocol until standard input ends.

    Raises:
        FileError: there is no such folder.
        MissingExtra: the SDK of the protocol is not installed.
    """
    if not arguments.folder.is_dir():
        raise FileError(arguments.folder, "", "is not a folder: give the folder of the files to ask about")
    server_of(arguments.folder).run("stdio")


def server_of(folder: Path) -> Any:
    """The server of the Model Context Protocol for a folder: a `mcp.server.MCPServer`.

    Raises:
        MissingExtra: the SDK is not installed.
    """
    with needed("bfcviz mcp", "the SDK of the Model Context Protocol", "mcp"):
        from mcp.server import MCPServer  # noqa: PLC0415  an extra
        from mcp_types import ToolAnnotations  # noqa: PLC0415
    server = MCPServer("bfcviz", version=bfcviz.__version__, instructions=_HELP, log_level="WARNING")
    tools, lock = Tools(folder), threading.Lock()
    hints = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for name in TOOLS:
        server.add_tool(
            _guarded_mcp_tool(getattr(tools, name), lock), annotations=hints, structured_output=False
        )
    return server


def _guarded_mcp_tool(tool: Callable[..., Any], lock: threading.Lock) -> Callable[..., Any]:
    """A tool of the protocol, one at a time; its text cut, and its errors as the protocol has them."""
    from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415

    @wraps(tool)
    def guarded(*args: Any, **options: Any) -> Any:
        try:
            with lock:
                found = tool(*args, **options)
        except (BfcvizError, ValueError, OSError) as error:
            raise ToolError(bounded(str(error))) from None
        return bounded(found) if isinstance(found, str) else found

    return guarded


def bounded(text: str) -> str:
    """The text of an answer with at most `_MOST_TEXT` characters, in whole lines; what is left out is said."""
    lines = "\n".join(map(printable, text.splitlines()))
    if len(lines) <= _MOST_TEXT:
        return lines
    kept = lines[:_MOST_TEXT].rpartition("\n")[0] or lines[:_MOST_TEXT]
    return f"{kept}\n... {len(lines) - len(kept):,} more characters are left out"


TOOLS: Final = ("open", "why", "holders", "leaks", "compare", "whatif", "tune", "picture")
"""The names of the tools: methods of `Tools`, whose docstrings and types are what an agent reads of them."""


class Tools:
    """The tools of the protocol: what an agent can ask about the files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def open(self, path: str = ".") -> str:
        """Say what a file holds and lacks: format, heaps, sizes, failed requests. Of a folder: list its files."""
        place = self._resolved(path)
        if place.is_dir() and not (place / ORIGIN_FILE).exists():
            return "\n".join(self._listed(place))
        trace = open_trace(self._place(path))
        lines = info_lines(trace.origin, info(trace), opened_file_name(trace))
        return "\n".join([*self._others(path), *lines])

    def why(self, path: str, size: str | None = None, step: int | None = None) -> str:
        """Say why a request failed, what pins the free memory and what would have helped.

        With `size`, such as "500MiB": whether such a request would fit, at `step` or at the end. The file may also be a
        text with an error message, or a folder with the files of all ranks.
        """
        return str(bfcviz.why(self._place(path), size=size, step=step))

    def holders(self, path: str, step: int | str | None = "peak", by: str = "op") -> str:
        """Say who holds the memory at a step, "peak", "worst" (most fragmented), "oom" (first failure) or "last".

        `by` is op, line, stack, shape, data_type, thread, stream, phase or kind.
        """
        trace = open_trace(self._place(path))
        pool = failing_pool(trace)
        found = bfcviz.holders(trace, self._step(trace, step, pool), by, pool=pool)
        return "\n".join([*self._about(path, trace), str(found)])

    def leaks(self, path: str, by: str = "op", mark: str | None = None) -> str:
        """Say what was never freed, and what grows with every step of the program; `mark` names the mark of a step."""
        trace = open_trace(self._place(path))
        return "\n".join([*self._about(path, trace), str(bfcviz.leaks(trace, by=by, mark=mark))])

    def compare(self, before: str, after: str, by: str = "op") -> str:
        """Say what changed from one recording to another: who needs more memory, what appeared, vanished or leaks."""
        a, b = (open_trace(self._place(path)) for path in (before, after))
        found = bfcviz.compare_recordings(a, b, by=by)
        return "\n".join([*self._others(before), *self._others(after), str(found)])

    def whatif(self, path: str, policies: Sequence[str] = (), limit: str | None = None) -> str:
        """Serve the same requests by the rules of other allocators: would they fit, with how much memory?

        `policies` such as "bfc:allow_growth=true", "torch:expandable_segments=true", "cupy"; none: the job's own and
        the usual ones. `limit` such as "12GiB".
        """
        from bfcviz.policy_comparison import comparison_text  # noqa: PLC0415

        if len(policies) > _MOST_POLICIES:
            raise ValueError(f"{len(policies)} policies were given: give at most {_MOST_POLICIES}")
        trace = open_trace(self._place(path))
        found = bfcviz.compare_policies(trace, list(policies) or None, limit)
        # Its notes tell what is missing of the file.
        return "\n".join([*self._others(path), comparison_text(found.comparison)])

    def tune(self, path: str, device: str | None = None) -> str:
        """Find the setting of the job's own allocator that saves most memory: the line to set.

        `device` such as "80GiB": under the memory of such a device. A long search ends after a minute, and says so.
        """
        from bfcviz.whatif.policy_replay import replay_limit  # noqa: PLC0415
        from bfcviz.whatif.requests import stream_of  # noqa: PLC0415
        from bfcviz.whatif.search import searchable  # noqa: PLC0415
        from bfcviz.whatif.tuning import tune, tuned_lines  # noqa: PLC0415

        control = bfcviz.SearchControl()
        timer = threading.Timer(_SEARCH_S, control.stop)
        timer.start()
        try:
            trace = open_trace(self._place(path))
            stream = searchable(stream_of(trace))
            found = tune(stream, replay_limit(device, "device"), control=control)
        finally:
            timer.cancel()
        return "\n".join([*self._others(path), *tuned_lines(found)])  # notes as of `whatif`

    def picture(self, path: str, figure: str = "region_map", step: int | str | None = None) -> Any:
        """Draw a heap at a step as a PNG: region_map, active_memory, address_time, holders, failure and others.

        `step` is a number of events, "peak", "worst", "oom" or "last"; none: the first failure, else the peak.
        """
        from mcp.server.mcpserver import Image  # noqa: PLC0415

        from bfcviz.figures.export import rendered  # noqa: PLC0415

        trace = open_trace(self._place(path))
        at = self._step(trace, step, failing_pool(trace))
        drawn = Image(data=rendered(bfcviz.draw(figure, trace, at), ".png"), format="png")
        about = self._about(path, trace)
        return ["\n".join(about), drawn] if about else drawn

    def _about(self, path: str, trace: bfcviz.Trace) -> list[str]:
        """What an agent has to know of a file before an answer: what else is there, and what is missing of it."""
        return [*self._others(path), *filter(None, [trace.origin.truncated])]

    def _others(self, path: str) -> list[str]:
        """Which recording of a folder with several an answer is about, and the paths of the others."""
        others = others_than_opened(self._resolved(path))
        return [others.replace(f"{self._folder}{os.sep}", "")] if others else []

    @staticmethod
    def _step(trace: bfcviz.Trace, step: int | str | None, pool: int) -> int | None:
        if not isinstance(step, str):
            return step
        if step in NAMED_STEPS:
            return NAMED_STEPS[step](trace, pool)
        if not step.isdecimal():
            raise ValueError(f"{step!r} is not a step: give a number, or one of {', '.join(NAMED_STEPS)}")
        return int(step)

    def _place(self, path: str) -> Path:
        """The path that an agent may read of a file or folder; raises as `_resolved`, also for a link in a folder."""
        place = self._resolved(path)
        for where, folders, files in os.walk(place):
            for name in (*folders, *files):
                if not (Path(where) / name).resolve().is_relative_to(self._folder):
                    raise FileError(path, name, _OUTSIDE)
        return place

    def _resolved(self, path: str) -> Path:
        """The path that an agent names, without symbolic links.

        Raises:
            FileError: there is nothing, or it does not lie below the folder.
        """
        try:
            place = (self._folder / path).resolve(strict=True)
        except (OSError, ValueError, RuntimeError) as error:
            raise FileError(path, "", "is not there: `open` without a path lists the files") from error
        if not place.is_relative_to(self._folder):
            raise FileError(path, "", _OUTSIDE)
        return place

    def _listed(self, place: Path) -> Iterator[str]:
        """The files of a folder with their sizes, for an agent; a recording's folder is one of them."""
        yield f"{place.relative_to(self._folder)}: give `open` one of these paths"
        found = list(islice(_files_in_mcp_folder(place), _MOST_FILES + 1))
        for each in sorted(found[:_MOST_FILES]):
            size = "recording" if each.is_dir() else format_bytes(each.lstat().st_size)
            yield f"{size:>12}  {each.relative_to(self._folder)}"
        if len(found) > _MOST_FILES:
            yield f"... and more: only {_MOST_FILES} are listed; give `open` a folder in this one"


def _files_in_mcp_folder(place: Path) -> Iterator[Path]:
    """The files in a folder, at any depth, without hidden ones; a recording's folder counts as one for each process."""
    for where, folders, files in os.walk(place):
        here = Path(where)
        if ORIGIN_FILE in files:
            yield from recordings_in(here).values()
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (here / name for name in sorted(files) if not name.startswith("."))

"""The standby: a process that reads the file while the server starts, and becomes the kernel of the first page.

::

    server    start standby | import Voila ........... | listen, ask for a kernel | a page asks for it
    standby    read the file | import plotly, IPython ... | be that kernel, make the page's widgets ... | answer

The standby reports whether the file can be read, and its verdict and first screen, in one line of JSON on its standard
output. It then waits for one line of JSON on its standard input, a `KernelRequest`, and ends if there is none. A second
line is the width of the page, which comes before the page asks for the widgets: so it draws their figure once. Once the
kernel has made them, another line of output says so, or why not.
"""

import gc
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bfcviz.errors import BfcvizError

if TYPE_CHECKING:
    import asyncio
    import subprocess

_PACKAGE_HOME = str(Path(__file__).parents[2])


@dataclass(frozen=True)
class KernelRequest:
    """What a standby needs to be the kernel of a page."""

    view: str  # the model of the widget that the page shows
    arguments: Sequence[str]  # those of `ipykernel_launcher`
    # environment, folder: of the process; None: where it is
    environment: Mapping[str, str]
    folder: str | None


class Standby:
    """The standby as a process: it reads the file while the server starts, then becomes a kernel.

    Args:
        module: a module with `prepare(file)`, called before the report, and `dashboard(file, *options)`.
        file: the file to read.
        options: of the dashboard.
        prepares: whether it prepares, and reports.

    Attributes:
        headline: the verdict in one line; "": there is none, also before `check`.
        first_screen: what a page shows until its kernel is ready, as HTML; "": nothing, also before `check`.
    """

    def __init__(self, module: str, file: str, options: Sequence[str] = (), *, prepares: bool = True) -> None:
        self.headline = self.first_screen = ""
        self._module, self._file, self._options = module, str(Path(file).absolute()), tuple(options)
        self._unread = prepares  # the report
        # A standby, which is to read its file soon, has no use for these.
        import subprocess  # noqa: PLC0415
        from threading import Thread  # noqa: PLC0415

        process = subprocess.Popen(  # noqa: S603  our own code
            [sys.executable, "-P", "-c", self.code(prepares=prepares)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server
            env={**os.environ, "JPY_PARENT_PID": str(os.getpid())},  # IPython ends with its parent
        )
        self._process: subprocess.Popen[bytes] | None = process
        self._reports: Any = process.stdout
        # A report is larger than a pipe: without a reader the standby would wait until the server is imported.
        self._report = b""
        self._reader = Thread(target=self._read_report, daemon=True)
        if prepares:
            self._reader.start()
        self._requests: IO[bytes] | None = None

    def code(self, *, prepares: bool) -> str:
        """The Python code of the standby's process; it contains file and options as literals, never as code."""
        what = ", ".join(map(ascii, (self._module, self._file, self._options)))
        return (
            f"import sys; sys.path.append({_PACKAGE_HOME!a})\n"
            "from bfcviz.cli.standby import stand_by\n"
            f"stand_by({what}, prepares={prepares})"
        )

    def again(self) -> "Standby":
        """Another standby, to be the kernel of another page; the file was checked."""
        return Standby(self._module, self._file, self._options, prepares=False)

    def check(self) -> None:
        """Wait for the standby's report on the file.

        Raises:
            BfcvizError: the file cannot be read; the text is that of the error.
        """
        process = self._process
        if process is None or not self._unread:
            return
        self._unread = False
        self._reader.join()
        line = self._report
        if not line:
            raise BfcvizError(f"the process that reads the file ended with exit status {process.wait()}")
        report = json.loads(line)
        if report["error"] is not None:
            raise BfcvizError(report["error"])
        self.headline, self.first_screen = report["shown"]

    def _read_report(self) -> None:
        self._report = self._reports.readline()

    def become_kernel(self, request: KernelRequest) -> "subprocess.Popen[bytes] | None":
        """Let the standby be a kernel.

        Returns:
            The process, which now is the caller's; None if there is none: it became a kernel before, or ended.
        """
        process = self._process
        if process is None or process.stdin is None:
            return None
        try:
            process.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            with suppress(BrokenPipeError):
                process.stdin.close()  # it fails once, since nothing reads what it holds
            self.end()
            return None
        self._process, self._requests = None, process.stdin
        return process

    def tell_width(self, pixels: int) -> None:
        """Tell the standby, which is the kernel, the width of its page, once."""
        requests, self._requests = self._requests, None
        if requests is not None:
            with suppress(OSError, ValueError), requests:  # it was closed: the kernel has ended
                requests.write(f"{pixels}\n".encode())

    def shown(self) -> "asyncio.Future[str]":
        """Becomes "" once the standby, which is the kernel, has made the widgets, or why it cannot."""
        import asyncio  # noqa: PLC0415  as above

        loop, reports = asyncio.get_running_loop(), self._reports
        found: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            loop.remove_reader(reports)
            with reports:
                line = reports.readline()
            found.set_result(json.loads(line) if line else "its process has ended")

        loop.add_reader(reports, read)
        return found

    def end(self) -> None:
        """End the standby, if it did not become a kernel."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:  # closes its pipes and waits
                pass


def stand_by(module: str, file: str, options: Sequence[str], *, prepares: bool) -> None:
    """Run the standby: read the file, report, import what a page needs, wait for the request, be the kernel."""
    gc.disable()  # what is imported and read here stays: searching it for garbage, again and again, finds none
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the kernel prints goes where the server's errors go
    view = import_module(module)
    if prepares and not _prepare(view, file, reports):
        return
    import_module("bfcviz.dashboard.inspector")
    import_module("bfcviz.dashboard.figure_widget").PlotlyScriptWidget.pages_have_it = True  # from the server
    kernelapp: Any = import_module("ipykernel.kernelapp")
    requests = sys.stdin.buffer
    line = requests.readline()
    if not line:
        return
    request = KernelRequest(**json.loads(line))
    os.environ.clear()
    os.environ.update(request.environment)
    if request.folder:
        os.chdir(request.folder)
    sys.argv = ["ipykernel_launcher", *request.arguments]
    kernel = kernelapp.IPKernelApp.instance()
    kernel.initialize()
    widgets: Any = import_module("ipywidgets")
    # ipywidgets found no kernel when it was imported. Without this a page asks for the state of each widget alone.
    widgets.register_comm_target()

    def show() -> None:
        error = ""
        _take_width(requests)
        try:
            shown = view.dashboard(file, *options)
            widgets.Box([shown], layout={"display": "contents"}, model_id=request.view)
        except BfcvizError as found:
            error = str(found)
        except Exception as found:  # noqa: BLE001  of any kind: the page must say it
            import traceback  # noqa: PLC0415  only here

            error = f"{type(found).__name__}: {found}"
            traceback.print_exc(file=sys.__stderr__)
        with reports:
            reports.write(json.dumps(error) + "\n")
        _take_width_later(requests)
        gc.freeze()
        gc.enable()

    import_module("tornado.ioloop").IOLoop.current().add_callback(show)  # before the first message of a page
    kernel.start()


def _take_width(requests: IO[bytes]) -> None:
    """Use the width of the page in pixels in the standby, if it is there; 0: the page does not know it."""
    os.set_blocking(requests.fileno(), False)
    line = requests.readline()
    if line.endswith(b"\n") and int(line):
        import_module("bfcviz.dashboard.inspector").use_page_width(int(line))


def _take_width_later(requests: IO[bytes]) -> None:
    """Use the width of the page in the standby when it comes: the page has not asked for the widgets by then."""
    import asyncio  # noqa: PLC0415  as above

    loop = asyncio.get_running_loop()

    def take() -> None:
        loop.remove_reader(requests)
        _take_width(requests)

    loop.add_reader(requests, take)


def _prepare(view: Any, file: str, reports: Any) -> bool:
    """Prepare the view of the file in the standby and report; False: it cannot be read."""
    error, shown = None, None
    try:
        shown = view.prepare(file)
    except BfcvizError as found:
        error = str(found)
    try:
        reports.write(json.dumps({"error": error, "shown": shown or ("", "")}) + "\n")
        reports.flush()
    except BrokenPipeError:  # the server was ended, and there is no one to tell
        os._exit(1)
    return error is None

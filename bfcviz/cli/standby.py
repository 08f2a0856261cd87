"""The standby: a process that reads the file while the server starts, and becomes the kernel of the first page.

::

    server    start standby | import Voila ........... | listen | page asks for a kernel
    standby    read the file | import plotly, IPython ... | wait |  be that kernel

The standby reports whether the file can be read, and its verdict and first screen, in one line of JSON on its standard
output. It then waits for one line of JSON on its standard input: the arguments, environment and folder of the kernel.
It ends if there is none.
"""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bfcviz.errors import BfcvizError

_PACKAGE_HOME = str(Path(__file__).parents[2])


class Standby:
    """The standby as a process: it reads the file while the server starts, then becomes a kernel.

    Args:
        module: a module with `prepare(file)`, called before the report, and what the page needs.
        file: the file to read.

    Attributes:
        headline: the verdict in one line; "": there is none, also before `check`.
        first_screen: what a page shows until its kernel is ready, as HTML; "": nothing, also before `check`.
    """

    def __init__(self, module: str, file: str) -> None:
        self.headline = self.first_screen = ""
        code = (
            f"import sys; sys.path.append({_PACKAGE_HOME!a})\n"
            "from bfcviz.cli.standby import stand_by\n"
            f"stand_by({module!a}, {str(Path(file).absolute())!a})"
        )
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(  # noqa: S603  our own code
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server
            env={**os.environ, "JPY_PARENT_PID": str(os.getpid())},  # IPython ends with its parent
        )

    def check(self) -> None:
        """Wait for the report.

        Raises:
            BfcvizError: the file cannot be read; the text is that of the error.
        """
        process = self._process
        if process is None or process.stdout is None or process.stdout.closed:
            return
        with process.stdout as pipe:
            line = pipe.readline()
        if not line:
            raise BfcvizError(f"the process that reads the file ended with exit status {process.wait()}")
        report = json.loads(line)
        if report["error"] is not None:
            raise BfcvizError(report["error"])
        self.headline, self.first_screen = report["shown"]

    def become_kernel(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: str | None
    ) -> "subprocess.Popen[bytes] | None":
        """Let it be a kernel with these arguments of `ipykernel_launcher`.

        Returns:
            The process, which now is the caller's; None if there is none: it became a kernel before, or ended.
        """
        process = self._process
        if process is None or process.stdin is None:
            return None
        request = {"arguments": [*arguments], "environment": {**environment}, "folder": folder}
        try:
            with process.stdin as pipe:
                pipe.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            self.end()
            return None
        self._process = None
        return process

    def end(self) -> None:
        """End it, if it did not become a kernel."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:  # closes its pipes and waits
                pass


def stand_by(module: str, file: str) -> None:
    """Read the file, report, import what a page needs, wait for the request, be the kernel."""
    gc.disable()  # what is imported and read here stays: searching it for garbage, again and again, finds none
    error, shown = None, None
    try:
        shown = import_module(module).prepare(file)
    except BfcvizError as found:
        error = str(found)
    report = os.dup(1)
    os.dup2(2, 1)  # what the kernel prints goes where the server's errors go; the pipe ends with the report
    with os.fdopen(report, "w") as pipe:
        pipe.write(json.dumps({"error": error, "shown": shown or ("", "")}) + "\n")
    if error is not None:
        return
    import_module("bfcviz.dashboard.inspector")
    kernelapp: Any = import_module("ipykernel.kernelapp")
    line = sys.stdin.readline()
    if not line:
        return
    request = json.loads(line)
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["folder"]:
        os.chdir(request["folder"])
    sys.argv = ["ipykernel_launcher", *request["arguments"]]
    kernel = kernelapp.IPKernelApp.instance()
    kernel.initialize()
    # ipywidgets found no kernel when it was imported. Without this a page asks for the state of each widget alone.
    import_module("ipywidgets").register_comm_target()
    gc.freeze()
    gc.enable()
    kernel.start()

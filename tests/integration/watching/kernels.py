"""A real kernel without a page: it runs cells and returns what they show."""

import os
from contextlib import contextmanager
from pathlib import Path

from jupyter_client.manager import start_new_kernel

import bfcviz

LIMIT_S = 150


class Shown:
    """The output of one cell.

    Attributes:
        text: what it printed.
        html: what it displayed as HTML, one after the other.
        widgets: how many widgets it displayed.
        figures: how many plotly figures it displayed.
        error: name and text of the exception, None where there was none.
        order: `html`, `figure`, `widget`, `error` as they came.
    """

    def __init__(self):
        self.text, self.html, self.widgets, self.figures, self.error, self.order = "", [], 0, 0, None, []

    def take(self, message):
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            self.text += content["text"]
        elif kind == "error":
            self.error = f"{content['ename']}: {content['evalue']}"
            self.order.append("error")
        elif kind in ("display_data", "execute_result"):
            self._take_data(content["data"])

    def _take_data(self, data):
        if "application/vnd.jupyter.widget-view+json" in data:
            self.widgets += 1
            self.order.append("widget")
        elif "application/vnd.plotly.v1+json" in data:
            self.figures += 1
            self.order.append("figure")
        elif "text/html" in data:
            self.html.append(data["text/html"])
            self.order.append("html")
        else:
            self.text += data["text/plain"]


class Kernel:
    """A kernel and a client of it; `work` is its working folder."""

    def __init__(self, manager, client, work):
        self.manager, self.client, self.work = manager, client, work

    def run(self, code):
        """Runs a cell to its end."""
        shown = Shown()
        self.client.execute_interactive(code, output_hook=shown.take, timeout=LIMIT_S, allow_stdin=False)
        return shown

    def ask(self, expression):
        """The value of an expression, as text."""
        shown = self.run(f"print({expression})")
        assert shown.error is None, shown.error
        return shown.text.strip()

    def start(self, code):
        """Starts a cell and waits until it prints something."""
        self.client.execute(code, allow_stdin=False)
        while self.client.get_iopub_msg(timeout=LIMIT_S)["msg_type"] != "stream":
            pass

    def rest(self):
        """The output of the started cell from now to its end."""
        shown = Shown()
        while (message := self.client.get_iopub_msg(timeout=LIMIT_S))["msg_type"] != "status" or (
            message["content"]["execution_state"] != "idle"
        ):
            shown.take(message)
        return shown

    def restart(self):
        self.manager.restart_kernel(now=True)
        self.client.wait_for_ready(timeout=LIMIT_S)


@contextmanager
def kernel(home, work):
    """A kernel that works in the folder `work`, with IPython's own files under `home`."""
    env = {**os.environ, "IPYTHONDIR": str(home), "PYTHONPATH": str(Path(bfcviz.__file__).parents[1])}
    manager, client = start_new_kernel(startup_timeout=LIMIT_S, kernel_name="python3", env=env, cwd=str(work))
    try:
        yield Kernel(manager, client, work)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

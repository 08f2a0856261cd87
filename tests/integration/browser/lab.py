"""A real JupyterLab server and a real page of it, which finds no other machine by name.

Nothing here sleeps for a fixed time: every wait is for a condition, with a limit.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest
from integration.browser.board import Board

import bfcviz

START_LIMIT_S = 150
PAGE_LIMIT_MS = 120_000
POLL_MS = 50
"""Between two looks at the page. By default Playwright looks at each frame, so that the page draws 60 a second."""

WIDGET_LATE = "[anywidget] Failed to initialize model."
"""anywidget gives a widget 2 s to come up, and on a busy machine one may take longer.

It is shown all the same, but hears no more from Python: so a dashboard tells its figures nothing through anywidget.
"""

_MIXED_FRAMES = re.compile(r'Kernel message validation error: Unexpected token .*"(kernel|stream)\.')
"""ipykernel mixed the frames of two messages, so that a ZeroMQ topic stands where JupyterLab reads a header.

Seen twice in some thousand kernels, with a status message and with standard error, both written by ipykernel itself.
No message of a widget has such a topic.
"""

needs_subshells = pytest.mark.skipif(
    int(version("ipykernel").partition(".")[0]) < 7,
    reason="a kernel without subshells answers clicks after the cell",
)

RUNNING = """number => {
  const cell = jupyterapp.shell.currentWidget.content.widgets[number];
  return (cell.model.executionState ?? (cell.promptNode.textContent.includes('*') ? 'running' : 'idle')) === 'running';
}"""
"""Whether a cell runs; before JupyterLab 4.3 only its prompt says it."""

_SETTINGS = {
    "apputils-extension/notification.jupyterlab-settings": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin.jupyterlab-settings": {"autosave": False},
    # "none" keeps outputs that are scrolled out of sight in the page.
    "notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "none"},
}
_THEME = "apputils-extension/themes.jupyterlab-settings"


_START = "import sys; sys.modules['rfc3987_syntax'] = None; from jupyterlab.labapp import main; main()"
"""JupyterLab without jsonschema's optional parser of IRIs, which takes seconds to import."""


BROWSER_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--force-device-scale-factor=0.5",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
"""No name of another machine is known: a page reaches nothing outside, and its requests still pass the cache."""


def find_browser():
    """The Chromium or Chrome of this machine; None if there is none."""
    named = os.environ.get("BROWSER_PATH")
    candidates = [named] if named else ["chromium", "chromium-browser", "google-chrome", "chrome"]
    return next((found for name in candidates if (found := shutil.which(name))), None)


class Server:
    """Where the server listens, and the folder it serves."""

    def __init__(self, url, token, folder):
        self.url, self.token, self.folder = url, token, folder


@contextmanager
def serve(folder, home, *, dark=False) -> Iterator[Server]:
    """JupyterLab on `folder`, with settings of its own under `home`, until the block ends."""
    port, token = _free_port(), secrets.token_hex(16)
    _write_settings(home, dark=dark)
    options = [
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
    ]
    options += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    options += ["--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"]
    log = (home / "server.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-c", _START, *options],
        env=_environment(home),
        stdout=log,
        stderr=log,
        cwd=folder,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_up(url, token, process, home)
        yield Server(url, token, Path(folder))
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:  # it waits for a kernel that does not end
            process.kill()
            process.wait()
        log.close()


def _environment(home):
    places = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }
    package = {
        "PYTHONPATH": str(Path(bfcviz.__file__).parents[1])
    }  # kernels take the package these tests took
    return {**os.environ, **package, **{name: str(home / place) for name, place in places.items()}}


def _write_settings(home, *, dark):
    settings = dict(_SETTINGS)
    settings[_THEME] = {"theme": "JupyterLab Dark" if dark else "JupyterLab Light"}
    for name, values in settings.items():
        path = home / "settings" / "@jupyterlab" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    page = home / "config" / "labconfig" / "page_config.json"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(json.dumps({"buildCheck": False, "buildAvailable": False}))


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_up(url, token, process, home):
    address = f"{url}/api/status"
    request = urllib.request.Request(address, headers={"Authorization": f"token {token}"})  # noqa: S310  ours
    until = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(request, timeout=2):  # noqa: S310
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)  # between two questions, not in place of one
    raise RuntimeError("JupyterLab did not come up:\n" + (home / "server.log").read_text()[-3000:])


def watched_page(browser, *allowed):
    """A new page; the addresses that it asked for and that begin with none of `allowed`; the errors in it."""
    page, outside, errors = browser.new_page(), [], []
    page.wait_for_function = partial(page.wait_for_function, polling=POLL_MS)

    def note_outside(request):
        if not request.url.startswith((*allowed, "data:", "blob:")):
            outside.append(request.url)

    page.on("request", note_outside)
    page.on("pageerror", lambda error: errors.append(str(error)))
    return page, outside, errors


class Lab:
    """One page of the lab: opens notebooks one after the other, runs their cells, and records every error."""

    def __init__(self, browser, server):
        self.browser, self.server = browser, server
        self._begin_page()

    def _begin_page(self):
        self.page, self.outside, self.errors = watched_page(self.browser, self.server.url)

    def open(self, notebook, *, size=(1500, 1600)):
        """Opens a notebook and waits until its kernel is idle; loads the page again where that takes too long.

        JupyterLab may miss the first words of a kernel that starts on a busy machine, and then waits for ever.
        """
        from playwright.sync_api import TimeoutError as TookTooLong  # noqa: PLC0415  slow to import

        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.set_default_timeout(PAGE_LIMIT_MS)
        address = f"{self.server.url}/lab/tree/{notebook}?token={self.server.token}&reset"
        is_open = self.page.evaluate(_OPEN, notebook)
        for _ in range(3):
            if not is_open:
                self.page.goto(address)
            try:
                self.page.wait_for_function(_READY, arg=notebook, timeout=PAGE_LIMIT_MS / 2)
            except TookTooLong:
                is_open = False
                continue
            return
        pytest.fail(f"{notebook} did not come up: {self.page.evaluate(_STATE)}")

    def run_all_and_draw(self, dashboards, *names):
        """Run every cell until this number of dashboards is drawn, and those of these names show their steps.

        A fixture that waits here, not each test for itself, costs one failure and is tried again with a new page.
        """
        self.run_all()
        self.page.wait_for_function(_DRAWN, arg=dashboards)
        for number, name in enumerate(names):
            Board(self, name, number).wait_until_drawn()

    def run_all(self):
        """Run every cell to its end; fail on the first error in the outputs."""
        self.page.evaluate(_RUN_ALL, PAGE_LIMIT_MS)
        self.wait_until_idle()

    def start_cell(self, number):
        """Start one cell, and do not wait for its end."""
        self.page.evaluate(_START_CELL, number)

    def wait_until_idle(self):
        """Wait until no cell runs; fail on the first error in the outputs."""
        self.page.wait_for_function(_ALL_RUN)
        found = self.page.evaluate(_CELL_ERRORS)
        assert not found, "\n".join(found)

    def printed_errors(self):
        """What the cells wrote to stderr."""
        return self.page.evaluate(_STDERR)

    def restart(self):
        """Restart the kernel."""
        self.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
        self.page.wait_for_function(_READY, arg=None)

    def change_theme(self, *, dark):
        """As the settings menu does."""
        name = "JupyterLab Dark" if dark else "JupyterLab Light"
        self.page.evaluate(
            "name => jupyterapp.commands.execute('apputils:change-theme', {theme: name})", name
        )

    def python(self, code):
        """The value of the expression `code` in the notebook's kernel, sent as JSON."""
        text = self.page.evaluate(
            _ASK_PYTHON, [f"import json as _json; print(_json.dumps({code}))", PAGE_LIMIT_MS]
        )
        return json.loads(text)

    @contextmanager
    def opened(self, notebook, **options):
        """Opens a notebook until the block ends; fails if the page asked for anything outside, or had errors."""
        self.outside.clear()
        self.errors.clear()
        try:
            self.open(notebook, **options)
            yield self
            self.page.evaluate(_CLOSE_NOTEBOOK)
        except BaseException:
            damaged = self.page  # it may show anything
            self._begin_page()
            damaged.close()
            raise
        errors = [error for error in self.errors if error != WIDGET_LATE and not _MIXED_FRAMES.match(error)]
        assert not self.outside, f"the page asked for {self.outside}"
        assert not errors, f"errors in the page: {errors}"


_OPEN = """async path => {
  if (!window.jupyterapp) return false;
  await jupyterapp.commands.execute('docmanager:open', {path});
  return true;
}"""

_READY = """path => {
  const app = window.jupyterapp, widget = app && app.shell.currentWidget;
  const named = widget && widget.context && (path === null || widget.context.path === path);
  const session = named && widget.context.isReady && widget.sessionContext;
  const kernel = session && session.isReady && session.session && session.session.kernel;
  return !!kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle';
}"""

_STATE = """() => {
  const widget = window.jupyterapp && jupyterapp.shell.currentWidget, session = widget && widget.sessionContext;
  const kernel = session && session.session && session.session.kernel;
  return JSON.stringify({
    app: !!window.jupyterapp, document: widget && widget.title.label, session: session && session.isReady,
    connection: kernel && kernel.connectionStatus, kernel: kernel && kernel.status,
    dialog: document.querySelector('.jp-Dialog')?.innerText,
  });
}"""

_CLOSE_NOTEBOOK = """async () => {
  const panel = window.jupyterapp?.shell.currentWidget;
  await panel?.sessionContext?.shutdown();
  panel?.dispose();
}"""

_START_CELL = """number => {
  const panel = jupyterapp.shell.currentWidget;
  panel.content.activeCellIndex = number;
  jupyterapp.commands.execute('notebook:run-cell');
}"""

_RUN_ALL = """limit => Promise.race([
  jupyterapp.commands.execute('notebook:run-all-cells'),
  new Promise((_, fail) => setTimeout(() => fail(new Error('the cells did not come to an end')), limit)),
])"""

_ALL_RUN = """() => {
  const widget = jupyterapp.shell.currentWidget;
  const cells = widget.content.widgets.filter(cell => cell.model.type === 'code');
  const sources = cells.filter(cell => cell.model.sharedModel.source.trim() !== '');
  const failed = sources.some(cell => cell.model.outputs && [...Array(cell.model.outputs.length).keys()]
    .some(i => cell.model.outputs.get(i).type === 'error'));
  const done = sources.every(cell => cell.model.executionCount !== null);
  return failed || (done && widget.sessionContext.session.kernel.status === 'idle');
}"""

_DRAWN = """number => [...document.querySelectorAll('.bfcviz-dashboard')].filter(
  one => one.querySelectorAll('.js-plotly-plot .nsewdrag').length >= 3).length === number"""

_CELL_ERRORS = """() => {
  const found = [];
  for (const cell of jupyterapp.shell.currentWidget.content.widgets) {
    if (cell.model.type !== 'code') continue;
    for (let i = 0; i < cell.model.outputs.length; i++) {
      const output = cell.model.outputs.get(i).toJSON();
      if (output.output_type === 'error') found.push(output.traceback.join('\\n'));
    }
  }
  return found;
}"""

_STDERR = """() => jupyterapp.shell.currentWidget.content.widgets.flatMap(
  cell => cell.model.type === 'code' ? cell.model.outputs.toJSON() : []).filter(
  output => output.output_type === 'stream' && output.name === 'stderr').map(output => [output.text].flat().join(''))"""

_ASK_PYTHON = """async ([code, limit]) => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute({code, store_history: false, silent: false});
  let text = '', error = '';
  future.onIOPub = message => {
    if (message.header.msg_type === 'stream' && message.content.name === 'stdout') text += message.content.text;
    if (message.header.msg_type === 'error') error = message.content.traceback.join('\\n');
  };
  const late = new Promise((_, fail) => setTimeout(() => fail(new Error(`no answer to ${code}`)), limit));
  await Promise.race([future.done, late]);
  if (error) throw new Error(error);
  return text;
}"""

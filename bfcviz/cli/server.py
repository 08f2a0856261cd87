"""A server for one page: Voila on a notebook of one cell, of which it shows only the output.

The page can send messages to its widgets; it cannot run code. It loads nothing from other servers.
"""

import asyncio
import gzip
import ipaddress
import json
import logging
import os
import re
import signal
import sys
import tempfile
import webbrowser
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial, wraps
from hashlib import sha256
from html import escape
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner
from tornado.web import HTTPError, RequestHandler, StaticFileHandler
from traitlets.config import Config

from bfcviz.cli.page_scripts import ENTRY, first_scripts
from bfcviz.cli.standby import Standby
from bfcviz.errors import BfcvizError
from bfcviz.terminal import say

_GRAMMAR: Final = "rfc3987_syntax"
# jsonschema can check internationalised addresses with this module, which builds a grammar at import: a quarter of all
# that the server imports. Nothing here checks one, and jsonschema works without it.
sys.modules.setdefault(_GRAMMAR, None)  # type: ignore[arg-type]  # Python then refuses to import it
from jupyter_server.auth.decorator import allow_unauthenticated  # noqa: E402
from jupyter_server.auth.logout import LogoutHandler  # noqa: E402
from voila.app import Voila  # noqa: E402
from voila.paths import collect_static_paths  # noqa: E402
from voila.tornado.handler import TornadoVoilaHandler  # noqa: E402
from voila.utils import get_page_config, get_voila_labextensions_path  # noqa: E402

FIRST_PORT: Final = 8866
"""Voila's default; other ports are tried if it is taken and no port was given."""

_IDLE_S: Final = 600
"""A kernel without a page ends after this time; a closed page ends its kernel at once, a lost page cannot."""

_MAX_SOCKET_FOLDER: Final = 36
"""Longest path of a folder, in characters, whose socket names are valid on every system (at most 104)."""

# Voila's template without what it loads from other servers: icons (its script contains them), MathJax, Mermaid; without
# its spinner, in whose place is the opening of the page; and without its script and configuration, which the opening
# has. Only the number of the kernel is missing there: what the configuration lacks is looked for in the `body`.
_TEMPLATE: Final = """\
{%- extends 'voila/templates/lab/index.html.j2' -%}
{%- block notebook_css -%}
{{ resources.include_js("static/voila-style.js") }}
{{ super.super() }}
{%- endblock notebook_css -%}
{%- block html_head_js_mermaidjs -%}{%- endblock html_head_js_mermaidjs -%}
{%- block any_cell scoped -%}
<script>document.body.dataset.kernelId = {{ kernel_id | tojson }};</script>
{{ super() }}
{%- endblock any_cell -%}
{%- block body_footer -%}
</div></div>
<script>window.voila_finish();</script>
{{ super.super() }}
{%- endblock body_footer -%}
"""

_NO_SPINNER: Final = "{% macro css() %}{% endmacro %}{% macro html() %}{% endmacro %}"

# The first bytes of the page: what covers it until the first figure, or a text, is there. Voila's own document follows
# in the same answer once the kernel is there: HTML adds the attributes of a second `body` to the first, and ignores a
# second doctype, `html` and `head` (13.2.6.4.7 of its standard), so the browser shows these bytes as they come.
_OPENING: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>bfcviz</title><style>
#bfcviz-first-screen{position:fixed;inset:0;z-index:100;overflow:auto;padding:16px 24px;
  font:13px/1.4 system-ui,sans-serif}
[data-jp-theme-light="true"] #bfcviz-first-screen{background:#fff;color:#222}
[data-jp-theme-light="false"] #bfcviz-first-screen{background:#111;color:#ddd}
#bfcviz-first-screen>p{margin:12px 0 0 19px;opacity:.75}
</style></head><body data-jp-theme-light="LIGHT">
<div id="bfcviz-first-screen">SCREEN<p role="status">The interactive view is loading ...</p></div>
<script>
new MutationObserver((_, observer) => {
  if (!document.querySelector("LIVE, .jp-RenderedText")) return;
  observer.disconnect();
  document.getElementById("bfcviz-first-screen").remove();
}).observe(document.documentElement, { childList: true, subtree: true });
</script>
"""

_SCRIPTS: Final = """\
<script id="jupyter-config-data" type="application/json">CONFIG</script>
<script>
globalThis.PlotlyConfig = { MathJaxConfig: "local" };
globalThis.bfcvizPlotly = new Map(); // see bfcviz/dashboard/figure_widget.js
{
  let begin = () => {
    begin = () => {};
    const [plotly] = ["PLOTLY.js", "FIRST.js"].map((src) =>
      document.head.appendChild(Object.assign(document.createElement("script"), { src })));
    plotly.addEventListener("load", () => bfcvizPlotly.set("DIGEST", Plotly));
  };
  requestAnimationFrame(() => setTimeout(() => begin())); // the first screen is painted before
  document.addEventListener("DOMContentLoaded", () => begin()); // a hidden page paints nothing
}
</script>
"""

_EXTENSIONS: Final = ("@jupyter-widgets/jupyterlab-manager", "anywidget")
"""The extensions of JupyterLab that the page needs beside Voila's own."""


@dataclass(frozen=True)
class _PageScripts:
    """What this server adds to Voila's scripts: plotly's, and Voila's first ones in one file.

    Attributes:
        plotly, first: digests, by which a page finds them.
        packed: digest -> the script, compressed.
    """

    plotly: str
    first: str
    packed: Mapping[str, bytes]


@cache
def page_scripts() -> "Future[_PageScripts]":
    """The scripts; the first call begins to compress them, in a thread."""
    return ThreadPoolExecutor(1).submit(_read_page_scripts)


def _read_page_scripts() -> _PageScripts:
    folders = map(Path, collect_static_paths(["voila", "nbconvert"], "lab"))
    static = next((path for path in folders if (path / ENTRY).is_file()), None)
    if static is None:
        raise BfcvizError(f"Voila's script {ENTRY} is not installed: install bfcviz[view] again")
    roots = map(Path, get_voila_labextensions_path([]))
    extensions = [root / name / "static" for root, name in product(roots, _EXTENSIONS)]
    plotly = (Path(__file__).parents[1] / "figures" / "plotly.min.js").read_bytes()
    first = first_scripts(static, extensions)
    scripts = {sha256(each).hexdigest(): each for each in (plotly, first)}
    packed = {digest: gzip.compress(script, _LEVEL) for digest, script in scripts.items()}
    digest_of_plotly, digest_of_first = packed
    return _PageScripts(digest_of_plotly, digest_of_first, packed)


_LEVEL: Final = 4
"""Of compression: 6 makes the scripts 4 % smaller and takes twice as long."""


def opening(first_screen: str, theme: str) -> str:
    """The first bytes of the page.

    Args:
        first_screen: what it shows until its figures are there, as HTML.
        theme: `light` or `dark`.
    """
    light = "true" if theme == "light" else "false"
    live = ".js-plotly-plot .main-svg" if first_screen else ".jupyter-widgets"
    return _OPENING.replace("LIGHT", light, 1).replace("LIVE", live, 1).replace("SCREEN", first_screen, 1)


def _kernel_failure_script(error: Exception) -> str:
    """What follows the first bytes of the page where its kernel does not start."""
    why = f"The interactive view did not start ({type(error).__name__}: {error}). The terminal says more."
    script = """<script>
const line = document.querySelector("#bfcviz-first-screen [role=status]");
line.setAttribute("role", "alert");
line.textContent = WHY;
</script>"""
    return script.replace("WHY", json.dumps(why).replace("<", "\\u003c"), 1)


class PageServer(Voila):  # type: ignore[misc]
    """Voila that prints its address once it listens, and reads no settings of the user.

    Args:
        home: the server's own folder; in `templates`, its `index.html.j2` takes precedence over Voila's.
        config: the configuration of Voila and its parts.
        first_bytes: those of the page, sent before its kernel starts.
        browser_wanted: whether to open a browser on the page.
    """

    def __init__(self, home: Path, config: Config, first_bytes: str, *, browser_wanted: bool) -> None:
        super().__init__(config=config)
        self._home, self._first_bytes, self._browser_wanted = home, first_bytes, browser_wanted

    def setup_template_dirs(self) -> None:
        """Find the templates, this server's first."""
        super().setup_template_dirs()
        self.template_paths.insert(0, str(self._home / "templates"))

    def load_config_file(self, *_args: object, **_kwargs: object) -> None:
        """Do nothing: a voila.py in the current folder must not run."""

    def launch_browser(self) -> None:
        """Print the address of the page; called once the server listens."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        address = f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")
        _stop_at_signals(asyncio.get_event_loop())
        say(f"Showing {address}", "Press Ctrl-C to stop.")
        if not self._browser_wanted:
            return
        if self.token:
            say(
                f"A browser from snap or flatpak cannot read {self._home}: if it shows no page, copy the address to it."
            )
        webbrowser.open(_redirect_page(self._home, address) if self.token else address)

    def init_settings(self) -> dict[str, Any]:
        """Voila's settings; what the page reads is compressed, also what its kernel sends."""
        packed = {"compress_response": True, "websocket_compression_options": {"compression_level": 1}}
        return {**super().init_settings(), **packed}

    def init_handlers(self) -> list[Any]:
        """Voila's routes, repaired where they would fail, with this page and with its scripts below their digest."""
        static = f"{self.base_url}voila/static/"
        digest = _scripts_digest(self.static_paths)
        self.voila_configuration.page_config_hook = lambda config, **_: {
            **config,
            "fullStaticUrl": f"{static}{digest}",
        }
        page = {"first_bytes": self._first_bytes}
        found: list[Any] = [(f"{self.base_url}{_OWN}/([0-9a-f]+).js", _OwnScript)]
        for pattern, handler, *rest in super().init_handlers():
            if handler is TornadoVoilaHandler:
                found.append((pattern, _Page, {**rest[0], **page}))
                continue
            if pattern == f"{static}(.*)":
                found.append((f"{static}{digest}/(.*)", _repaired_route_handler(handler), *rest))
            found.append((pattern, _repaired_route_handler(handler), *rest))
        return found

    def _handle_signal_stop(self, *_: object) -> None:
        """Stop at SIGTERM as at Ctrl-C; Voila's own handler needs a running loop."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    def exit(self, exit_status: int | str | None = 0) -> None:
        """Raise instead of ending the process; Voila calls this when no port is free."""
        del exit_status
        raise BfcvizError(
            f"cannot listen on port {self.port} of {self.ip}: it is taken; choose another port with --port"
        )


def _redirect_page(folder: Path, address: str) -> str:
    """The address of a page in the folder that leads to the address, and that no other user can read.

    Every user can read the command line of the browser: it must not have the token.
    """
    page = folder / "open.html"
    page.touch(0o600)
    target = escape(address)
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><title>bfcviz</title>'
        f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">bfcviz</a>\n',
        encoding="utf-8",
    )
    return page.as_uri()


class _Page(TornadoVoilaHandler):  # type: ignore[misc]
    """The page: its first bytes, and Voila's document once the kernel is there."""

    def initialize(self, first_bytes: str, **options: Any) -> None:
        super().initialize(**options)
        self._first_bytes = first_bytes

    async def get_generator(self, path: str | None = None) -> AsyncIterator[str]:
        if not path:  # any other is redirected
            self.set_header("Content-Type", "text/html; charset=utf-8")
            self.set_header("Cache-Control", "no-store")
            yield self._first_bytes
        try:
            if not path:
                yield self._scripts()
            async for piece in super().get_generator(path):
                yield piece
        except Exception as error:  # of any kind: what follows must say it
            if path:
                raise
            self.log.exception("the kernel of the page did not start")
            yield _kernel_failure_script(error)

    def _scripts(self) -> str:
        """The scripts of the page, as HTML; they need the configuration of the page."""
        configuration = self.voila_configuration
        config = get_page_config(self.base_url, self.settings, self.log, configuration)
        config = configuration.page_config_hook(config)
        own, found = f"{self.base_url}{_OWN}/", page_scripts().result()
        scripts = _SCRIPTS.replace("PLOTLY", own + found.plotly, 1).replace("FIRST", own + found.first, 1)
        scripts = scripts.replace("DIGEST", found.plotly, 1)
        scripts = scripts.replace("CONFIG", json.dumps(config).replace("<", "\\u003c"), 1)
        entries = [f"{each['name']}/{each['load']}" for each in config["federated_extensions"]]
        hints = [
            f'<link rel="preload" as="script" href="{escape(config["fullLabextensionsUrl"])}/{escape(each)}">\n'
            for each in entries
        ]
        return "".join([*hints, scripts])


_OWN: Final = "bfcviz"
"""The folder of this server's own scripts."""


class _OwnScript(RequestHandler):
    """A script of `page_scripts`, by its digest. It is no secret."""

    @allow_unauthenticated
    def get(self, digest: str) -> None:
        packed = page_scripts().result().packed.get(digest)
        if packed is None:
            raise HTTPError(404)
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Content-Encoding", "gzip")
        self.set_header("Cache-Control", _FOR_EVER)
        self.finish(packed)


class _Logout(LogoutHandler):
    """Delete the cookie and show the login form; Voila lacks the log-out page of Jupyter's server."""

    @allow_unauthenticated
    def get(self) -> None:
        self.identity_provider.clear_login_cookie(self)
        self.redirect(self.settings["login_url"])


def _repaired_route_handler(handler: type[Any]) -> type[Any]:
    """The handler of a route, or its replacement."""
    if issubclass(handler, LogoutHandler):
        return _Logout
    if not issubclass(handler, StaticFileHandler):
        return handler
    get = handler.get

    @wraps(get)  # keeps the mark that says whether a token is needed
    async def get_or_404(self: Any, *arguments: Any, **options: Any) -> None:
        try:
            found = get(self, *arguments, **options)
            if found is not None:
                await found
        except (AssertionError, ValueError, OSError) as error:
            raise HTTPError(404) from error

    def set_headers(self: Any) -> None:
        handler.set_headers(self)
        if _DIGEST.search(self.request.path):
            self.set_header("Cache-Control", _FOR_EVER)

    # Tornado's plain error page: Jupyter's loads images from a folder that Voila does not configure.
    methods = {"get": get_or_404, "set_headers": set_headers, "write_error": RequestHandler.write_error}
    return type(handler.__name__, (handler,), methods)


_FOR_EVER: Final = "public, max-age=31536000, immutable"

_DIGEST: Final = re.compile(r"[./][0-9a-f]{8,}[./]")
"""In the paths of files that never change, since a digest of their content is part of their name."""


def _scripts_digest(folders: Iterable[str]) -> str:
    """The digest of all scripts in the folders, in hexadecimal."""
    found = sha256()
    for script in sorted(path for folder in folders for path in Path(folder).glob("*.js")):
        found.update(f"{script.name} {script.stat().st_size}\0".encode())
        found.update(script.read_bytes())
    return found.hexdigest()


def _stop_at_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop end at Ctrl-C, SIGTERM and SIGHUP; an exception raised in one of its callbacks may be lost."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]

    def stop() -> None:
        for number in handled:  # a second signal must not interrupt the clean-up
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        loop.stop()

    for number in handled:
        loop.add_signal_handler(number, stop)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a closed terminal, stop the server as Ctrl-C does; `nohup` is respected."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    handled = [number for number in numbers[1:] if before[number] is not signal.SIG_IGN]

    def stop(*_: object) -> None:
        for number in handled:  # a second signal must not interrupt the clean-up
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Address:
    """The address of a page and its token.

    Attributes:
        ip: the address to listen on.
        port: the port; None: any free port.
        token: the token that the page's address must contain; "": none.
    """

    ip: str
    port: int | None
    token: str


def is_loopback(ip: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(ip).is_loopback
    except ValueError:
        return ip == "localhost"


def serve(code: str, address: Address, standby: Standby, *, theme: str, browser: bool) -> None:
    """Serve the page that `code` shows until Ctrl-C, SIGTERM or SIGHUP; leaves no process and no file.

    Args:
        code: the Python code of the one cell.
        address: the address to serve at.
        standby: becomes the first kernel.
        theme: `light` or `dark`.
        browser: whether to open a browser on the page.

    Raises:
        BfcvizError: the server cannot listen at the address.
    """
    with _stopped_by_signals(), tempfile.TemporaryDirectory(prefix="bfcviz-view-") as folder:
        home = Path(folder)
        notebook, templates = home / "bfcviz.ipynb", home / "templates"
        notebook.write_text(json.dumps(notebook_of(code)), encoding="utf-8")
        templates.mkdir()
        (templates / "index.html.j2").write_text(_TEMPLATE, encoding="utf-8")
        (templates / "spinner.macro.html.j2").write_text(_NO_SPINNER, encoding="utf-8")
        config = settings(home, address, theme)
        _use_server_provisioner(standby)
        server = PageServer(home, config, opening(standby.first_screen, theme), browser_wanted=browser)
        # Jupyter's server and Tornado use different units for pings, and Tornado warns about it.
        logging.getLogger("tornado.general").setLevel(logging.ERROR)
        asyncio.set_event_loop(asyncio.new_event_loop())
        try:
            server.initialize([str(notebook)])
            server.start()
        except OSError as error:
            reason = error.strerror or str(error)
            text = f"cannot listen on {address.ip}: {reason}; choose another address with --ip"
            raise BfcvizError(text) from error


def settings(home: Path, address: Address, theme: str) -> Config:
    """The configuration of Voila and its parts."""
    # A local server refuses requests for other host names.
    local = {"allow_remote_access": False, "local_hostnames": ["localhost"]}
    # Sockets in the folder instead of ports, if their names are short enough.
    sockets = os.name == "posix" and len(str(home)) < _MAX_SOCKET_FOLDER
    return Config(
        {
            "Voila": {
                "ip": address.ip,
                "port": address.port or FIRST_PORT,
                "port_retries": 0 if address.port else 50,
                "token": address.token,
                "open_browser": True,  # calls launch_browser, which checks browser_wanted
                "connection_dir_root": str(home),
                "log_level": "ERROR",
                "tornado_settings": local if is_loopback(address.ip) else {},
            },
            "VoilaConfiguration": {
                "theme": theme,
                "strip_sources": True,
                "allow_template_override": "NO",
                "allow_theme_override": "NO",
                "file_allowlist": [],
                # Those that the page shows, of all that are installed: plotly's alone has 5 MB of script.
                "extension_allowlist": ["@voila-dashboards/widgets-manager8", *_EXTENSIONS],
            },
            # The kernel of this Python, even if others are installed under the same name.
            "KernelSpecManager": {"kernel_dirs": []},
            "KernelManager": {"transport": "ipc" if sockets else "tcp"},
            "MappingKernelManager": {"cull_idle_timeout": _IDLE_S, "cull_interval": _IDLE_S // 10},
        }
    )


def notebook_of(code: str) -> dict[str, object]:
    """A notebook of one cell, as JSON values."""
    cell = {"cell_type": "code", "id": "page", "source": code, "metadata": {}, "outputs": []}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": [{**cell, "execution_count": None}],
        "metadata": {"kernelspec": kernel, "title": "bfcviz"},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


# ------------------------------------------------------------------------------
# Lets the standby become the first kernel of a server.

_NAME = "local-provisioner"  # the one of every kernel that names no other


class ServerProvisioner(LocalProvisioner):  # type: ignore[misc]
    """Starts the kernels of the page's server: by the standby, if it is there, else as Jupyter does.

    Args:
        standby: it.
        options: those of the base class.
    """

    def __init__(self, standby: Standby, **options: Any) -> None:
        super().__init__(**options)
        self._standby = standby

    async def launch_kernel(self, cmd: list[str], **options: Any) -> KernelConnectionInfo:
        """Start the kernel of the command line `python -m ipykernel_launcher ...`."""
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        process = self._standby.become_kernel(arguments, options.get("env", os.environ), options.get("cwd"))
        if process is None:
            return await super().launch_kernel(cmd, **options)
        self.process, self.pid, self.pgid = process, process.pid, os.getpgid(process.pid)
        return self.connection_info


def _use_server_provisioner(standby: Standby) -> None:
    """Let the next kernel of this server be the standby."""
    value = f"{ServerProvisioner.__module__}:{ServerProvisioner.__name__}"
    # What the factory holds of each provisioner: an entry point.
    entry: Any = SimpleNamespace(name=_NAME, value=value, load=lambda: partial(ServerProvisioner, standby))
    KernelProvisionerFactory.instance().provisioners[_NAME] = entry

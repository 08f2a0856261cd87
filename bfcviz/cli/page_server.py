"""A server for one page: Voila's scripts and kernels, without its notebook.

The kernel makes the page's widgets when it starts, so nothing waits for a cell to be run. The page can send messages to
its widgets; it cannot run code. It loads nothing from other servers.

::

    server    | listen, start the kernel | send the page | wait for the kernel, answer |
    kernel         | import, make the widgets ........................... | send all widgets |
    page                                 | first screen | run scripts, ask for the kernel | draw the figures |
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
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial, wraps
from hashlib import sha256
from html import escape
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner
from jupyter_core.utils import ensure_async
from tornado.web import HTTPError, RequestHandler, StaticFileHandler, authenticated
from traitlets.config import Config

from bfcviz.cli.standby import KernelRequest, Standby
from bfcviz.errors import BfcvizError
from bfcviz.extras import imported_on_first_use
from bfcviz.terminal import say

_FORMATS: Final = (
    "fqdn",
    "isoduration",
    "rfc3339_validator",
    "rfc3986_validator",
    "rfc3987",
    "rfc3987_syntax",
    "uri_template",
    "webcolors",
)
# jsonschema can check formats of texts with these modules; that for internationalised addresses builds a grammar at
# import: a quarter of all that the server imports. Nothing here checks one, and jsonschema works without them.
for _name in _FORMATS:
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]  # Python then refuses to import it
with imported_on_first_use("requests"):  # of JupyterLab's lists of extensions, which no page here asks for
    from jupyter_server.auth.decorator import allow_unauthenticated
    from jupyter_server.auth.logout import LogoutHandler
    from jupyter_server.base.handlers import JupyterHandler
    from jupyter_server.services.kernels.handlers import KernelHandler
    from voila.app import Voila
    from voila.paths import collect_static_paths
    from voila.tornado.handler import TornadoVoilaHandler
    from voila.utils import get_page_config, get_voila_labextensions_path

FIRST_PORT: Final = 8866  # Voila's default; other ports are tried if it is taken and no port was given

_IDLE_S: Final = 600
"""A kernel without a page ends after this time; a closed page ends its kernel at once, a lost page cannot."""

_MAX_SOCKET_FOLDER: Final = 36
"""Longest path of a folder, in characters, whose socket names are valid on every system (at most 104)."""

# The first bytes of the page: what covers it until the first figure is there. The browser shows them as they come.
_OPENING: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>bfcviz</title><link rel="icon" href="data:;base64,="><style>
#bfcviz-first-screen{position:fixed;inset:0;z-index:100;overflow:auto;padding:16px 24px;
  font:13px/1.4 system-ui,sans-serif;
  --jp-ui-font-family:initial;--jp-ui-font-color1:initial;--jp-ui-font-color2:initial} /* as before they are loaded */
[data-jp-theme-light="true"] #bfcviz-first-screen{background:#fff;color:#222}
[data-jp-theme-light="false"] #bfcviz-first-screen{background:#111;color:#ddd}
body div#rendered_cells{background:var(--jp-layout-color0)} /* as the figure: Voila's is lighter */
#bfcviz-first-screen>p{margin:12px 0 0 19px;opacity:.75}
</style></head>
<body class="jp-Notebook theme-THEME" data-base-url="/voila/" data-voila="voila" data-jp-theme-light="LIGHT"
  data-jp-theme-name="JupyterLab NAME">
<div id="bfcviz-first-screen">SCREEN<p role="status">The interactive view is loading ...</p></div>
<script>
new MutationObserver((_, observer) => {
  if (!document.querySelector("LIVE")) return;
  observer.disconnect();
  document.getElementById("bfcviz-first-screen").remove();
}).observe(document.documentElement, { childList: true, subtree: true });
function bfcviz_failed(why) {
  const line = document.querySelector("#bfcviz-first-screen [role=status]");
  line?.setAttribute("role", "alert");
  line?.replaceChildren(`The interactive view did not start (${why}).`);
}
setTimeout(() => { // a page waits for its figures for ever
  const line = document.querySelector("#bfcviz-first-screen [role=status]");
  const again = Object.assign(document.createElement("a"), { href: "", textContent: "Load this page again" });
  line?.replaceChildren("The interactive view takes longer than usual. ", again);
}, LATE);
addEventListener("DOMContentLoaded", () => globalThis.bfcvizPlotly || bfcviz_failed("the server ended")); // no rest
</script>
"""

_LATE_MS: Final = 30_000  # until the page offers to load again; on a busy machine figures take as long

_STILL_MS: Final = 15_000  # so long a kernel may be silent while its page has no figure

# The rest of the page. Voila's script reads the configuration, and shows the widget that the last script names.
_REST: Final = """\
<script id="jupyter-config-data" type="application/json">CONFIG</script>
<script>
fetch("WIDTH" + Math.max(innerWidth - BESIDE, 0)); // the kernel then makes its figure for this width at once
globalThis.PlotlyConfig = { MathJaxConfig: "local" };
globalThis.bfcvizPlotly = new Map(); // see bfcviz/dashboard/figure_widget.js
globalThis.voila_finish = () => {};
{
  const listen = addEventListener; // Voila begins when the page has loaded, which may be long ago
  globalThis.addEventListener = (type, react, ...options) =>
    type === "load" && document.readyState === "complete" ? setTimeout(react) : listen(type, react, ...options);
  const add = (name, attributes) => document.head.appendChild(Object.assign(document.createElement(name), attributes));
  const begin = () => {
    for (const href of STYLES) add("link", { rel: "stylesheet", href });
    const failed = ({ target }) => bfcviz_failed(`${target.src} did not load`);
    const [plotly] = SCRIPTS.map((src) => add("script", { src, onerror: failed })).slice(-1);
    const load = (done, fail) => {
      plotly.onload = () => done(Plotly);
      plotly.addEventListener("error", () => fail("?"));
    };
    bfcvizPlotly.set("DIGEST", new Promise(load));
  };
  if (document.hidden) begin(); // it paints nothing
  else requestAnimationFrame(() => setTimeout(begin)); // the first screen is painted before
}
addEventListener("load", async () => { // before, the browser would wait for the answer to end loading the page
  try {
    const answer = await fetch("KERNEL");
    if (!answer.ok) return bfcviz_failed((await answer.json()).message);
    await bfcvizPlotly.get("DIGEST");
    // A page and a kernel that miss a message wait for each other: a new kernel, once, is quicker than any time-out.
    // A page that was hidden, or still loads scripts, is not late.
    let hidings = 0;
    addEventListener("visibilitychange", () => (hidings += 1));
    const resources = () => performance.getEntriesByType("resource").filter((each) => each.initiatorType !== "fetch");
    const told = ({ last_activity }) => String([last_activity, hidings, resources().length]);
    let before = told(await answer.json());
    const [{ type }] = performance.getEntriesByType("navigation");
    while (type !== "reload" && document.getElementById("bfcviz-first-screen")) {
      await new Promise((go) => setTimeout(go, STILL));
      const again = await fetch("KERNEL");
      const kernel = await again.json();
      if (!again.ok) return bfcviz_failed(kernel.message);
      const now = told(kernel);
      if (now === before && kernel.execution_state !== "busy" && !document.hidden) location.reload();
      before = now;
    }
  } catch (error) {
    bfcviz_failed(error);
  }
});
</script>
<div id="rendered_cells"><div class="jp-Cell jp-CodeCell jp-Notebook-cell jp-mod-noInput">
<div class="jp-Cell-outputWrapper"><div class="jp-OutputArea jp-Cell-outputArea"><div class="jp-OutputArea-child">
<script type="application/vnd.voila.cell-output+json">OUTPUT</script>
</div></div></div></div></div>
</body></html>
"""

# In place of MathJax, which is 16 scripts and takes a `$` in names of the user for the begin of a formula. An address
# makes Voila use its plugin for MathJax 2, which adds a `?` to it.
_NO_MATHJAX: Final = (
    "data:text/javascript,"
    "globalThis.MathJax={Hub:{Config(){},Configured(){},Queue(){},Register:{StartupHook(){}}}}//"
)

_EXTENSIONS: Final = ("@jupyter-widgets/jupyterlab-manager", "anywidget")
"""The extensions of JupyterLab that the page needs beside Voila's own."""


@dataclass(frozen=True)
class _PageScripts:
    """What this server adds to Voila's scripts: plotly's, and Voila's first ones in one file."""

    # plotly, first: digests, by which a page finds them
    plotly: str
    first: str
    packed: Mapping[str, bytes]  # digest -> the script, compressed


@cache
def page_scripts() -> "Future[_PageScripts]":
    """The scripts of the page that the server sends; the first call begins to compress them, in a thread."""
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


_LEVEL: Final = 4  # of compression: 6 makes the scripts 4 % smaller and takes twice as long


def opening(first_screen: str, theme: str) -> str:
    """The first bytes of the page that the server sends.

    Args:
        first_screen: what it shows until its figures are there, as HTML.
        theme: `light` or `dark`.
    """
    words = {
        "THEME": theme,
        "LIGHT": "true" if theme == "light" else "false",
        "NAME": theme.capitalize(),
        "LIVE": ".js-plotly-plot .main-svg" if first_screen else ".jupyter-widgets",
        "LATE": str(_LATE_MS),
    }
    before, after = _OPENING.split("SCREEN")
    return _filled(before, words) + first_screen + _filled(after, words)


def _filled(text: str, words: Mapping[str, str]) -> str:
    """The text of the page with each of these words replaced where it stands alone."""
    return re.sub(r"\b[A-Z]+\b", lambda found: words.get(found[0], found[0]), text)


def _script_json(value: object) -> str:
    """JSON in the page that cannot end the script element around it."""
    return json.dumps(value).replace("<", "\\u003c")


class PageServer(Voila):  # type: ignore[misc]
    """Voila that prints its address once it listens, and reads no settings of the user.

    Args:
        home: the server's own folder.
        config: the configuration of Voila and its parts.
        first_bytes: those of the page, sent before its kernel is there.
        shown: kernel -> what shows its widgets.
        browser_wanted: whether to open a browser on the page.

    Attributes:
        first_bytes, shown: as given.
    """

    def __init__(
        self, home: Path, config: Config, first_bytes: str, shown: "_Shown", *, browser_wanted: bool
    ) -> None:
        super().__init__(config=config)
        self.first_bytes, self.shown = first_bytes, shown
        self._home, self._browser_wanted = home, browser_wanted
        self._first_kernel: asyncio.Task[str] | None = None
        self._with_page: set[str] = set()  # kernels that pages were sent for

    def load_config_file(self, *_args: object, **_kwargs: object) -> None:
        """Do nothing: a voila.py in the current folder must not run."""

    def launch_browser(self) -> None:
        """Print the address of the page, and start its kernel; called once the server listens."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        address = f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")
        loop = asyncio.get_event_loop()
        _stop_at_signals(loop)
        self._first_kernel = loop.create_task(self._start_kernel())
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
        own = f"{self.base_url}{_OWN}"
        found: list[Any] = [
            (f"{own}/([0-9a-f]+).js", _OwnScript),
            (rf"{own}/width/([0-9a-f-]+)/([0-9]{{1,5}})", _Width, {"server": self}),
        ]
        for pattern, handler, *rest in super().init_handlers():
            if handler is TornadoVoilaHandler:
                found.append((pattern, _Page, {"server": self}))
            elif handler is KernelHandler:
                found.append((pattern, _Kernel, {"server": self}))
            else:
                if pattern == f"{static}(.*)":
                    found.append((f"{self._static}/(.*)", _repaired_route_handler(handler), *rest))
                found.append((pattern, _repaired_route_handler(handler), *rest))
        return found

    @cached_property
    def _static(self) -> str:
        """Where the scripts are that a browser may keep for ever, on the page's server."""
        return f"{self.base_url}voila/static/{_scripts_digest(self.static_paths)}"

    async def _start_kernel(self) -> str:
        started: str = await ensure_async(self.kernel_manager.start_kernel(kernel_name="python3", path=""))
        return started

    async def _free_kernel(self) -> str | None:
        """The kernel that was started before a page asked for it; None: it has one, or ended, or did not start."""
        first = self._first_kernel
        if first is None:
            return None
        await asyncio.wait([first])
        if first.exception() is not None or first.result() in self._with_page:
            return None
        return first.result() if first.result() in self.kernel_manager else None

    def stop(self) -> None:
        """End all kernels; one that starts must have started, else it cannot be ended."""
        asyncio.get_event_loop().run_until_complete(self._free_kernel())
        super().stop()

    async def rest_of_page(self) -> str:
        """What follows the first bytes: it names the kernel, which may not be ready yet."""
        kernel = await self._free_kernel() or await self._start_kernel()
        self._with_page.add(kernel)
        scripts, theme = await asyncio.wrap_future(page_scripts()), self.voila_configuration.theme
        config = get_page_config(self.base_url, self.app.settings, self.log, self.voila_configuration)
        mathjax = {"fullMathjaxUrl": _NO_MATHJAX, "mathjaxConfig": ""}
        config |= {"kernelId": kernel, "jupyterLabTheme": theme, "fullStaticUrl": self._static, **mathjax}
        extensions = config["fullLabextensionsUrl"]
        entries = [f"{extensions}/{each['name']}/{each['load']}" for each in config["federated_extensions"]]
        own = [f"{self.base_url}{_OWN}/{each}.js" for each in (scripts.first, scripts.plotly)]
        view = {"model_id": kernel, "version_major": 2, "version_minor": 0}
        words = {
            "CONFIG": _script_json(config),
            "SCRIPTS": _script_json([f"{self._static}/voila-style.js", *own]),
            "STYLES": _script_json([f"{self._static}/{name}.css" for name in ("index", f"theme-{theme}")]),
            "DIGEST": scripts.plotly,
            "KERNEL": f"{self.base_url}api/kernels/{kernel}",
            "STILL": str(_STILL_MS),
            "WIDTH": f"{self.base_url}{_OWN}/width/{kernel}/",
            "BESIDE": str(_BESIDE),
            "OUTPUT": _script_json(
                {"data": {"application/vnd.jupyter.widget-view+json": view}, "metadata": {}}
            ),
        }
        hints = [f'<link rel="preload" as="script" href="{escape(each)}">\n' for each in entries]
        return "".join(hints) + _filled(_REST, words)

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
    """The address of a page in the server's folder that leads to the address, and that no other user can read.

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


class _Page(JupyterHandler):
    """The handler of the page: its first bytes, and the rest once there is a kernel."""

    write_error = RequestHandler.write_error

    def initialize(self, server: PageServer) -> None:
        self._server = server

    @authenticated
    async def get(self, path: str) -> None:
        if path:
            raise HTTPError(404)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        _ = self.xsrf_token  # sets the cookie that a page needs to end its kernel
        self.write(self._server.first_bytes)
        await self.flush()
        try:
            rest = await self._server.rest_of_page()
        except Exception as error:  # of any kind: the page must say it
            self.log.exception("the kernel of the page did not start")
            why = f"{type(error).__name__}: {error}; the terminal says more"
            rest = f"<script>bfcviz_failed({_script_json(why)});</script>"
        self.finish(rest)


class _Kernel(KernelHandler):
    """The handler of what the page asks first about its kernel: the answer comes once its widgets are there."""

    def initialize(self, server: PageServer) -> None:
        self._server = server

    @authenticated
    async def get(self, kernel_id: str) -> None:
        shown = self._server.shown.get(kernel_id)
        error = "" if shown is None else await asyncio.shield(shown.error)
        if not error and kernel_id in self.kernel_manager:
            is_alive = await ensure_async(self.kernel_manager.get_kernel(kernel_id).is_alive())
            error = "" if is_alive else "its process has ended"
        if error:
            self.set_status(500)
            self.finish({"message": error})
        else:
            await ensure_async(super().get(kernel_id))


class _Width(JupyterHandler):
    """The handler of what the page says first: its width, before it asks for the widgets."""

    def initialize(self, server: PageServer) -> None:
        self._server = server

    @authenticated
    def get(self, kernel_id: str, pixels: str) -> None:
        if kernel_id not in self._server.shown:
            raise HTTPError(404)
        self._server.shown[kernel_id].standby.tell_width(int(pixels))
        self.set_status(204)


_BESIDE: Final = 30  # pixels of the page's width that Voila's styles leave beside a dashboard

_OWN: Final = "bfcviz"  # the folder of this server's own scripts


class _OwnScript(RequestHandler):
    """The handler of a script of `page_scripts`, by its digest. It is no secret."""

    @allow_unauthenticated
    async def get(self, digest: str) -> None:
        packed = (await asyncio.wrap_future(page_scripts())).packed.get(digest)
        if packed is None:
            raise HTTPError(404)
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Content-Encoding", "gzip")
        self.set_header("Cache-Control", _FOR_EVER)
        self.finish(packed)


class _Logout(LogoutHandler):
    """Delete the cookie and show the login form of the page's server; Voila lacks Jupyter's log-out page."""

    @allow_unauthenticated
    def get(self) -> None:
        self.identity_provider.clear_login_cookie(self)
        self.redirect(self.settings["login_url"])


def _repaired_route_handler(handler: type[Any]) -> type[Any]:
    """The handler of a route of Voila, or its replacement."""
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
    """The digest of all scripts of the page in the folders, in hexadecimal."""
    found = sha256()
    for script in sorted(path for folder in folders for path in Path(folder).glob("*.js")):
        found.update(f"{script.name} {script.stat().st_size}\0".encode())
        found.update(script.read_bytes())
    return found.hexdigest()


def _stop_at_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Let the server's loop end at Ctrl-C, SIGTERM and SIGHUP; an exception raised in a callback may be lost."""
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
    """The address of the page of the server, and its token."""

    ip: str  # the address to listen on
    port: int | None  # the port; None: any free port
    token: str  # the token that the page's address must contain; "": none


def is_loopback(ip: str) -> bool:
    """Whether only this machine can reach the address of the page's server."""
    try:
        return ipaddress.ip_address(ip).is_loopback
    except ValueError:
        return ip == "localhost"


def serve(address: Address, standby: Standby, *, theme: str, browser: bool) -> None:
    """Serve the page of the standby until Ctrl-C, SIGTERM or SIGHUP; leaves no process and no file.

    Args:
        address: the address to serve at.
        standby: becomes the first kernel.
        theme: `light` or `dark`.
        browser: whether to open a browser on the page.

    Raises:
        BfcvizError: the server cannot listen at the address.
    """
    with _stopped_by_signals(), tempfile.TemporaryDirectory(prefix="bfcviz-view-") as folder:
        home = Path(folder)
        notebook = home / "bfcviz.ipynb"
        notebook.touch()  # without one Voila shows the folder
        config = settings(home, address, theme)
        shown: _Shown = {}
        _use_server_provisioner(standby, shown)
        server = PageServer(home, config, opening(standby.first_screen, theme), shown, browser_wanted=browser)
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
    """The configuration of Voila and its parts, for the page's server."""
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
                "allow_template_override": "NO",
                "allow_theme_override": "NO",
                "file_allowlist": [],
                # Those that the page shows, of all that are installed: plotly's alone has 5 MB of script.
                "extension_allowlist": ["@voila-dashboards/widgets-manager8", *_EXTENSIONS],
            },
            # The kernel of this Python, even if others are installed under the same name.
            "KernelSpecManager": {"kernel_dirs": []},
            "KernelManager": {"transport": "ipc" if sockets else "tcp"},
            "MappingKernelManager": {
                "cull_idle_timeout": _IDLE_S,
                "cull_interval": _IDLE_S // 10,
                # The page asks for its kernel when the widgets are there: it answers at once, or missed the question.
                "kernel_info_timeout": 5,
            },
        }
    )


# ------------------------------------------------------------------------------
# Starts kernels that make the widgets of their page.

_NAME = "local-provisioner"  # the one of every kernel that names no other


class _PageWidgets(NamedTuple):
    """What makes the widgets of a kernel's page; and why it cannot, or "" once they are there."""

    standby: Standby
    error: "asyncio.Future[str]"


_Shown = dict[str, _PageWidgets]


class ServerProvisioner(LocalProvisioner):  # type: ignore[misc]
    """Starts the kernels of the page's server.

    Args:
        standby: becomes the first one.
        shown: kernel -> what shows its widgets.
        options: those of the base class.
    """

    def __init__(self, standby: Standby, shown: _Shown, **options: Any) -> None:
        super().__init__(**options)
        self._standby, self._shown = standby, shown

    async def launch_kernel(self, cmd: list[str], **options: Any) -> KernelConnectionInfo:
        """Start the kernel of the command line `python -m ipykernel_launcher ...`."""
        before = self._shown.get(self.kernel_id)
        if before is not None and (not before.error.done() or before.error.result()):
            # It ended while it made the widgets, or could not make them: that is not tried again.
            return await super().launch_kernel(cmd, **options)
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        request = KernelRequest(
            self.kernel_id, arguments, {**options.get("env", os.environ)}, options.get("cwd")
        )
        standby = self._standby
        if (process := standby.become_kernel(request)) is None:
            standby = standby.again()
            process = standby.become_kernel(request)
        self._shown[self.kernel_id] = _PageWidgets(standby, standby.shown())
        if process is None:
            raise BfcvizError("the process of the kernel ended at once")
        self.process, self.pid, self.pgid = process, process.pid, os.getpgid(process.pid)
        return self.connection_info

    async def send_signal(self, signum: int) -> None:
        """Send a signal; an interrupt, which comes before each shutdown, ends a process that is no kernel yet."""
        shown = self._shown.get(self.kernel_id)
        is_early = signum == signal.SIGINT and shown is not None and not shown.error.done()
        await super().send_signal(signal.SIGKILL if is_early else signum)


def _use_server_provisioner(standby: Standby, shown: _Shown) -> None:
    """Let the next kernel of this server be the standby."""
    value = f"{ServerProvisioner.__module__}:{ServerProvisioner.__name__}"
    # What the factory holds of each provisioner: an entry point.
    entry: Any = SimpleNamespace(
        name=_NAME, value=value, load=lambda: partial(ServerProvisioner, standby, shown)
    )
    KernelProvisionerFactory.instance().provisioners[_NAME] = entry


# ------------------------------------------------------------------------------
# The scripts that a page of Voila begins with, in one file: it asks for more than 60 otherwise, one after another.
#
# Webpack made them. A chunk, such as `1621.voila.js`, only puts its modules into an array, and the code that needs
# them finds them there; what is missing is loaded as before. So a file with too few chunks costs time and nothing else.

ENTRY: Final = "voila.js"
"""Voila's own script, which loads and runs its chunks; it begins when the page has loaded."""

_SHARED: Final = re.compile(r'(\d+):\(\)=>\w+\("default",(.*?)(?=,\d+:\(\)=>\w+\("default"|\})')
_CONSUMES: Final = re.compile(r"\b(\d+):\[(\d+(?:,\d+)*)\]")
_LOADED: Final = re.compile(r"\.e\((\d+)\)")
_CHUNK: Final = re.compile(r"\d+\.\w+\.js")


def first_scripts(static: Path, extensions: Iterable[Path]) -> bytes:
    """The chunks that `voila.js` loads first, all chunks of the extensions, and `voila.js`.

    Args:
        static: the folder of Voila's scripts.
        extensions: the folders of the scripts of extensions of JupyterLab; the page still asks for their entry points.
    """
    entry = (static / ENTRY).read_text(encoding="utf-8")
    files = [static / f"{number}.{ENTRY}" for number in _first_chunks(entry)]
    for folder in extensions:
        files += sorted(each for each in folder.glob("*.js") if _CHUNK.fullmatch(each.name))
    chunks = [each.read_bytes() for each in files if each.is_file()]
    return _finds_late_models(b"\n;".join([*chunks, entry.encode()]))


_GET_MODEL: Final = re.compile(
    rb"(async get_model\((\w{1,3})\)\{.{1,200}?Date\.now\(\)-\w{1,3}<)2e3(;.{1,200}?\})"
    rb"(?=throw (?:new )?Error\(\"widget model not found\"\))"
)


def _finds_late_models(script: bytes) -> bytes:
    """The page's manager of widgets (8.1), which then finds a widget that comes late, also on a slow machine.

    Its own `get_model` looks every 100 ms for 2 s, and not once more after them. Where the page was busy with the
    making of all widgets when the 2 s ended, the view stays empty: "model not found", though the widget is there. A
    widget that was made while the page loads waits in the same way for those that it shows.
    """
    return _GET_MODEL.sub(rb"\g<1>3e4\g<3>if(void 0!==this._models[\2])return this._models[\2];", script)


def _first_chunks(entry: str) -> Iterator[str]:
    """The numbers of the chunks that a script of the page needs before it runs: those it names, and what these need."""
    first = re.search(r"Promise\.all\(\[(.*?)\]\)", entry)
    shared, consumes = dict(_SHARED.findall(entry)), dict(_CONSUMES.findall(entry))
    found: set[str] = set()
    waiting = _LOADED.findall(first[1]) if first else []
    while waiting:
        number = waiting.pop()
        if number in found:
            continue
        found.add(number)
        yield number
        for module in consumes.get(number, "").split(","):
            waiting += _LOADED.findall(shared.get(module, ""))

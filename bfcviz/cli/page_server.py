"""A server for one page: Voila on a notebook of one cell, with nothing of it but the outcome to be seen.

The page can send messages to the widgets it shows, and run no code. Nothing is fetched from elsewhere.
"""

import asyncio
import json
import logging
import os
import signal
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.auth.logout import LogoutHandler
from tornado.web import HTTPError, RequestHandler, StaticFileHandler
from traitlets.config import Config
from voila.app import Voila

from bfcviz.cli.view import is_loopback
from bfcviz.errors import BfcvizError
from bfcviz.terminal import say

FIRST_PORT: Final = 8866
"""Voila's own; where it is taken and none was asked for, others are tried."""

_IDLE_S: Final = 600
"""After how long without a page a kernel ends; pages that are closed end theirs at once, lost ones cannot."""

_SHORT: Final = 36
"""Characters of a folder whose sockets have names that every system takes (104)."""

# Voila's template, less what that one loads from elsewhere: icons (its script brings them too), MathJax, Mermaid.
_TEMPLATE: Final = """\
{%- extends 'voila/templates/lab/index.html.j2' -%}
{% import "spinner.macro.html.j2" as spinner %}
{%- block notebook_css -%}
{{ resources.include_js("static/voila-style.js") }}
{{ spinner.css() }}
{{ super.super() }}
{%- endblock notebook_css -%}
{%- block html_head_js_mermaidjs -%}{%- endblock html_head_js_mermaidjs -%}
"""


class PageServer(Voila):  # type: ignore[misc]
    """Voila, which says where it is once it listens, and reads nobody's settings.

    Args:
        templates: a folder whose `index.html.j2` goes before Voila's.
        browser_wanted: open a browser on the page.
        config: for all of Voila's parts.
    """

    def __init__(self, templates: Path, config: Config, *, browser_wanted: bool) -> None:
        super().__init__(config=config)
        self._templates, self._browser_wanted = str(templates), browser_wanted

    def setup_template_dirs(self) -> None:
        """Finds the templates, ours first."""
        super().setup_template_dirs()
        self.template_paths.insert(0, self._templates)

    def load_config_file(self, *_args: object, **_kwargs: object) -> None:
        """Nothing: a voila.py that lies where the command was called is none of our code."""

    def launch_browser(self) -> None:
        """Says where the page is; called once the server listens."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        address = f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")
        say(f"Showing {address}", "Ctrl-C ends it.")
        if self._browser_wanted:
            webbrowser.open(address)

    def init_handlers(self) -> list[Any]:
        """Voila's routes, with answers where those would fail: a log-out has no page, and odd paths name no file."""
        return [(pattern, _mended(handler), *rest) for pattern, handler, *rest in super().init_handlers()]

    def _handle_signal_stop(self, *_: object) -> None:
        """At SIGTERM: as at Ctrl-C; Voila's own way needs the loop to run."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    def exit(self, exit_status: int | str | None = 0) -> None:
        """Called where no port could be had; the caller is told instead of the process ended."""
        del exit_status
        raise BfcvizError(
            f"cannot listen on port {self.port} of {self.ip}: it is taken; choose another with --port"
        )


class _Logout(LogoutHandler):
    """Forgets the cookie and shows the login form; Voila lacks the page that Jupyter's server shows here."""

    @allow_unauthenticated
    def get(self) -> None:
        self.identity_provider.clear_login_cookie(self)
        self.redirect(self.settings["login_url"])


def _mended(handler: type[Any]) -> type[Any]:
    """A route's handler, or the one to put in its place."""
    if issubclass(handler, LogoutHandler):
        return _Logout
    if not issubclass(handler, StaticFileHandler):
        return handler
    get = handler.get

    @wraps(get)  # with the mark of whether a token is asked for
    async def get_or_404(self: Any, *arguments: Any, **options: Any) -> None:
        try:
            found = get(self, *arguments, **options)
            if found is not None:
                await found
        except (AssertionError, ValueError, OSError) as error:
            raise HTTPError(404) from error

    # Tornado's plain error page: Jupyter's takes pictures from a folder that Voila does not name.
    return type(handler.__name__, (handler,), {"get": get_or_404, "write_error": RequestHandler.write_error})


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM, and SIGHUP as when the terminal is closed, end it as Ctrl-C does; `nohup` is respected."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    ours = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def end(*_: object) -> None:
        for number in ours:  # another one must not interrupt the cleaning up
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


@dataclass(frozen=True)
class Address:
    """Where a page is, and for whom.

    Attributes:
        ip: where to listen.
        port: at which port; None: any that is free.
        token: what the page's address has to bring; "": nothing.
    """

    ip: str
    port: int | None
    token: str


def serve(code: str, address: Address, *, theme: str, browser: bool) -> None:
    """Serves what `code` shows until Ctrl-C, SIGTERM or SIGHUP; then nothing of it is left, no process and no file.

    Args:
        code: Python for the one cell.
        address: where.
        theme: `light` or `dark`.
        browser: open one on the page.

    Raises:
        BfcvizError: nothing can listen there.
    """
    with _ended_by_signals(), tempfile.TemporaryDirectory(prefix="bfcviz-view-") as folder:
        home = Path(folder)
        notebook, templates = home / "bfcviz.ipynb", home / "templates"
        notebook.write_text(json.dumps(notebook_of(code)), encoding="utf-8")
        templates.mkdir()
        (templates / "index.html.j2").write_text(_TEMPLATE, encoding="utf-8")
        config = settings(home, address, theme)
        server = PageServer(templates, config, browser_wanted=browser)
        # Jupyter's server and Tornado count pings in other units, and Tornado warns of it.
        logging.getLogger("tornado.general").setLevel(logging.ERROR)
        asyncio.set_event_loop(asyncio.new_event_loop())
        try:
            server.initialize([str(notebook)])
            server.start()
        except OSError as error:
            reason = error.strerror or str(error)
            raise BfcvizError(f"cannot listen on {address.ip}: {reason}; choose another with --ip") from error


def settings(home: Path, address: Address, theme: str) -> Config:
    """What Voila and its parts are told."""
    local = {"allow_remote_access": False, "local_hostnames": ["localhost"]}  # other sites' names are refused
    # Files in the folder instead of ports of the machine, where their names are not too long for that.
    sockets = os.name == "posix" and len(str(home)) < _SHORT
    return Config(
        {
            "Voila": {
                "ip": address.ip,
                "port": address.port or FIRST_PORT,
                "port_retries": 0 if address.port else 50,
                "token": address.token,
                "open_browser": True,  # calls launch_browser, which knows whether one is wanted
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
            },
            # The kernel of this Python, whatever others are installed under the same name.
            "KernelSpecManager": {"kernel_dirs": []},
            "KernelManager": {"transport": "ipc" if sockets else "tcp"},
            "MappingKernelManager": {"cull_idle_timeout": _IDLE_S, "cull_interval": _IDLE_S // 10},
        }
    )


def notebook_of(code: str) -> dict[str, object]:
    """A notebook, as JSON values, of one cell."""
    cell = {"cell_type": "code", "id": "page", "source": code, "metadata": {}, "outputs": []}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": [{**cell, "execution_count": None}],
        "metadata": {"kernelspec": kernel, "title": "bfcviz"},
        "nbformat": 4,
        "nbformat_minor": 5,
    }

import ast
import asyncio
import contextlib
import html
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
import requests
from integration.cli.test_demo import browser_arguments, homes, recording_browser
from processes import children_of

import bfcviz
from bfcviz.cli import main, server, view

LIMIT_S = 150
SAMPLE = str(bfcviz.sample("lstm"))
HOSTILE = [
    "x'); import os; os.abort() #.parquet",
    'two\nlines"""',
    "{{ 1 % 0 }}</script>",
    "\udcff\u202e",
    "\\",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_the_name_of_a_file_is_a_literal_and_never_code(name, tmp_path):
    code = view.page_code(str(tmp_path / name), "dark")
    assert code.isascii()
    *_, shown = ast.parse(code).body
    assert len(ast.parse(code).body) == 4
    assert [ast.literal_eval(argument) for argument in shown.value.args] == [str(tmp_path / name), "dark"]


def test_a_relative_file_is_found_from_where_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert repr(str(tmp_path / "a.parquet")) in view.page_code("a.parquet", "light")


def test_the_page_shows_an_inspector_of_the_file(tmp_path, capsys):
    names = {}
    *lines, last = view.page_code(SAMPLE, "light").splitlines()
    exec("\n".join(lines), names)  # noqa: S102  bfcviz made this code
    shown = eval(last, names)  # noqa: S307
    assert isinstance(shown, bfcviz.Inspector)
    assert view.dashboard(str(tmp_path / "gone.parquet"), "light") is None
    rules = tmp_path / "rules.txt"
    rules.write_text("no rule")
    assert view.dashboard(SAMPLE, "light", str(rules)) is None
    assert view.page_code(SAMPLE, "dark", kinds=str(rules)).endswith(f"'dark', {str(rules)!a})")
    assert "no such file" in capsys.readouterr().out


def test_without_voila_the_command_that_installs_it_is_named(monkeypatch, capsys):
    monkeypatch.setattr(view, "find_spec", lambda _: None)
    assert main(["view", SAMPLE]) == 1
    assert capsys.readouterr().err == "bfcviz: error: bfcviz view needs Voila: pip install 'bfcviz[view]'\n"


def test_a_file_that_cannot_be_read_starts_no_server(tmp_path, capsys):
    assert main(["view", str(tmp_path / "none.parquet"), "--no-browser"]) == 1
    out, err = capsys.readouterr()
    assert (out, "none.parquet" in err) == ("", True)


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http"])
def test_a_port_is_a_number(port, capsys):
    with pytest.raises(SystemExit) as left:
        main(["view", SAMPLE, f"--port={port}"])
    assert left.value.code == 2
    assert "not a port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ip", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("build.example", False)],  # noqa: S104
)
def test_loopback_addresses_are_recognised(ip, loopback):
    assert server.is_loopback(ip) is loopback


def viewing(*options, folder, log, browser=None):
    wanted = [] if browser else ["--no-browser"]
    return subprocess.Popen(
        [sys.executable, "-m", "bfcviz", "view", SAMPLE, *wanted, *options],
        env={**os.environ, **homes(folder), "TMPDIR": str(folder), "BROWSER": str(browser)},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )


def test_a_port_in_use_is_an_error(tmp_path):
    with socket.socket() as taken, (tmp_path / "log").open("w+") as log:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with viewing(f"--port={port}", folder=tmp_path, log=log) as process:
            assert process.wait(timeout=LIMIT_S) == 1
    assert (
        (tmp_path / "log")
        .read_text()
        .splitlines()[-1]
        .startswith(f"bfcviz: error: cannot listen on port {port} of 127.0.0.1: it is taken")
    )
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("bfcviz-view")] == []


def test_an_address_of_another_machine_is_an_error(tmp_path):
    with (tmp_path / "log").open("w+") as log, viewing("--ip=192.0.2.1", folder=tmp_path, log=log) as process:
        assert process.wait(timeout=LIMIT_S) == 1
    assert "cannot listen on 192.0.2.1: " in (tmp_path / "log").read_text()


def test_the_page_needs_the_token(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = viewing(folder=tmp_path, log=sink)
    try:
        server, token = printed_address(log, process)
        asked = {
            "nothing": ask(server),
            "wrong": ask(f"{server}?token=wrong"),
            "kernels": ask(f"{server}api/kernels/00000000-0000-0000-0000-000000000000"),
            "other host": ask(f"{server}?token={token}", Host="evil.example"),
        }
        standby = children_of(process.pid)
        assert not kernels_in(tmp_path)
        page = ask(f"{server}?token={token}&template=classic&theme=dark")
        assert (len(standby), children_of(process.pid), len(kernels_in(tmp_path))) == (1, standby, 1)
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=LIMIT_S)
    codes = {name: answer.status_code for name, answer in asked.items()}
    assert codes == {"nothing": 302, "wrong": 302, "kernels": 403, "other host": 403}
    assert all(answer.headers.get("Location", "/login").startswith("/login") for answer in asked.values())
    assert (page.status_code, status) == (200, 0)
    assert "jupyter-config-data" in page.text
    assert 'data-jp-theme-light="true"' in page.text
    assert not re.search(r"""<(script|link|img)[^>]*(src|href)=["']?(https?:)?//""", page.text)


def test_the_token_is_not_on_the_command_line_of_the_browser(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = viewing(folder=tmp_path, log=sink, browser=recording_browser(tmp_path))
    try:
        server, token = printed_address(log, process)
        (opened,) = browser_arguments(tmp_path)
        assert token not in opened
        page = Path(url2pathname(urlsplit(opened).path))
        assert page.stat().st_mode & 0o777 == 0o600
        assert page.parent.stat().st_mode & 0o777 == 0o700
        (target,) = re.findall(r"url=([^\"]*)\"", page.read_text())
        assert target == f"{server}?token={token}"
        assert str(page.parent) in log.read_text()  # some browsers cannot read that folder
        command_lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children_of(process.pid)]
        assert command_lines
        assert not any(token.encode() in line for line in command_lines)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LIMIT_S) == 0
    assert not page.exists()


def test_without_a_token_the_browser_gets_the_address(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = viewing("--no-token", folder=tmp_path, log=sink, browser=recording_browser(tmp_path))
    try:
        (opened,) = browser_arguments(tmp_path)
        assert f"Showing {opened}\n" in log.read_text()
        assert "bfcviz-view-" not in log.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LIMIT_S) == 0


NO_FILES = (
    "voila/templates/lab/static/",
    "voila/templates/lab/../x/y/z",
    "voila/templates/x",
    "voila/templates/lab/static/%00",
    "voila/static/%00",
    "voila/labextensions/%00",
    "voila/api/themes/%00",
)


def test_no_route_fails_or_is_open_and_a_closed_terminal_leaves_nothing(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = viewing(folder=tmp_path, log=sink)
    try:
        server, token = printed_address(log, process)
        left = ask(f"{server}logout?token={token}")
        without = {path: raw_status(server, path) for path in NO_FILES}
        with_it = {path: raw_status(server, f"{path}?token={token}") for path in NO_FILES}
        script = ask(f"{server}voila/templates/lab/static/voila.js").status_code
        ask(f"{server}?token={token}")  # a kernel starts
        children = children_of(process.pid)
    finally:
        process.send_signal(signal.SIGHUP)
        status = process.wait(timeout=LIMIT_S)
    assert (left.status_code, left.headers["Location"], script, status) == (302, "/login", 200, 0)
    assert set(without.values()) | set(with_it.values()) <= {404, 403, 302}, (without, with_it)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("bfcviz-view")] == []
    assert "Traceback" not in log.read_text().split("Ctrl-C")[-1]
    assert not any(os.path.exists(f"/proc/{child}/exe") for child in children)  # noqa: PTH110


def test_with_nohup_it_outlives_its_terminal_and_sigterm_leaves_nothing(tmp_path):
    log = tmp_path / "log"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the child inherits it
    try:
        with log.open("wb") as sink:
            process = viewing(folder=tmp_path, log=sink)
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        server, _ = printed_address(log, process)
        process.send_signal(signal.SIGHUP)
        assert ask(server).status_code == 302
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=LIMIT_S) == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("bfcviz-view")] == []


def kernels_in(folder):
    """The connection files of all kernels that were started."""
    return [*folder.rglob("kernel-*.json")]


def raw_status(server, path):
    """The status of a path that is sent unchanged: `requests` would normalise it."""
    connection = http.client.HTTPConnection(server.removeprefix("http://").rstrip("/"), timeout=LIMIT_S)
    with contextlib.closing(connection):
        connection.request("GET", f"/{path}")
        return connection.getresponse().status


def ask(address, **headers):
    return requests.get(address, headers=headers, allow_redirects=False, timeout=LIMIT_S)


def printed_address(log, process):
    """Server and token from the address that is printed once the server listens."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"(http://127\.0\.0\.1:\d+/)\?token=(\w{32})\n", log.read_text()):
            return found.groups()
        time.sleep(0.05)  # between two checks
    return pytest.fail(f"no address was printed:\n{log.read_text()}")


@pytest.mark.parametrize(
    "screen", ["{{ 1 + 1 }} {% raw %} %}", "SCREEN LIGHT LIVE", "\U0001f600 ü \n </p> %s"]
)
def test_a_first_screen_reaches_the_page_as_it_is(screen):
    page = server.opening(screen, "dark")
    assert f'<div id="bfcviz-first-screen">{screen}<p role' in page
    assert '<body data-jp-theme-light="false">' in page


def test_the_verdict_is_in_the_shell_and_the_first_screen_is_there_before_a_kernel(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = viewing(folder=tmp_path, log=sink)
    try:
        server, token = printed_address(log, process)
        with requests.get(f"{server}?token={token}", stream=True, timeout=LIMIT_S) as page:
            pieces, first = page.iter_content(None), b""
            while b"</script>" not in first:
                first += next(pieces)
            started = len(kernels_in(tmp_path))
            text = (first + b"".join(pieces)).decode()
        digest = re.search(r"voila/static/([0-9a-f]{64})", text)[1]
        named = ask(f"{server}voila/static/{digest}/voila.js")
        unnamed = ask(f"{server}voila/static/voila.js")
        forged = ask(f"{server}voila/static/{digest[::-1]}/voila.js")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=LIMIT_S)
    headline = re.search(r'<div class="headline">([^<]*)</div>', first.decode())[1]
    assert html.unescape(headline).strip("\u2068\u2069") in log.read_text().splitlines()
    assert first.count(b'<svg viewBox="0 0 1080') == 4  # the map and the timeline, each light and dark
    assert started == 0
    assert "immutable" in named.headers["Cache-Control"]
    assert named.headers["Content-Encoding"] == "gzip"
    assert "immutable" not in unnamed.headers.get("Cache-Control", "")
    assert (named.text == unnamed.text, forged.ok) == (True, False)


def test_a_page_whose_kernel_does_not_start_says_so(monkeypatch):
    async def broken(_self, _path=None):
        yield "<title>begun</title>"
        raise RuntimeError("no </script> kernel")

    monkeypatch.setattr(server.TornadoVoilaHandler, "get_generator", broken)
    page = object.__new__(server._Page)
    page._first_bytes = server.opening("the first screen", "light")
    page.application = SimpleNamespace(settings={})
    monkeypatch.setattr(server._Page, "set_header", lambda *_: None)

    async def sent():
        return "".join([piece async for piece in page.get_generator()])

    text = asyncio.run(sent())
    assert text.startswith(page._first_bytes)
    told = text.removeprefix(page._first_bytes)
    assert 'setAttribute("role", "alert")' in told
    assert "RuntimeError: no \\u003c/script> kernel" in told
    assert told.count("</script>") == 1

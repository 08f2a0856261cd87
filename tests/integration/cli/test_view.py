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
from heaps import new_heap
from integration.cli.forked import forked
from integration.cli.test_demo import browser_arguments, homes, recording_browser
from processes import children_of

import bfcviz
from bfcviz.cli import main, page_server, view
from bfcviz.errors import BfcvizError
from bfcviz.events.storage.recording import Recording

LIMIT_S = 150
SAMPLE = str(bfcviz.sample("lstm"))


def test_the_page_shows_an_inspector_of_the_file(tmp_path):
    assert isinstance(view.dashboard(SAMPLE, "light"), bfcviz.Inspector)
    with pytest.raises(BfcvizError, match="no such file"):
        view.dashboard(str(tmp_path / "gone.parquet"), "light")
    rules = tmp_path / "rules.txt"
    rules.write_text("no rule")
    with pytest.raises(BfcvizError, match="no rule"):
        view.dashboard(SAMPLE, "light", str(rules))


def test_a_recording_that_is_still_written_is_shown_live(tmp_path):
    with Recording(tmp_path / "run") as recording:
        heap = new_heap(log=recording.log, labels=recording.labels)
        heap.allocate(300)
        shown = view.dashboard(str(tmp_path / "run"), "dark")
        before = len(shown.trace)
        heap.allocate(300)
        shown.refresh()
        assert shown.inspector.step == len(shown.trace) > before
        assert shown.inspector.theme == "dark"
        shown.close()


def test_without_voila_the_command_that_installs_it_is_named(monkeypatch, capsys):
    monkeypatch.setattr(view, "find_spec", lambda _: None)
    assert main(["view", SAMPLE]) == 1
    assert capsys.readouterr().err == "bfcviz: error: bfcviz view needs Voila: pip install 'bfcviz[view]'\n"


def test_a_file_that_cannot_be_read_starts_no_server(tmp_path, capsys):
    assert main(["view", str(tmp_path / "none.parquet"), "--no-browser"]) == 1
    out, err = capsys.readouterr()
    assert (out, "none.parquet" in err) == ("", True)


@pytest.mark.parametrize("words", [("",), ("run.pickle", "")], ids=["alone", "after another"])
def test_an_empty_path_is_not_this_folder(words, capsys):
    assert main(["view", *words, "--no-browser"]) == 1
    assert "an empty path: names no file" in capsys.readouterr().err


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
    assert page_server.is_loopback(ip) is loopback


def viewing(*options, folder, log, browser=None):
    wanted = [] if browser else ["--no-browser"]
    return subprocess.Popen(
        [sys.executable, "-m", "bfcviz", "view", SAMPLE, *wanted, *options],
        env={**os.environ, **homes(folder), "TMPDIR": str(folder), "BROWSER": str(browser)},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )


@pytest.fixture
def no_standby(monkeypatch, tmp_path):
    """For a server that does not come up: it needs no process that reads the file."""

    class NoStandby:
        headline = first_screen = ""

        def __init__(self, *_):
            pass

        def check(self):
            pass

        def end(self):
            print("the standby ended", file=sys.stderr)

    monkeypatch.setattr("bfcviz.cli.standby.Standby", NoStandby)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    assert list(tmp_path.glob("bfcviz-view*")) == []


def refused(option):
    """What the command says on standard error with an option that no server can have."""
    done = forked(["view", SAMPLE, "--no-browser", option], env=dict(os.environ))
    assert done.returncode == 1
    assert "the standby ended" in done.stderr
    return done.stderr


@pytest.mark.usefixtures("no_standby")
def test_a_port_in_use_is_an_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        last = refused(f"--port={port}").splitlines()[-1]
    assert last.startswith(f"bfcviz: error: cannot listen on port {port} of 127.0.0.1: it is taken")


@pytest.mark.usefixtures("no_standby")
def test_an_address_of_another_machine_is_an_error():
    assert "cannot listen on 192.0.2.1: " in refused("--ip=192.0.2.1")


NO_FILES = (
    "voila/templates/lab/static/",
    "voila/templates/lab/../x/y/z",
    "voila/templates/x",
    "voila/templates/lab/static/%00",
    "voila/static/%00",
    "voila/labextensions/%00",
    "voila/api/themes/%00",
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What one server printed, opened and answered from its start to Ctrl-C."""
    folder = tmp_path_factory.mktemp("seen")
    log = folder / "log"
    with log.open("wb") as sink:
        process = viewing(folder=folder, log=sink, browser=recording_browser(folder))
    try:
        address, token = printed_address(log, process)
        found = SimpleNamespace(log=log, address=address, token=token)
        (found.opened,) = browser_arguments(folder)
        found.opened_page = Path(url2pathname(urlsplit(found.opened).path))
        found.modes = [path.stat().st_mode & 0o777 for path in (found.opened_page, found.opened_page.parent)]
        found.opened_text = found.opened_page.read_text()
        found.standby = children_of(process.pid)
        found.command_lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found.standby]
        found.asked = {
            "nothing": ask(address),
            "wrong": ask(f"{address}?token=wrong"),
            "kernels": ask(f"{address}api/kernels/00000000-0000-0000-0000-000000000000"),
            "other host": ask(f"{address}?token={token}", Host="evil.example"),
        }
        found.left = ask(f"{address}logout?token={token}")
        found.without = {path: raw_status(address, path) for path in NO_FILES}
        found.with_it = {path: raw_status(address, f"{path}?token={token}") for path in NO_FILES}
        found.script = ask(f"{address}voila/templates/lab/static/voila.js").status_code
        found.kernels = [kernels_in(folder)]
        wanted = f"{address}?token={token}&template=classic&theme=dark"
        with requests.get(wanted, allow_redirects=False, stream=True, timeout=LIMIT_S) as page:
            pieces, first = page.iter_content(None), b""
            while b"</script>" not in first:
                first += next(pieces)
            found.status, found.first = page.status_code, first.decode()
            found.text = (first + b"".join(pieces)).decode()
        found.kernels.append(kernels_in(folder))
        found.children = children_of(process.pid)
        (found.kernel,) = re.findall(r'"kernelId": "([0-9a-f-]{36})"', found.text)
        found.ready = ask(f"{address}api/kernels/{found.kernel}?token={token}").status_code
        found.again = ask(f"{address}?token={token}").text
        found.kernels.append(kernels_in(folder))
        found.others = [*{*children_of(process.pid)} - {*found.children}]
        found.digest = re.search(r"voila/static/([0-9a-f]{64})", found.text)[1]
        found.scripts = {
            "named": ask(f"{address}voila/static/{found.digest}/voila.js"),
            "unnamed": ask(f"{address}voila/static/voila.js"),
            "forged": ask(f"{address}voila/static/{found.digest[::-1]}/voila.js"),
        }
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=LIMIT_S)
    assert status == 0
    return found


def test_the_page_needs_the_token(seen):
    codes = {name: answer.status_code for name, answer in seen.asked.items()}
    assert codes == {"nothing": 302, "wrong": 302, "kernels": 403, "other host": 403}
    assert all(
        answer.headers.get("Location", "/login").startswith("/login") for answer in seen.asked.values()
    )
    assert seen.status == 200
    assert "jupyter-config-data" in seen.text
    assert 'data-jp-theme-light="true"' in seen.text
    assert not re.search(r"""<(script|link|img)[^>]*(src|href)=["']?(https?:)?//""", seen.text)


def test_the_standby_becomes_the_kernel_of_the_first_page(seen):
    assert (len(seen.standby), seen.children) == (1, seen.standby)
    before, first, again = seen.kernels
    assert before == first  # it starts before a page asks for it
    assert [path.name for path in first] == [f"kernel-{seen.kernel}.json"]
    assert seen.ready == 200
    assert seen.text.count(f'"model_id": "{seen.kernel}"') == 1
    assert (len(again), len(seen.others)) == (2, 1)  # another page has its own
    assert seen.kernel not in seen.again


def test_the_token_is_not_on_the_command_line_of_the_browser(seen):
    assert seen.token not in seen.opened
    assert seen.modes == [0o600, 0o700]
    (target,) = re.findall(r"url=([^\"]*)\"", seen.opened_text)
    assert target == f"{seen.address}?token={seen.token}"
    assert str(seen.opened_page.parent) in seen.log.read_text()  # some browsers cannot read that folder
    assert seen.command_lines
    assert not any(seen.token.encode() in line for line in seen.command_lines)
    assert not seen.opened_page.exists()


def test_no_route_fails_or_is_open(seen):
    assert (seen.left.status_code, seen.left.headers["Location"], seen.script) == (302, "/login", 200)
    found = {*seen.without.values(), *seen.with_it.values()}
    assert found <= {404, 403, 302}, (seen.without, seen.with_it)
    printed = seen.log.read_text().split("Ctrl-C")[-1]
    # A kernel that ends while its thread of output still sends: pyzmq's, now and then, at the end of the process.
    assert printed.count("Traceback") == printed.count(
        "RuntimeError: zmq gc socket requested during shutdown"
    )


def test_the_verdict_is_in_the_shell_and_the_first_screen_is_there_before_a_kernel(seen):
    headline = re.search(r'<div class="headline">([^<]*)</div>', seen.first)[1]
    assert html.unescape(headline).strip("\u2068\u2069") in seen.log.read_text().splitlines()
    assert seen.first.count('<svg viewBox="0 0 1080') == 4  # the map and the timeline, each light and dark
    named, unnamed, forged = seen.scripts.values()
    assert "immutable" in named.headers["Cache-Control"]
    assert named.headers["Content-Encoding"] == "gzip"
    assert "immutable" not in unnamed.headers.get("Cache-Control", "")
    assert (named.text == unnamed.text, forged.ok) == (True, False)


def test_without_a_token_the_browser_gets_the_address_and_a_closed_terminal_leaves_nothing(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = viewing("--no-token", folder=tmp_path, log=sink, browser=recording_browser(tmp_path))
    try:
        (opened,) = browser_arguments(tmp_path)
        assert f"Showing {opened}\n" in log.read_text()
        assert "bfcviz-view-" not in log.read_text()
        assert ask(opened).status_code == 200  # a kernel starts
        children = children_of(process.pid)
    finally:
        process.send_signal(signal.SIGHUP)
        status = process.wait(timeout=LIMIT_S)
    assert (len(children), status) == (1, 0)
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
    page = page_server.opening(screen, "dark")
    assert f'<div id="bfcviz-first-screen">{screen}<p role' in page
    assert 'data-jp-theme-light="false"' in page
    assert 'data-jp-theme-name="JupyterLab Dark"' in page


def test_a_page_whose_kernel_does_not_start_says_so(monkeypatch):
    async def broken():
        raise RuntimeError("no </script> kernel")

    async def flushed():
        pass

    sent, page = [], object.__new__(page_server._Page)
    page.initialize(
        SimpleNamespace(first_bytes=page_server.opening("the first screen", "light"), rest_of_page=broken)
    )
    page.application = SimpleNamespace(settings={})
    monkeypatch.setattr(page_server._Page, "xsrf_token", "")
    for name, does in {
        "set_header": lambda *_: None,
        "flush": flushed,
        "write": sent.append,
        "finish": sent.append,
    }.items():
        monkeypatch.setattr(page, name, does)
    asyncio.run(page_server._Page.get.__wrapped__(page, ""))
    first, told = sent
    assert first.count("</script>") == 1
    assert told.startswith("<script>bfcviz_failed(")
    assert "RuntimeError: no \\u003c/script> kernel" in told
    assert told.count("</script>") == 1


def test_a_kernel_that_was_killed_before_its_page_asked_is_told_and_makes_the_widgets_again(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = viewing(folder=tmp_path, log=sink)
    try:
        host, token = printed_address(log, process)

        def ask(address):
            return requests.get(address, headers={"Authorization": f"token {token}"}, timeout=LIMIT_S)

        page = ask(host).text
        kernel = re.search(r'fetch\("(/api/kernels/[^"]+)"\)', page)[1]
        address = host.rstrip("/") + kernel
        assert ask(address).status_code == 200  # the widgets are there
        (before,) = children_of(process.pid)
        os.kill(before, signal.SIGKILL)
        while (told := ask(address)).status_code == 200:
            pass  # it has not ended yet
        assert (told.status_code, told.json()) == (500, {"message": "its process has ended"})
        until = time.monotonic() + LIMIT_S
        while ask(address).status_code != 200 and time.monotonic() < until:
            time.sleep(0.1)  # between two questions: the server looks every few seconds
        (after,) = children_of(process.pid)
        assert b"stand_by" in Path(f"/proc/{after}/cmdline").read_bytes()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LIMIT_S) == 0

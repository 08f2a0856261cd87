"""`bfcviz attach`: it waits for a recording and serves its live page."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
import requests
from integration.cli.test_demo import homes
from integration.cli.test_view import printed_address
from shared import ROOT, land_window, window_readers

from bfcviz import LiveDashboard
from bfcviz.cli import attach, main, view
from bfcviz.errors import BfcvizError
from bfcviz.events.storage.recording import Recording
from bfcviz.live.recorded_process import CLAIM

LIMIT_S = 150


def test_the_page_is_a_live_dashboard(tmp_path):
    with Recording(tmp_path / "run"):
        shown = attach.dashboard(str(tmp_path / "run"), "dark")
        assert isinstance(shown, LiveDashboard)
        assert shown.inspector.theme == "dark"
        shown.close()
    with pytest.raises(BfcvizError):
        attach.dashboard(str(tmp_path / "gone"), "light")


def test_it_fails_if_no_recording_starts_in_time(tmp_path, capsys):
    assert main(["attach", str(tmp_path / "run"), "--wait=0.1", "--no-browser"]) == 1
    waiting, error = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "run") in waiting
    assert error.startswith(f"bfcviz: error: {tmp_path / 'run'}: ")
    assert "0.1 s" in error


@pytest.mark.parametrize("wait", ["nan", "inf", "-1", "soon"])
def test_a_wait_that_never_ends_is_refused(wait, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["attach", str(tmp_path / "run"), f"--wait={wait}"])
    assert "argument --wait" in capsys.readouterr().err


def test_an_empty_path_is_not_this_folder(tmp_path, monkeypatch, capsys):
    Recording(tmp_path).close()
    monkeypatch.chdir(tmp_path)
    assert main(["attach", "", "--no-browser"]) == 1
    assert "an empty path" in capsys.readouterr().err


def test_a_folder_that_is_not_a_recording_is_refused_at_once(tmp_path, capsys):
    (tmp_path / "notes").write_text("mine")
    assert main(["attach", str(tmp_path), "--no-browser"]) == 1
    assert "is not a recording" in capsys.readouterr().err


def test_without_voila_the_command_that_installs_it_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(view, "find_spec", lambda _: None)
    assert main(["attach", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "bfcviz: error: bfcviz attach needs Voila: pip install 'bfcviz[view]'\n"


def test_tensorflows_windows_are_shown_as_they_land(tmp_path):
    async def look():
        shown = attach.dashboard(str(tmp_path), "dark")
        for number in (1, 2):
            land_window(tmp_path, number, "lstm")
            await until(lambda number=number: len(shown.traces) == number)
        assert [name for name, _ in shown.menu.options] == ["window-000001", "window-000002"]
        assert shown.trace is shown.traces[1]
        (tmp_path / "window-000003").mkdir()
        await until(lambda: "a window without a profile" in shown.status.value)
        shown.close()
        await until(lambda: not window_readers())

    async def until(true):
        while not true():  # noqa: ASYNC110  the sleep lets the loop run
            await asyncio.sleep(0.01)

    (tmp_path / CLAIM).touch()
    asyncio.run(asyncio.wait_for(look(), LIMIT_S))


@pytest.mark.timeout(120)
def test_it_waits_for_the_recording_and_serves_its_page(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "run"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "bfcviz", "attach", str(folder), "--no-browser"],
            env={**os.environ, **homes(tmp_path), "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    try:
        until = time.monotonic() + LIMIT_S
        while f"Waiting for a recording in {folder}" not in log.read_text():
            assert time.monotonic() < until
        with Recording(folder):
            server, token = printed_address(log, process)
            page = requests.get(f"{server}?token={token}", timeout=LIMIT_S)
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=LIMIT_S)
    assert (page.status_code, status) == (200, 0)

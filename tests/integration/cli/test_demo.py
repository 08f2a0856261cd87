"""`bfcviz demo`: it copies the notebook and starts JupyterLab."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from bfcviz.cli import demo, main

LIMIT_S = 150


def cells(path):
    return ["".join(cell["source"]) for cell in json.loads(Path(path).read_text())["cells"]]


def test_the_notebook_is_copied(tmp_path):
    copy = demo.copy_notebook(tmp_path / "new" / "folder", "conv")
    assert copy.name == demo.NOTEBOOK
    assert any('bfcviz.open(bfcviz.sample("conv"))' in cell for cell in cells(copy))


def test_another_sample_is_another_notebook(tmp_path):
    own, other = demo.copy_notebook(tmp_path, "conv"), demo.copy_notebook(tmp_path, "lstm")
    assert own != other
    assert [cell.replace('"conv"', '"lstm"') for cell in cells(own)] == cells(other)


def test_an_edited_copy_is_kept(tmp_path, capsys):
    copy = demo.copy_notebook(tmp_path, "conv")
    demo.copy_notebook(tmp_path, "conv")
    assert capsys.readouterr().out == ""
    copy.write_text("mine")
    assert demo.copy_notebook(tmp_path, "conv") == copy
    assert copy.read_text() == "mine"
    assert "kept" in capsys.readouterr().out


@pytest.mark.parametrize("block", ["file-for-folder", "folder-for-file"])
def test_a_folder_that_cannot_hold_the_copy_is_an_error(block, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "there"
    if block == "file-for-folder":
        folder.write_text("a file")
    else:
        (folder / demo.NOTEBOOK).mkdir(parents=True)
    monkeypatch.setattr(demo.os, "execv", lambda *_: pytest.fail("started"))
    assert main(["demo", "--dir", str(folder)]) == 1
    assert "--dir" in capsys.readouterr().err


def test_without_jupyterlab_the_command_that_installs_it_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "jupyterlab" else object())
    assert main(["demo", "--dir", str(tmp_path / "new")]) == 1
    assert "pip install 'bfcviz[lab]'" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_an_installation_without_notebooks_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "NOTEBOOK_FOLDERS", (tmp_path,))
    assert main(["demo", "--dir", str(tmp_path / "new")]) == 1
    assert "lacks 01_step_through.ipynb" in capsys.readouterr().err


def test_options_reach_jupyterlab(tmp_path):
    notebook = tmp_path / "a.ipynb"
    quiet = demo.lab_command(notebook, port=8123, browser=False)
    assert quiet[:3] == [sys.executable, "-m", "jupyterlab"]
    assert {f"--ServerApp.root_dir={tmp_path}", "--LabApp.default_url=/lab/tree/a.ipynb"} <= {*quiet}
    assert {"--ServerApp.port=8123", "--ServerApp.port_retries=0", "--no-browser"} <= {*quiet}
    shown = demo.lab_command(notebook, port=None, browser=True)
    assert "--no-browser" not in shown
    assert not any(word.startswith("--ServerApp.port") for word in shown)


def test_without_a_browser_jupyterlab_is_told_so(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(demo.os, "execv", lambda _, words: started.append(words))
    main(["demo", "--dir", str(tmp_path), "--no-browser"])
    assert started == [demo.lab_command(tmp_path / demo.NOTEBOOK, port=None, browser=False)]


def test_jupyterlab_comes_up_on_the_notebook_and_ctrl_c_ends_it(tmp_path):
    """And its token is not on the command line of the browser."""
    folder, log = tmp_path / "demo", tmp_path / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*(sys.executable, "-m", "bfcviz", "demo"), f"--dir={folder}"],
            env=os.environ | homes(tmp_path) | {"BROWSER": str(recording_browser(tmp_path))},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
        try:
            (opened,) = browser_arguments(tmp_path)
            server, token = printed_address(log, process)
            page = requests.get(
                f"{server}/lab/tree/{demo.NOTEBOOK}", params={"token": token}, timeout=LIMIT_S
            )
        finally:
            process.send_signal(signal.SIGINT)
            status = process.wait(timeout=LIMIT_S)
    assert (page.status_code, status) == (200, 0)
    assert "JupyterLab" in page.text
    assert "Traceback" not in log.read_text()
    assert opened.startswith("file:")
    assert token not in opened


def recording_browser(folder):
    """A browser that writes its command line to a file of the folder; the value of `BROWSER`."""
    browser = folder / "browser"
    browser.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{folder}/opening && mv {folder}/opening {folder}/opened\n"
    )
    browser.chmod(0o755)
    return browser


def browser_arguments(folder):
    """What such a browser got, once it was started."""
    until = time.monotonic() + LIMIT_S
    while not (folder / "opened").exists() and time.monotonic() < until:
        time.sleep(0.05)  # between two checks
    return (folder / "opened").read_text().splitlines()


def homes(folder):
    """Folders for Jupyter, so that the user's own settings do not affect the test."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    labs = ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    return {name: str(folder / name.lower()) for name in names + labs}


def printed_address(log, process):
    """Server and token from the address that is printed once the server listens."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until and process.poll() is None:
        found = re.search(
            rf"(http://127\.0\.0\.1:\d+)/lab/tree/{demo.NOTEBOOK}\?token=(\w+)", log.read_text()
        )
        if found:
            return found.groups()
        time.sleep(0.05)  # between two checks
    return pytest.fail(f"no address was printed:\n{log.read_text()}")

"""`bfcviz demo`: JupyterLab on a copy of the step-through notebook, with a training run that comes along."""

import argparse
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bfcviz import samples
from bfcviz.errors import BfcvizError, MissingExtra
from bfcviz.terminal import say

NOTEBOOK: Final = "01_step_through.ipynb"
SAMPLE: Final = "conv"
"""The sample which the notebook opens as it stands."""

_PACKAGE = Path(__file__).parents[1]
_HOMES: Final = (_PACKAGE / "notebooks", _PACKAGE.parent / "notebooks")
"""Where the notebooks lie: in an installed package, and beside a package that is run from its sources."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `bfcviz demo` takes."""
    parser.add_argument(
        "--sample",
        choices=samples.names(),
        default=SAMPLE,
        help=f"the training run to open: {', '.join(samples.names())} (default: {SAMPLE})",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("bfcviz-demo"),
        metavar="DIR",
        help="where your copy of the notebook goes (default: bfcviz-demo); one that is there is kept",
    )
    parser.add_argument(
        "--port", type=int, metavar="N", help="port of the server (default: JupyterLab's choice)"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the page's address and open no browser on it"
    )


def run(arguments: argparse.Namespace) -> None:
    """Copy the notebook and become JupyterLab.

    Raises:
        MissingExtra: JupyterLab is not installed.
        BfcvizError: the copy cannot be written.
    """
    if find_spec("jupyterlab") is None or find_spec("ipykernel") is None:
        raise MissingExtra("bfcviz demo", "JupyterLab", "lab")
    notebook = copy_notebook(arguments.dir, arguments.sample)
    command = lab_command(notebook, port=arguments.port, browser=not arguments.no_browser)
    say("Starting JupyterLab; in its page, Shift-Enter runs a cell and goes on. Ctrl-C here ends it.")
    # The same process: Ctrl-C and whatever else a shell sends goes straight to JupyterLab.
    os.execv(command[0], command)  # noqa: S606  our own interpreter


def copy_notebook(folder: Path, sample: str) -> Path:
    """Put the notebook on `sample` into `folder` and return it; a file that is there is somebody's work, and kept.

    Raises:
        BfcvizError: it cannot be written, or the installation lacks it.
    """
    name = NOTEBOOK if sample == SAMPLE else NOTEBOOK.replace(".ipynb", f"_{sample}.ipynb")
    target, text = folder / name, _on_sample(_bundled(), sample)
    try:
        if folder.exists() and not folder.is_dir():
            raise BfcvizError(
                f"{folder} is in the way: a file, not a folder; choose another folder with --dir"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if not target.is_file():
            raise BfcvizError(f"{target} is in the way; choose another folder with --dir") from None
        if target.read_bytes() != text.encode():
            say(f"Keeping your {target} as it is; for a fresh copy choose another folder with --dir.")
    except OSError as error:
        raise BfcvizError(f"cannot write {target}: {error.strerror}; choose a folder with --dir") from None
    return target


def lab_command(notebook: Path, *, port: int | None, browser: bool) -> list[str]:
    """The command line of a JupyterLab, on this same Python, that shows `notebook`."""
    options = [
        f"--ServerApp.root_dir={notebook.parent.resolve()}",
        f"--LabApp.default_url=/lab/tree/{notebook.name}",  # the address that is opened, and printed
        "--ServerApp.log_level=ERROR",
        "--LabApp.log_level=ERROR",
        "--LabApp.news_url=None",
        "--ServerApp.answer_yes=True",  # Ctrl-C asks nothing
    ]
    if port is not None:
        options += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if not browser:
        options.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")  # as in most containers; the page asks for a token either way
    return [sys.executable, "-m", "jupyterlab", *options]


def _bundled() -> str:
    for home in _HOMES:
        if (home / NOTEBOOK).is_file():
            return (home / NOTEBOOK).read_text(encoding="utf-8")
    raise BfcvizError(f"this installation of bfcviz lacks {NOTEBOOK}: install it again")


def _on_sample(text: str, sample: str) -> str:
    """The notebook's text with another sample in place of its own; unchanged for its own."""
    asked, wanted = (json.dumps(f'sample("{name}")')[1:-1] for name in (SAMPLE, sample))
    if asked not in text:
        raise BfcvizError(f"{NOTEBOOK} opens no {SAMPLE!r} sample that could be exchanged for {sample!r}")
    return text.replace(asked, wanted)

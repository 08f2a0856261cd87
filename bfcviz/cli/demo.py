"""`bfcviz demo`: open JupyterLab on a copy of the step-through notebook, with a bundled training run."""

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
SAMPLE: Final = "conv"  # the sample that the unchanged notebook opens

_PACKAGE = Path(__file__).parents[1]
NOTEBOOK_FOLDERS: Final = (_PACKAGE / "notebooks", _PACKAGE.parent / "notebooks")
"""The folders of the notebooks: in an installed package, and in a source tree."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz demo`."""
    parser.add_argument(
        "--sample",
        choices=samples.run_names(),
        default=SAMPLE,
        help=f"the training run to open: {', '.join(samples.run_names())} (default: {SAMPLE})",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("bfcviz-demo"),
        metavar="DIR",
        help="the folder for your copy of the notebook (default: bfcviz-demo); an existing copy is kept",
    )
    parser.add_argument(
        "--port", type=int, metavar="N", help="port of the server (default: JupyterLab's choice)"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address of the page, do not open a browser"
    )


def run(arguments: argparse.Namespace) -> None:
    """Copy the notebook of the demo and replace this process by JupyterLab.

    Raises:
        MissingExtra: JupyterLab is not installed.
        BfcvizError: the copy cannot be written, or the sample is not installed.
    """
    if find_spec("jupyterlab") is None or find_spec("ipykernel") is None:
        raise MissingExtra("bfcviz demo", "JupyterLab", "lab")
    samples.sample(arguments.sample)  # raises where the notebook could not open it
    notebook = copy_notebook(arguments.dir, arguments.sample)
    command = lab_command(notebook, port=arguments.port, browser=not arguments.no_browser)
    say("Starting JupyterLab. In its page, Shift-Enter runs a cell. Press Ctrl-C here to stop.")
    # The same process: Ctrl-C and other signals of the shell go straight to JupyterLab.
    os.execv(command[0], command)  # noqa: S606  this interpreter


def copy_notebook(folder: Path, sample: str) -> Path:
    """Copy the notebook of the demo, set to `sample`, into `folder` and return its path; an existing file is kept.

    Raises:
        BfcvizError: the copy cannot be written, or the installation lacks the notebook.
    """
    name = NOTEBOOK if sample == SAMPLE else NOTEBOOK.replace(".ipynb", f"_{sample}.ipynb")
    target, text = folder / name, _on_sample(_bundled_notebook(), sample)
    try:
        if folder.exists() and not folder.is_dir():
            raise BfcvizError(f"{folder} is a file, not a folder; choose another folder with --dir")
        folder.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        if not target.is_file():
            raise BfcvizError(
                f"{target} exists and is not a file; choose another folder with --dir"
            ) from None
        if target.read_bytes() != text.encode():
            say(f"{target} exists and is kept; for a new copy choose another folder with --dir.")
    except OSError as error:
        raise BfcvizError(f"cannot write {target}: {error.strerror}; choose a folder with --dir") from None
    return target


def lab_command(notebook: Path, *, port: int | None, browser: bool) -> list[str]:
    """The command line that starts JupyterLab with this Python and shows the notebook of the demo."""
    options = [
        f"--ServerApp.root_dir={notebook.parent.resolve()}",
        f"--LabApp.default_url=/lab/tree/{notebook.name}",  # the address to open and print
        "--ServerApp.log_level=ERROR",
        "--LabApp.log_level=ERROR",
        "--LabApp.news_url=None",
        "--ServerApp.answer_yes=True",  # no question after Ctrl-C
    ]
    if port is not None:
        options += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if not browser:
        options.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")  # root is common in containers; the page asks for a token in any case
    return [sys.executable, "-m", "jupyterlab", *options]


def _bundled_notebook() -> str:
    """The notebook of the demo that is installed with the package."""
    for folder in NOTEBOOK_FOLDERS:
        if (folder / NOTEBOOK).is_file():
            return (folder / NOTEBOOK).read_text(encoding="utf-8")
    raise BfcvizError(f"this installation of bfcviz lacks {NOTEBOOK}: install bfcviz again")


def _on_sample(text: str, sample: str) -> str:
    """The text of the demo's notebook with its sample replaced."""
    before, after = (json.dumps(f'sample("{name}")')[1:-1] for name in (SAMPLE, sample))
    if before not in text:
        raise BfcvizError(f"{NOTEBOOK} does not open the sample {SAMPLE!r}, so {sample!r} cannot replace it")
    return text.replace(before, after)

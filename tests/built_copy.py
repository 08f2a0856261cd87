"""A copy of the source tree, built apart: for `sanitizers.py` and `mutations.py`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from shared import ROOT

_BUILD = "from setuptools import setup; setup()"


def copy_source(folder):
    """Copy what git knows, with all changes that are not committed, to a new folder; returns it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return Path(folder)


def build(folder, modules, flags):
    """Compile some extension modules of a copy in place; the others stay Python.

    Args:
        folder: the copy.
        modules: their names in `bfcviz`.
        flags: of the C compiler and the linker, instead of the usual ones.

    Raises:
        SystemExit: one of them could not be compiled.
    """
    settings = folder / "pyproject.toml"
    text = settings.read_text()
    # `_shared`, on one line, is of all.
    for whole, name in re.findall(
        r'(?m)(^    \{ name = "bfcviz\.(\w+)"[^\n]* \[\n(?s:.*?)^    \] \},\n)', text
    ):
        text = text if name in modules else text.replace(whole, "")
    settings.write_text(text)
    more = {"BFCVIZ_CFLAGS": flags, "LDFLAGS": flags}
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, "-q", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not all((folder / "bfcviz" / f"{name}.abi3.so").exists() for name in modules):
        raise SystemExit(f"the copy in {folder} could not be compiled:\n{done.stdout}{done.stderr}")


def environment(folder, **more):
    """The environment in which a Python imports the copy."""
    places = os.pathsep.join(map(str, (folder, folder / "tests")))
    return {**os.environ, "PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1", **more}

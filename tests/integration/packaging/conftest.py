"""Two installations of this tree, each in a fresh virtual environment: one with a compiler, one without.

Only what bfcviz needs to run is borrowed from the environment of the tests, so nothing is downloaded.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from processes import COMPILED
from shared import ROOT

_TREE = ("bfcviz", "notebooks", "pyproject.toml", "README.md", "LICENSE")
_LEFT_OUT = shutil.ignore_patterns("*.so", "__pycache__", "build", "*.egg-info", ".ipynb_checkpoints")


class Installation:
    """A virtual environment with bfcviz in it."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / "bin"

    def run(self, program, *words, **variables):
        """Output of a program of this environment, run where no source of ours lies; fails if it does."""
        done = subprocess.run(
            [self.bin / program, *words],
            cwd=self.folder,
            env={**_ENVIRONMENT, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done


_ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("BFCVIZ_", "PYTHON", "COV_", "VIRTUAL_ENV"))
} | {"BFCVIZ_CACHE": "off"}


def build(source, out, **variables):
    """A wheel made of `source` as `pip wheel` lets it be made, with the setuptools and Cython that are at hand."""
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env={**_ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def install(wheel, folder):
    """The wheel in an environment of its own."""
    venv.create(folder, with_pip=False)
    made = Installation(folder)
    place = Path(
        made.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    )
    # What we depend on comes from here. Lines of a .pth file are not searched for further .pth files, and they
    # come last: an editable bfcviz of this environment stays out.
    (place / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--python",
        made.bin / "python",
    ]
    words = ["install", "--no-deps", "--no-index", "--ignore-installed", "--no-compile", wheel]
    subprocess.run([*pip, *words], check=True)
    return made


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    """A copy of what is packaged, without anything compiled; Cython translates what is newer than its C."""
    folder = tmp_path_factory.mktemp("tree")
    if (ROOT / "build" / "cython").is_dir():
        shutil.copytree(ROOT / "build" / "cython", folder / "build" / "cython")
    for name in _TREE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=_LEFT_OUT)
        else:
            shutil.copy2(source, folder / name)
    return folder


_COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then out=$2; fi
    shift
done
case $out in
    *.so) cp "{modules}/${{out##*/}}" "$out" ;;
    *) : > "$out" ;;
esac
"""


@pytest.fixture(scope="session")
def wheel(tree, tmp_path_factory):
    """The wheel, with the binaries of the installation that is tested: it was just compiled from the same tree."""
    if not COMPILED:
        pytest.skip("bfcviz is not compiled here")
    compiler = tmp_path_factory.mktemp("compiler") / "cc"
    compiler.write_text(_COMPILER.format(modules=ROOT / "bfcviz"))
    compiler.chmod(0o755)
    return build(tree, tmp_path_factory.mktemp("wheel"), CC=str(compiler), CXX=str(compiler))


@pytest.fixture(scope="session")
def samples_wheel(tree, tmp_path_factory):
    """The second wheel, `bfcviz-samples`."""
    return build(tree / "bfcviz" / "samples", tmp_path_factory.mktemp("samples"))


@pytest.fixture(scope="session")
def compiled(wheel, tmp_path_factory):
    return install(wheel, tmp_path_factory.mktemp("compiled") / "venv")


@pytest.fixture(scope="session")
def uncompiled(tree, tmp_path_factory):
    """As on a machine without a compiler."""
    for built in (*tree.glob("build/lib*"), *tree.glob("build/temp*")):
        shutil.rmtree(built)
    plain = build(tree, tmp_path_factory.mktemp("plain"), CC="/bin/false", CXX="/bin/false")
    return install(plain, tmp_path_factory.mktemp("uncompiled") / "venv")

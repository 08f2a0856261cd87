"""Test with the lowest and the newest version of each dependency: `python tests/bounds.py`, weekly and at a release.

A copy of this checkout is installed and tested in a fresh environment: once with the lowest versions that
pyproject.toml allows, on the lowest Python, and once with the newest.
`python tests/bounds.py lowest tests/unit/figures` runs one of both with these arguments of pytest.
Exit status 1 if a test failed.

A run with the lowest versions that passes writes them to `LOWEST`; tests/integration/packaging/test_bounds.py
compares them with pyproject.toml, so that a changed bound is tested before it is declared.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
LOWEST = ROOT / "tests" / "data" / "lowest_versions.json"
PYTHON = {"lowest": "3.11", "newest": sys.executable}
RESOLUTION = {"lowest": "lowest-direct", "newest": "highest"}
WARNINGS = {"lowest": ["-o", "filterwarnings=default"], "newest": []}  # old packages warn of each other
ALL = [
    "tests",
    "--ignore=tests/integration/attacks",
    "--ignore=tests/test_habits.py",  # the lint is for the newest tools
    "--ignore=tests/integration/packaging/test_bounds.py",  # of the versions that this run will write
]
OTHER_CUPY = ("cupy-cuda12x", "cupy-cuda13x")  # one at a time can be installed
OTHER_CUPY_TESTS = ["tests/unit/live/cupy"]


def main():
    versions = [word for word in sys.argv[1:] if word in RESOLUTION] or list(RESOLUTION)
    tests = [word for word in sys.argv[1:] if word not in RESOLUTION]
    results = {each: tested(each, tests or ALL) for each in versions}
    for each, (passed, found) in results.items():
        print(
            f"{each}: {'passed' if passed else 'FAILED'} with {' '.join(f'{name}=={found[name]}' for name in found)}"
        )
    if "lowest" in results and results["lowest"][0]:
        LOWEST.write_text(
            json.dumps({"tests": tests or ALL, "versions": results["lowest"][1]}, indent=1) + "\n"
        )
    return int(not all(passed for passed, _ in results.values()))


def tested(which, tests):
    """Whether the tests pass, and the versions of the declared packages that they ran with."""
    with tempfile.TemporaryDirectory(prefix="bfcviz-bounds-") as folder:
        home, python = Path(folder) / "bfcviz", Path(folder) / "env" / "bin" / "python"
        copy_checkout(home)
        uv("venv", "-q", "--seed", "-p", PYTHON[which], python.parents[1])
        uv("pip", "install", "-q", "-p", python, "--resolution", RESOLUTION[which], "-e", f"{home}[dev]")
        passed, found = run(python, home, [*WARNINGS[which], *tests]), installed(python)
        before, other = OTHER_CUPY
        bound = next(text for name, text in declared(home) if name == other)
        uv("pip", "uninstall", "-q", "-p", python, before)
        uv("pip", "install", "-q", "-p", python, "--resolution", RESOLUTION[which], bound)
        passed &= run(python, home, [*WARNINGS[which], *OTHER_CUPY_TESTS])
        found = {**installed(python), **found}
        return passed, {
            name: found[name] for name in sorted({name for name, _ in declared(home)}) if name in found
        }


def copy_checkout(home):
    """What git tracks or would track: a build in it leaves this checkout as it is."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, home / name)


def declared(home=ROOT):
    """Name and requirement of each package that pyproject.toml names for users: not those of `dev` and `docs`."""
    project = tomllib.loads((home / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    texts = [
        *project["dependencies"],
        *(each for name in extras.keys() - {"dev", "docs"} for each in extras[name]),
    ]
    named = [(Requirement(text).name, text) for text in sorted(set(texts))]
    return [(name, text) for name, text in named if name != "bfcviz"]  # an extra may include another


def installed(python):
    """Name -> version."""
    listed = uv("pip", "list", "-q", "-p", python, "--format", "json", stdout=subprocess.PIPE).stdout
    return {each["name"]: each["version"] for each in json.loads(listed)}


def run(python, home, arguments):
    """Whether pytest passes."""
    print("+ pytest", *arguments, flush=True)
    return subprocess.run([python, "-m", "pytest", "-q", *arguments], cwd=home, check=False).returncode == 0


def uv(*words, **options):
    return subprocess.run([Path(sys.executable).with_name("uv"), *words], check=True, **options)


if __name__ == "__main__":
    sys.exit(main())

"""For all tests: Hypothesis without deadlines (machines are noisy); under CI fewer examples, always the same.

The tests also pass, more slowly, if bfcviz is not compiled; BFCVIZ_UNCOMPILED stops each process from warning about it.
"""

import gc
import os
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

# Takes seconds to import: a parser of IRIs that jsonschema, and so nbformat, uses if it is there.
sys.modules.setdefault("rfc3987_syntax", None)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes every child ignore it, and tests send it
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # so does a shell that starts a program in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests run beside each other: a second thread of linear algebra would only wait, and keep a core busy with it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# The same pages and pictures without the windows around them, for a seventh to a third less of the processor.
if headless := shutil.which("chromium-headless-shell"):
    os.environ.setdefault("BROWSER_PATH", headless)

os.environ["BFCVIZ_CACHE"] = "off"  # a test imports what it opens, and leaves nothing in the user's home

if find_spec("bfcviz._heap") is None:
    os.environ["BFCVIZ_UNCOMPILED"] = "1"

gc.disable()  # until all tests are there: to look through them and their modules takes a third of that time

settings.register_profile("bfcviz", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, max_examples=30)
settings.load_profile("ci" if os.environ.get("CI") else "bfcviz")

LONG = (
    "integration/browser/",
    "integration/packaging/test_wheel.py",
    "test_habits.py",
    "integration/allocator/test_uncompiled.py",
    "integration/notebooks/",
    "properties/",
    "integration/",
)
"""Tests that take longest begin first, so that all processes end at about the same time."""

MANY_OBJECTS = 50_000
"""To search these for garbage takes about 10 ms; some tests do it twenty times."""


PLUGINS = {
    "xdist": (
        "xdist_group(name)",
        {"--numprocesses": "store", "--dist": "store", "--no-loadscope-reorder": "store_true"},
    ),
    "pytest_timeout": ("timeout(seconds)", {"--timeout": "store"}),
    "pytest_rerunfailures": ("flaky(reruns, only_rerun)", {}),
}
"""Plugins of the set-up for work on bfcviz: a marker of each, and the options of it in `addopts`.

A machine with a GPU may lack them. There the options and markers exist without effect: the tests run one by one.
"""

MISSING = [name for name in PLUGINS if find_spec(name) is None]


def pytest_addoption(parser):
    for name in MISSING:
        for option, action in PLUGINS[name][1].items():
            parser.addoption(option, action=action, help=f"without effect: {name} is not installed")


def pytest_configure(config):
    for name in MISSING:
        config.addinivalue_line("markers", f"{PLUGINS[name][0]}: without effect, {name} is not installed")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """The tests of a file stay in one process, and so do those of all browser pages: they share a server."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid):
            shared = "tests/integration/browser/"
            return shared if nodeid.startswith(shared) else super()._split_scope(nodeid)

    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    """Each worker begins with other files: what it compiles is in the cache when the others come to it."""
    worker = getattr(session.config, "workerinput", None)
    folders = [Path(path).resolve() for path in session.config.args]
    here = Path(__file__).parent
    if worker is not None and all(folder.is_dir() and folder.is_relative_to(here) for folder in folders):
        files = [str(file) for folder in folders for file in sorted(folder.rglob("test_*.py"))]
        first = int(worker["workerid"].removeprefix("gw")) * len(files) // worker["workercount"]
        session.config.args = files[first:] + files[:first]


def pytest_collection_modifyitems(items):
    def place(item):
        path = item.nodeid.partition("::")[0].removeprefix("tests/")
        return next((rank for rank, start in enumerate(LONG) if path.startswith(start)), len(LONG)), path

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """Garbage is then looked for among what the tests make, not among some 300,000 objects of modules and tests."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _search_less_for_garbage():
    """What the tests of earlier files keep, such as the bundled runs, is not searched again either."""
    if len(gc.get_objects(generation=2)) > MANY_OBJECTS:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _close_widgets():
    """Close the dashboards that a test left open: else they close while Python unloads its modules."""
    yield
    if "bfcviz.dashboard.widget_lifetime" in sys.modules:
        from ipywidgets.widgets.widget import _instances  # noqa: PLC0415

        from bfcviz.dashboard import widget_lifetime  # noqa: PLC0415

        for dashboard in list(widget_lifetime.roots):
            dashboard.close()
        widget_lifetime.close(*_instances.values())

"""The magics, and watch itself, in a real kernel: what each cell shows, and what is left after an error."""

import re

import pytest
from integration.watching.kernels import kernel

import bfcviz

FRAGMENT = """
with bfcviz.label("layers"):
    held = [np.empty(1 << 20) for _ in range(7)]
del held[1::2]
with bfcviz.label("attention"):
    np.empty(3 << 20)
"""
IS_PLAIN = "numpy_api.get_handler() is numpy_api.default_handler()"


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    with kernel(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("work")) as shell:
        prepare(shell)
        yield shell


@pytest.fixture(autouse=True)
def as_it_was(request):
    yield
    if "shell" in request.fixturenames:
        assert request.getfixturevalue("shell").ask(IS_PLAIN) == "True"


def prepare(shell):
    numpy_api = "from bfcviz.live import numpy as numpy_api"
    code = f"%load_ext bfcviz\nimport numpy as np, bfcviz\n{numpy_api}\n%xmode Minimal"
    assert shell.run(code).error is None


# -- %%bfcviz ------------------------------------------------------------------------------------------------


def test_a_recorded_cell_shows_its_peak_and_the_holders(shell):
    shown = shell.run(
        "%%bfcviz --numpy --limit 64MiB --into run\n"
        "with bfcviz.label('forward'):\n    a = np.empty(1 << 20)\nprint('worked')\na.nbytes"
    )
    assert shown.error is None
    assert shown.text == "worked\n8388608"  # the output, and the value of the last expression
    (html,) = shown.html
    assert "NumPy is served" in html
    assert "Peak: 8.0 MiB in use" in html
    assert "100% held by forward" in html
    assert "<svg" in html
    assert (shown.figures, shown.order) == (0, ["html"])
    assert shell.ask("a.nbytes, len(run.trace) >= 2, type(run).__name__") == "8388608 True Watch"


def test_a_semicolon_shows_no_value_and_an_empty_cell_no_map(shell):
    shown = shell.run("%%bfcviz --limit 1MiB\n1 + 1;")
    assert (shown.text, shown.figures) == ("", 0)
    assert "No allocation" in shown.html[0]
    assert "<svg" not in shown.html[0]


def test_an_allocation_without_a_label_is_named_by_its_cell_and_line(shell):
    (html,) = shell.run("%%bfcviz\ndef work():\n    return np.empty(10_000)\na = work()").html
    assert re.search(r"100% held by In\[\d+\]:2 work<", html)
    run = shell.ask("next(n for n, cell in enumerate(In) if 'def work' in cell)")
    assert f"In[{run}]:2 work" in html
    (html,) = shell.run("%%bfcviz --capture label\na = np.empty(10_000)").html
    assert "In[" not in html


def test_where_memory_runs_out_the_heap_is_shown_before_the_error(shell):
    shown = shell.run(f"%%bfcviz --limit 64MiB --path oom\n{FRAGMENT}")
    assert "MemoryError: Unable to allocate 24.0 MiB" in shown.error
    assert shown.order == ["html", "error"]
    assert "attention failed to allocate 24.0 MiB" in shown.html[0]
    assert "fragmented by layers" in shown.html[0]
    assert shell.ask("bfcviz.open('oom').origin.status") == "complete"


def test_an_exception_in_the_cell_is_the_cells(shell):
    shown = shell.run("%%bfcviz --limit 64MiB --into broken\nnp.empty(1000)\n1 / 0")
    assert (shown.error, shown.order) == ("ZeroDivisionError: division by zero", ["error"])
    assert shell.ask("broken.report().stats.requested_bytes_in_use") == "8000"
    assert "Peak" in shell.run("%%bfcviz --limit 64MiB\nnp.empty(1000)").html[0]


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("--tensorflow", "unrecognized arguments: --tensorflow"),
        ("--limit", "expected one argument"),
        ("--into 3x", "--into 3x"),
        ("--limit much", "limit='much'"),
        ("--limit 100000TiB", "this machine has"),
    ],
)
def test_a_wrong_line_is_refused_and_the_cell_does_not_run(shell, line, facts):
    shown = shell.run(f"%%bfcviz {line}\nprint('ran')")
    assert facts in f"{shown.error}{shown.text}"
    assert "ran\n" not in shown.text


# -- %bfcviz_live --------------------------------------------------------------------------------------------


def test_live_shows_what_runs_in_later_cells_until_it_is_ended(shell):
    begun = shell.run("%bfcviz_live --limit 64MiB")
    assert (begun.error, begun.widgets) == (None, 1)
    w = "bfcviz.Watch.current"
    assert shell.run(f"w = {w}\nbefore = w.sources[0].allocator.stats().num_allocs").error is None
    shell.run("b = np.empty(1000)")
    assert shell.ask("w.sources[0].allocator.stats().num_allocs - before") == "1"
    again = shell.run("%bfcviz_live")
    assert "already shown" in again.error
    inside = shell.run("%%bfcviz\n1")
    assert "another watch is running" in inside.error
    failed = shell.run(FRAGMENT)
    assert "MemoryError" in failed.error
    assert {*failed.order} == {"html", "error"}
    assert "needed 24.0 MiB" in shell.ask("w.dashboard.notices")
    assert shell.run("%bfcviz_live off").error is None
    assert shell.ask("w.dashboard.renderer.running, w.errors") == "False []"
    assert "no live dashboard" in shell.run("%bfcviz_live off").text


def test_between_cells_the_kernel_has_its_own_memory(shell):
    shell.run("%bfcviz_live --limit 64MiB")
    note = f"def note(_):\n    seen.append({IS_PLAIN})\nseen = []"
    shell.run(f"{note}\nget_ipython().events.register('post_run_cell', note)")
    assert shell.ask(IS_PLAIN) == "False"
    assert shell.ask("seen") == "[True, True]"
    shell.run("%bfcviz_live off\nget_ipython().events.unregister('post_run_cell', note)")


def test_unloading_the_extension_ends_it(shell):
    shell.run("%bfcviz_live --limit 64MiB")
    assert shell.run("%unload_ext bfcviz").error is None
    assert shell.ask(f"{IS_PLAIN}, bfcviz.Watch.current") == "True None"
    assert "%bfcviz_live` not found" in shell.run("%bfcviz_live").text
    prepare(shell)


# -- watch in a kernel ---------------------------------------------------------------------------------------


def test_watch_displays_its_dashboard_under_the_cell(shell):
    shown = shell.run("with bfcviz.watch(limit='64MiB') as w:\n    np.empty(1000)")
    assert (shown.error, shown.widgets) == (None, 1)
    shown = shell.run("with bfcviz.watch(limit='64MiB', dashboard=False) as w:\n    np.empty(1000)")
    assert shown.widgets == 0


HOLDING = """
with bfcviz.watch(limit='64MiB', path='held') as w:
    held = np.empty(1000)
    print('up', flush=True)
    while True:
        pass
"""


def test_an_interrupt_ends_the_cell_and_the_watch(shell):
    shell.start(HOLDING)
    shell.manager.interrupt_kernel()
    assert shell.rest().error.startswith("KeyboardInterrupt")
    assert shell.ask(f"{IS_PLAIN}, w.trace.origin.status, bfcviz.Watch.current") == "True complete None"


def test_after_a_restart_a_new_watch_starts_and_the_old_recording_opens(shell):
    shell.start(HOLDING.replace("'held'", "'run'"))
    shell.restart()
    prepare(shell)
    assert shell.run("with bfcviz.watch(path='run') as w:\n    np.empty(1000)").error is None
    assert shell.ask("w.folder.name") == "run-2"
    first = bfcviz.open(shell.work / "run")
    assert first.origin.status == "truncated"
    assert len(first) >= 3

"""The dashboard of a watch: when it is made, what it shows, and that its own arrays stay off the heap."""

import time

import numpy as np
import pytest
from heaps import MIB

import bfcviz

PATIENCE_S = 60


def watched(**options):
    return bfcviz.watch(**{"numpy": True, "limit": "64MiB", **options})


def test_without_a_notebook_it_is_made_on_first_use():
    with watched() as w:
        held = np.ones(MIB)
        dashboard = w.dashboard
        assert w.dashboard is dashboard
        assert dashboard.traces == w.traces
        assert dashboard.renderer.running
        assert "NumPy is served" in dashboard.says_line.value
        assert not dashboard.renderer.thread.name.startswith("bfcviz-monitor")
    assert not dashboard.renderer.running
    assert dashboard.inspector.step == len(w.trace)
    assert f"ended: {len(w.trace):,} events" in dashboard.status.value
    assert "has ended" in dashboard.says_line.value
    assert dashboard.pause_button.layout.display == "none"
    assert dashboard.inspector.controls.buttons["follow"].layout.display == "none"
    dashboard.inspector.act("back")
    assert dashboard.inspector.controls.buttons["follow"].layout.display == "none"
    assert held.nbytes == 8 * MIB
    dashboard.close()


def test_the_arrays_of_pictures_are_not_on_the_heap():
    with watched() as w:
        dashboard = w.dashboard
        made = w.sources[0].allocator.stats
        before = made().num_allocs
        np.empty(1000)
        dashboard.refresh()
        dashboard.stop()
        np.empty(1000)
        dashboard.start()
        pictures = dashboard.pictures
        dashboard.run(np.empty, 1000).result(PATIENCE_S)
        until = time.monotonic() + PATIENCE_S
        while dashboard.pictures == pictures and time.monotonic() < until:
            time.sleep(0.01)  # between two checks
        assert made().num_allocs == before + 3
    dashboard.close()


def test_made_after_the_end_it_shows_the_last_step():
    with watched() as w:
        np.ones(MIB)
    dashboard = w.dashboard
    assert not dashboard.renderer.running
    assert dashboard.inspector.step == len(w.trace)
    dashboard.close()


def test_the_dashboard_of_a_recording_says_that_it_is_complete(tmp_path):
    with watched(path=tmp_path / "run") as w:
        dashboard = w.dashboard
        np.ones(MIB)
    assert f"ended (complete): {len(w.trace):,} events" in dashboard.status.value
    dashboard.close()


@pytest.mark.parametrize(
    ("error", "how"), [(KeyboardInterrupt, "interrupted"), (ValueError, "ended by ValueError")]
)
def test_it_says_what_ended_the_watch(tmp_path, error, how):
    w = watched(path=tmp_path / "run")

    def work():
        with w:
            w.dashboard.pause()
            np.ones(MIB)
            raise error

    with pytest.raises(error):
        work()
    dashboard = w.dashboard
    assert f"{how} (complete): {len(w.trace):,} events" in dashboard.status.value
    assert dashboard.pause_button.layout.display == "none"
    dashboard.close()


def test_it_shows_the_newest_notices_only():
    with bfcviz.watch(numpy=True, limit="1MiB") as w:
        dashboard = w.dashboard
        for number in range(9):
            dashboard.notice(f"<notice {number}>")
    shown = dashboard.notice_box.value
    assert "(4 earlier" in shown
    assert "&lt;notice 8&gt;" in shown
    assert "&lt;notice 3&gt;" not in shown
    dashboard.close()

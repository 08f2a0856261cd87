"""The picture of all workers: its order, numbers and places, read back from the HTML."""

import re

import numpy as np
import pytest

from bfcviz.figures.worker_rows import (
    MOST_ROWS,
    ORDERS,
    WorkerRow,
    WorkerRowState,
    ordered_worker_rows,
    workers_html,
)
from bfcviz.units import MiB


def row(name, **facts):
    times = np.array(facts.pop("times", [0.0, 1.0, 2.0]))
    use = np.full(len(times), facts.get("in_use", 10 * MiB))
    plain = {
        "state": WorkerRowState.LIVE,
        "in_use": 10 * MiB,
        "pool": 40 * MiB,
        "free": 30 * MiB,
        "largest_free": 20 * MiB,
        "limit": 64 * MiB,
        "failed": 0,
        "started_s": 1000.0,
    }
    given = {**plain, **facts}
    return WorkerRow(
        name, times=times, in_use_most=use, pool_most=np.full(len(times), given["pool"]), **given
    )


def names_in(html):
    return re.findall("data-worker='([^']*)'", html)


def path_of(html, kind):
    return [
        [float(x) for x in re.findall(r"H([\d.]+)", path)]
        for path in re.findall(f"class='{kind}' d='([^']*)'", html)
    ]


WORKERS = [
    row("tight", pool=60 * MiB, largest_free=2 * MiB, free=3 * MiB, in_use=57 * MiB),
    row("roomy"),
    row("fragmented", largest_free=1 * MiB),
    row("gone", state=WorkerRowState.LOST, limit=None, largest_free=0),
]


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("least head room", ["tight", "fragmented", "roomy", "gone"]),
        ("most fragmented", ["fragmented", "roomy", "tight", "gone"]),
        ("most in use", ["tight", "fragmented", "roomy", "gone"]),
        ("name", ["tight", "roomy", "fragmented", "gone"]),
    ],
)
def test_the_worst_live_worker_is_the_first(order, names):
    assert [each.name for each in ordered_worker_rows(WORKERS, order)] == names
    assert order in ORDERS


def test_the_head_room_is_a_free_chunk_or_growth():
    assert row("a").head_room == 24 * MiB
    assert row("a", largest_free=25 * MiB).head_room == 25 * MiB
    assert row("a", limit=None).head_room == 20 * MiB
    assert row("a", pool=70 * MiB).head_room == 20 * MiB
    assert (row("a").fragmentation, row("a", free=0).fragmentation) == (pytest.approx(1 / 3), 0.0)


def test_every_worker_has_a_row_and_the_chosen_one_is_marked():
    html = workers_html(WORKERS, chosen="roomy")
    assert names_in(html) == [each.name for each in WORKERS]
    assert re.findall("class='row chosen'[^>]*data-worker='([^']*)'", html) == ["roomy"]
    assert "4 workers: 3 live, 1 lost" in html
    assert "<b>tight</b>" in html


def test_all_workers_share_one_time_axis():
    early, late = row("early", times=[0.0, 5.0]), row("late", started_s=1005.0, times=[0.0, 5.0])
    unknown = row("unknown", started_s=None, times=[0.0, 10.0], state=WorkerRowState.ENDED)
    found = path_of(workers_html([early, late, unknown]), "in-use")
    assert found == [[0.0, 300.0, 600.0], [300.0, 600.0, 600.0], [0.0, 600.0, 600.0]]


def test_a_limit_far_above_all_pools_is_told_and_not_drawn():
    near, far = workers_html([row("a")]), workers_html([row("a", limit=640 * MiB)])
    assert [html.count("<path class='limit'") for html in (near, far)] == [1, 0]
    assert "640.0 MiB" in far


def test_many_workers_are_cut_and_their_number_is_told():
    html = workers_html([row(f"w{number}") for number in range(MOST_ROWS + 7)])
    assert len(names_in(html)) == MOST_ROWS
    assert "7 more" in html


def test_no_worker_and_a_worker_without_events():
    assert names_in(workers_html([])) == []
    quiet = row(
        "quiet", times=[], pool=0, in_use=0, free=0, largest_free=0, limit=None, state=WorkerRowState.ENDED
    )
    assert names_in(workers_html([quiet])) == ["quiet"]


def test_names_from_a_cluster_are_harmless():
    html = workers_html([row("<img src=x onerror='1'>", problem="<b>\u202e")])
    assert "<img" not in html
    assert "\u202e" not in html
    assert html.count("onerror='1'") == 0


def test_failed_requests_are_counted():
    html = workers_html([row("a", failed=2), row("b", failed=1)])
    assert "3 failed requests</b> in 2 workers" in html
    assert "1 failed request</b> in b." in workers_html([row("a"), row("b", failed=1)])
    assert "2 failed<" in html

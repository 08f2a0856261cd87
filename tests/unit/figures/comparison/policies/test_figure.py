"""The whole figure of a comparison."""

from dataclasses import replace

import pyarrow as pa
import pytest
from unit.figures.comparison.policies.compared import FAILS, FITS, JOB, REFUSED

from bfcviz.figures.policy_comparison import comparison_figure, curves_figure
from bfcviz.figures.view_options import Look


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("policies", [[FITS], [FITS, FAILS, REFUSED], [REFUSED], [FITS, FAILS] * 4])
def test_every_panel_is_inside_and_named(theme, policies):
    table = pa.table({"policy": [policy.name for policy in policies]})
    picture = comparison_figure(JOB, policies, table, Look(theme=theme))
    assert len(picture.notes) == 2 + len(policies)
    assert picture.table is table
    assert "16.0 MiB" in picture.facts
    for axis in [picture.layout[name] for name in picture.layout if name.startswith("yaxis")]:
        assert 0 <= axis.domain[0] < axis.domain[1] <= 1


def test_no_policy_is_an_empty_figure():
    assert len(comparison_figure(JOB, []).notes) == 2


def test_curves_alone():
    assert len(curves_figure(JOB, [FITS, FAILS]).notes) == 2


def test_the_verdict_is_the_title_and_the_best_policy_the_first_row():
    job = replace(JOB, verdict="<i>Least memory")
    plan = replace(FITS, name="packed", is_allocator=False)
    picture = comparison_figure(job, [plan, FAILS, REFUSED, FITS])
    verdict = picture.layout.annotations[-1]
    assert "&lt;i&gt;Least memory" in verdict.text
    assert picture.layout.title.text is None  # an export puts the facts there
    rows = picture.layout.yaxis.ticktext
    assert [row.partition("<br>")[0].rstrip(":") for row in rows] == ["fits", "fails", "refused", "packed"]

"""The figure of a comparison: peak pool and fragmentation of each policy, and its bytes over the job.

::

    +-----------------+  +------------+
    | peak pool       |  | shares     |   a row a policy
    +-----------------+  +------------+
    +-------+ +-------+ +-------+
    | curve | | curve | | curve |         a panel a policy
    +-------+ +-------+ +-------+
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from bfcviz.figures.comparison.policies.byte_axis import ByteAxis
from bfcviz.figures.comparison.policies.compared_policy import ComparedJob, ComparedPolicy, best_first
from bfcviz.figures.comparison.policies.curves import CurvePanels, curve_table
from bfcviz.figures.comparison.policies.peaks import peaks_panel, row_height, shares_panel
from bfcviz.figures.panel import BELOW, Margins, Panel, Picture, Place, compose
from bfcviz.figures.style.text import harmless
from bfcviz.figures.style.view_options import PLAIN, Look
from bfcviz.units import format_bytes

COLUMNS_OF_CURVES: Final = 2
"""Panels beside each other."""

_CURVE: Final = 130  # pixels of the height of a curve's plot
_GAP: Final = 0.06  # of the width, between panels
_LETTER: Final = 6.6  # pixels of a letter of a name
_VERDICT: Final = 34  # pixels of the title
_PEAKS: Final = 0.62  # of the width


def comparison_figure(
    job: ComparedJob, policies: Sequence[ComparedPolicy], table: pa.Table | None = None, look: Look = PLAIN
) -> Picture:
    """Peak pool, fragmentation and bytes over the job under each policy.

    Args:
        job: what all of them served.
        policies: drawn with the best first.
        table: the numbers, for export.
        look: the theme.
    """
    theme, policies = look.paints, best_first(policies)
    top = [peaks_panel(job, policies, theme), shares_panel(policies, theme)]
    height = row_height(policies) * max(len(policies), 1)
    first = max(panel.above for panel in top)
    places = [Place(0.0, _PEAKS, first, height), Place(_PEAKS + 0.03, 1.0, first, height)]
    curves, below = _curves(job, policies, look, first + height + BELOW)
    longest = max((len(line) for policy in policies for line in policy.lines), default=0)
    margins = Margins(left=max(90, int(_LETTER * longest) + 16), right=24)
    picture = compose([*top, *curves], [*places, *below], theme, margins).with_facts(facts_of(job))
    _add_verdict(picture, job)
    return picture if table is None else picture.with_table(table)


def _add_verdict(picture: Picture, job: ComparedJob) -> None:
    """The verdict in a strip of its own above all panels; no title of plotly's, which an export uses for the facts."""
    if job.verdict:
        top = picture.layout.margin.t + _VERDICT
        picture.update_layout(height=picture.layout.height + _VERDICT, margin={"t": top})
        picture.add_annotation(
            text=f"<b>{harmless(job.verdict)}</b>",
            font={"size": 16},
            showarrow=False,
            xref="paper",
            x=0,
            xanchor="left",
            xshift=12 - picture.layout.margin.l,
            yref="paper",
            y=1,
            yanchor="top",
            yshift=top - 8,
        )


def curves_figure(job: ComparedJob, policies: Sequence[ComparedPolicy], look: Look = PLAIN) -> Picture:
    """Bytes over the job under each policy, on the same axes; its table has the points."""
    panels, places = _curves(job, best_first(policies), look, 0)
    picture = compose(panels, places, look.paints, Margins(right=24)).with_facts(facts_of(job))
    return picture.with_table(curve_table(policies))


def facts_of(job: ComparedJob) -> str:
    """The job in one line, escaped."""
    limit = "no limit" if job.limit is None else f"limit {format_bytes(job.limit)}"
    return f"{harmless(job.source) or 'requests'} · {job.requests:,} requests · {limit}"


def _curves(
    job: ComparedJob, policies: Sequence[ComparedPolicy], look: Look, above: int
) -> tuple[list[Panel], list[Place]]:
    """The panels of the allocators, in rows; the first one has the legend."""
    shown = [policy for policy in policies if policy.is_allocator] or list(policies)
    fails = any(policy.failed is not None for policy in shown)
    curves = CurvePanels(job, ByteAxis.of(job, shown), look.paints, fails)
    columns = max(1, min(COLUMNS_OF_CURVES, len(shown)))
    panels = [
        curves.panel(number, policy, legend=number == 0 if number < columns else None)
        for number, policy in enumerate(shown)
    ]
    width = (1 - _GAP * (columns - 1)) / columns
    places = []
    top = above + max((panel.above for panel in panels), default=0)
    for number in range(len(panels)):
        if number and not number % columns:
            top += _CURVE + BELOW + panels[-1].above
        left = (number % columns) * (width + _GAP)
        places.append(Place(left, left + width, top, _CURVE))
    return panels, places

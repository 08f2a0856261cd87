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
from bfcviz.figures.comparison.policies.compared_policy import ComparedJob, ComparedPolicy
from bfcviz.figures.comparison.policies.curves import CurvePanels
from bfcviz.figures.comparison.policies.peaks import ROW, peaks_panel, shares_panel
from bfcviz.figures.panel import BELOW, Margins, Panel, Picture, Place, compose
from bfcviz.figures.style.text import harmless
from bfcviz.figures.style.view_options import PLAIN, Look
from bfcviz.units import format_bytes

COLUMNS_OF_CURVES: Final = 3
"""Panels beside each other."""

_CURVE: Final = 130  # pixels of the height of a curve's plot
_GAP: Final = 0.06  # of the width, between panels
_MARGINS: Final = Margins(left=172, right=24)
_PEAKS: Final = 0.56  # of the width


def comparison_figure(
    job: ComparedJob, policies: Sequence[ComparedPolicy], table: pa.Table | None = None, look: Look = PLAIN
) -> Picture:
    """Peak pool, fragmentation and bytes over the job under each policy.

    Args:
        job: what all of them served.
        policies: in the order of the rows.
        table: the numbers, for export.
        look: the theme.
    """
    theme = look.paints
    top = [peaks_panel(job, policies, theme), shares_panel(policies, theme)]
    height = ROW * max(len(policies), 1)
    first = max(panel.above for panel in top)
    places = [Place(0.0, _PEAKS, first, height), Place(_PEAKS + 0.03, 1.0, first, height)]
    curves, below = _curves(job, policies, look, first + height + BELOW)
    picture = compose([*top, *curves], [*places, *below], theme, _MARGINS).with_facts(facts_of(job))
    return picture if table is None else picture.with_table(table)


def curves_figure(
    job: ComparedJob, policies: Sequence[ComparedPolicy], table: pa.Table | None = None, look: Look = PLAIN
) -> Picture:
    """Bytes over the job under each policy, on the same axes."""
    panels, places = _curves(job, policies, look, 0)
    picture = compose(panels, places, look.paints, Margins(right=24)).with_facts(facts_of(job))
    return picture if table is None else picture.with_table(table)


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

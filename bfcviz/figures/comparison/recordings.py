"""Two recordings compared: memory over time, B laid over A; and the holders that make the difference of the peaks."""

from dataclasses import replace
from typing import Final

from bfcviz.figures.comparison.changed_holders import changed_holders_panel
from bfcviz.figures.comparison.recording_curves import LONGEST_TITLE, recording_curves_panel
from bfcviz.figures.panel import BELOW, Picture, Place, compose
from bfcviz.figures.style.text import harmless
from bfcviz.figures.style.theme import ThemeName, theme_of
from bfcviz.model.comparison.alignment import AlignedBy
from bfcviz.model.comparison.recording_comparison import AT_PEAK, RecordingComparison
from bfcviz.model.comparison.text import peaks_text

_OVER_TIME: Final = 300  # pixels of height
_ROW: Final = 26
_NAMES: Final = 30  # characters of a recording's name


def recordings_compared(found: RecordingComparison, theme: ThemeName = "light") -> Picture:
    """The comparison of two recordings as a figure; its table has every holder at the peaks."""
    colours = theme_of(theme)
    panels = [changed_holders_panel(found, colours)]
    if found.alignment.by is AlignedBy.STATE:
        panels = [replace(panels[0], title=harmless(peaks_text(found), LONGEST_TITLE))]
    else:
        panels.insert(0, recording_curves_panel(found, colours))
    heights = [_OVER_TIME] * (len(panels) - 1) + [_ROW * max(len(panels[-1].traces[0]["y"]), 3)]
    places, top = [], 0
    for panel, height in zip(panels, heights, strict=True):
        places.append(Place(0.0, 1.0, top + panel.above, height))
        top += panel.above + height + BELOW
    facts = " · ".join(
        f"{side.letter}: {harmless(side.name, _NAMES)}, {harmless(side.heap, _NAMES)}, {side.status}"
        for side in (found.a, found.b)
    )
    return compose(panels, places, colours).with_table(found.holders_at(AT_PEAK)).with_facts(facts)

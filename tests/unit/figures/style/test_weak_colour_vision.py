"""Five pictures of a real run: what their legends and bars tell apart stays apart under every kind of colour vision."""

import re
from itertools import combinations

import pytest
from shared import sample_trace
from unit.figures.style.test_theme import A_SHADE, SIGHTS, distance

import bfcviz
from bfcviz.figures.theme import mixed, theme_of

SINCE = 33_000
FIVE = {
    "region_map": {"since": SINCE},
    "active_memory": {"colour": "holder"},
    "address_time": {"colour": "kind"},
    "failure": {"wanted": "100MiB"},
    "holders": {},
}


@pytest.fixture(scope="module")
def trace():
    return sample_trace("conv")


def solid(colour, paper):
    """`#RRGGBB` of a colour on the paper; None for what is no colour of an area."""
    found = re.fullmatch(r"rgba\((\d+),(\d+),(\d+),([\d.]+)\)", colour or "")
    if not found:
        return colour if str(colour).startswith("#") else None
    *parts, opacity = found.groups()
    return mixed(paper, "#" + "".join(f"{int(each):02X}" for each in parts), float(opacity))


def meanings(figure, paper):
    """Colour -> what has it: areas and bars that are shown, each by its name."""
    found = {}
    for trace in figure.data:
        marker = trace.marker.color if trace.type == "bar" else getattr(trace, "fillcolor", None)
        several = isinstance(marker, tuple | list)
        for number, colour in enumerate(marker if several else [marker]):
            shown = trace.type == "bar" or getattr(trace, "showlegend", False)
            if shown and trace.name and (flat := solid(colour, paper)):
                found.setdefault(flat.upper(), set()).add(f"{trace.name} {number}" if several else trace.name)
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", FIVE)
def test_what_a_picture_tells_apart_stays_apart(trace, name, theme):
    figure = bfcviz.draw(name, trace, bfcviz.peak(trace), theme=theme, **FIVE[name])
    paints = theme_of(theme)
    found = meanings(figure, paints.paper)
    if name == "holders":
        found.pop(paints.pool.fill)  # all memory: it is the whole first row
    assert len(found) >= 3, found
    near = {
        (sight, one, other): round(float(distance(one, other, sight)), 1)
        for one, other in combinations(found, 2)
        for sight in SIGHTS
        if distance(one, other, sight) < A_SHADE
    }
    assert not near, {colour: found[colour] for colours in near for colour in colours[1:]}

"""The colours differ visibly under every kind of colour vision, and are legible on the paper."""

import re
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from shared import sample_trace

import bfcviz
from bfcviz.figures.theme import THEMES, mixed, rgb, template, theme_of, translucent

# Machado, Oliveira and Fernandes 2009, severity 1.0, in linear RGB.
SIGHTS = {
    "trichromacy": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])

APART = 18.0
"""CIE76 distance below which two areas are hard to tell apart (a just noticeable difference is 2.3)."""

A_STEP = 12.0
"""The same for neighbours on a ramp, whose order helps to tell them apart."""


def linear(colour):
    values = np.array(rgb(colour)) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(values):
    t = TO_XYZ @ np.clip(values, 0, 1) / WHITE
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one, other, sight):
    seen = SIGHTS[sight]
    return np.linalg.norm(lab(seen @ linear(one)) - lab(seen @ linear(other)))


def contrast(one, other):
    brightness = sorted(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour) for colour in (one, other))
    return (brightness[1] + 0.05) / (brightness[0] + 0.05)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_states_of_the_region_map_stay_apart(theme, sight):
    states = {
        "in use": theme.in_use.fill,
        "free": theme.free.fill,
        "waste": theme.waste.fill,
        "highlight": theme.highlight,
        "nothing": theme.paper,
    }
    near = {
        pair: round(float(distance(states[pair[0]], states[pair[1]], sight)), 1)
        for pair in combinations(states, 2)
        if distance(states[pair[0]], states[pair[1]], sight) < APART
    }
    assert not near


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_each_outline_has_a_colour_of_its_own(theme, sight):
    """Step, selection, search, fit and failure, on free chunks, waste and the paper, beside the frames of regions."""
    outlines = [theme.highlight, theme.selection, theme.search, theme.fit, theme.oom]
    below = [theme.free.fill, theme.waste.fill, theme.paper]
    assert distance(theme.highlight, theme.pool.line, sight) >= APART
    assert min(distance(one, other, sight) for one, other in combinations(outlines, 2)) >= APART
    assert min(distance(one, other, sight) for one, other in product(outlines, below)) >= APART
    assert min(contrast(outline, theme.paper) for outline in outlines) >= 3


def hue(colour):
    """The angle (degrees) of a colour in Lab: red is 25 to 45, orange 50 to 80, yellow 100."""
    _, a, b = lab(linear(colour))
    return np.degrees(np.arctan2(b, a)) % 360, np.hypot(a, b)


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_orange_is_waste_and_red_is_failure_only(theme):
    for kept, low, high in ((theme.waste.fill, 55, 85), (theme.oom, 25, 45)):
        angle, colourful = hue(kept)
        assert low < angle < high
        assert colourful > 60
    classes = [*theme.classes, theme.other, *theme.ramp, theme.in_use, theme.free]
    classes += [shade for number in range(len(theme.classes)) for shade in theme.shades(number)]
    for fill in (paint.fill for paint in classes):
        angle, colourful = hue(fill)
        assert colourful < 20 or 95 < angle < 345, fill
    for fill, kept in product((paint.fill for paint in classes), (theme.waste.fill, theme.oom)):
        assert distance(fill, kept, "trichromacy") >= 2 * APART, (fill, kept)


A_SHADE = 7.5
"""The same as `APART` for two shades; a shade is also told by its place in the list of holders."""


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_shades_of_all_hues_stay_apart(theme, sight):
    fills = [shade.fill for number in range(len(theme.classes)) for shade in theme.shades(number)]
    assert [theme.shades(number)[0] for number in range(len(theme.classes))] == list(theme.classes)
    assert min(distance(one, other, sight) for one, other in combinations(fills, 2)) >= A_SHADE
    beside = [theme.other.fill, theme.waste.fill, theme.oom, *around(theme)]
    assert min(distance(one, other, sight) for one, other in product(fills, beside)) >= A_SHADE


def around(theme):
    """The colours next to chunks in use in every colouring."""
    return [theme.free.fill, theme.highlight, theme.paper]


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_classes_without_an_order_stay_apart(theme, sight):
    fills = [
        *(paint.fill for paint in (*theme.classes, theme.other)),
        *around(theme),
        theme.waste.fill,
        theme.oom,
    ]
    assert min(distance(one, other, sight) for one, other in combinations(fills, 2)) >= APART


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_classes_in_an_order_are_steps_of_one_ramp(theme, sight):
    fills = [paint.fill for paint in theme.ramp]
    assert min(distance(one, other, sight) for one, other in pairwise(fills)) >= A_STEP
    assert min(distance(one, other, sight) for one, other in product(fills, around(theme))) >= APART
    lightness = [lab(SIGHTS[sight] @ linear(fill))[0] for fill in fills]
    assert np.all(np.diff(lightness) * (-1 if theme.name == "light" else 1) > 2)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_lines_of_one_picture_stay_apart(theme, sight):
    lines = [theme.in_use.line, theme.free.line, theme.waste.line, theme.pool.line]
    assert min(distance(one, other, sight) for one, other in combinations(lines, 2)) >= APART


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_text_and_lines_are_seen_on_the_paper(theme):
    assert contrast(theme.text, theme.paper) >= 7
    assert contrast(theme.muted, theme.paper) >= 4.5
    for paint in (theme.in_use, theme.free, theme.waste, theme.pool):
        assert contrast(paint.line, theme.paper) >= 3
    assert contrast(theme.highlight, theme.paper) >= 3
    for paint in (*theme.classes, theme.other, *theme.ramp):
        assert contrast(paint.line, theme.paper) >= 3


def test_an_unknown_theme_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="light, dark"):
        theme_of("sepia")


def test_templates_carry_the_paper():
    for theme in THEMES.values():
        assert template(theme)["layout"]["paper_bgcolor"] == theme.paper


def test_mixed_goes_from_one_colour_to_the_other():
    assert [mixed("#102030", "#304050", share) for share in (0, 0.5, 1)] == ["#102030", "#203040", "#304050"]


def test_translucent_keeps_the_colour():
    assert translucent("#102030", 0.5) == "rgba(16,32,48,0.5)"


# ------------------------------------------------------------------------------
# Five pictures of a real run: what their legends and bars tell apart stays apart under every kind of colour vision.


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

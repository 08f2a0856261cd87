"""Computes with colours: parts, mixtures, opacity, contrast."""


def mixed(one: str, other: str, share: float) -> str:
    """The colour that is `share` (0..1) of the way from `one` to `other`, as `#RRGGBB`."""
    parts = zip(rgb(one), rgb(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in parts)


def rgb(colour: str) -> tuple[int, int, int]:
    """`#RRGGBB` as red, green, blue, each 0..255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def contrasting(fill: str) -> str:
    """Black or white: whichever can be read on `fill`."""
    red, green, blue = (_linear(value / 255) for value in rgb(fill))
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > _MIDDLE else "#FFFFFF"


_MIDDLE = 0.179
"""The luminance that contrasts equally with black and white (WCAG)."""


def _linear(value: float) -> float:
    low, slope = 0.04045, 12.92
    return value / slope if value <= low else float(((value + 0.055) / 1.055) ** 2.4)


def translucent(colour: str, opacity: float) -> str:
    """`#RRGGBB` as an rgba() string with this opacity (0..1)."""
    red, green, blue = rgb(colour)
    return f"rgba({red},{green},{blue},{opacity:g})"

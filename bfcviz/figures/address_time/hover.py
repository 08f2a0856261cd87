"""Hover texts of the address-time map: invisible points on an even grid, each with its own text."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.figures.address_time.window import AddressTimeWindow
from bfcviz.figures.style.text import exact_bytes, harmless
from bfcviz.model.lifetimes.address_layout import NEVER
from bfcviz.model.lifetimes.occupancy_grid import Occupancy

COLUMNS: Final = 40
LINES: Final = 24

_ALONE: Final = 600  # extra points at most, for the largest lifetimes that no grid point lies in


def life_text(life: np.void, trace: Trace) -> str:
    """The hover text of one allocation, a LIFETIME record."""
    born, died = int(life["born"]) + 1, int(life["died"]) + 1
    if life["died"] == NEVER:
        freed = "still in use at the end"
    else:
        freed = f"freed at step {died:,} after {died - born:,} steps"
    name = trace.labels.name(int(life["label"]))
    return (
        f"<b>{harmless(name) if name else 'no label'}</b><br>"
        f"size {exact_bytes(int(life['size']))}, requested {exact_bytes(int(life['requested']))}<br>"
        f"address {int(life['address']):#x}, chunk {life['chunk']}<br>"
        f"thread {life['thread']}, stream {life['stream']}<br>"
        f"allocated at step {born:,}, {freed}"
    )


def hover_points(window: AddressTimeWindow) -> dict[str, Any]:
    """The points as a plotly trace."""
    x, y, texts = _on_image(window, window.image) if window.image is not None else _on_boxes(window)
    return {
        "type": "scatter",
        "mode": "none",
        "x": x,
        "y": y,
        "hovertext": texts,
        "hoverinfo": "text",
        "showlegend": False,
    }


Points = tuple[NDArray[np.float64], NDArray[np.float64], list[str]]


def _grid_positions(window: AddressTimeWindow) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The x of the grid's columns and the y of its lines, in axis units."""
    left, right = window.sides
    bottom, top = (end / window.divisor for end in window.positions)
    across = left + (np.arange(COLUMNS) + 0.5) * (right - left) / COLUMNS
    return across, bottom + (np.arange(LINES) + 0.5) * (top - bottom) / LINES


def _on_boxes(window: AddressTimeWindow) -> Points:
    """Each grid point shows the lifetime it lies in; a lifetime without a grid point gets its own point."""
    across, up = _grid_positions(window)
    left, right = window.spans(window.lifetimes)
    bottom, top = window.heights(window.lifetimes)
    order = np.argsort(bottom)
    x, y = [(left + right) / 2], [(bottom + top) / 2]
    source = [np.arange(len(left))]
    for place in across:
        alive = order[(left[order] <= place) & (place < right[order])]
        if not len(alive):
            continue
        below = np.maximum(np.searchsorted(bottom[alive], up, side="right") - 1, 0)
        hit = (bottom[alive[below]] <= up) & (up < top[alive[below]])
        x.append(np.full(int(hit.sum()), place))
        y.append(up[hit])
        source.append(alive[below[hit]])
    which = np.concatenate(source)
    # A lifetime with a grid point needs no point at its centre.
    missed = np.flatnonzero(~np.isin(source[0], which[len(left) :]))
    missed = missed[np.argsort(-((right - left) * (top - bottom))[missed], kind="stable")][:_ALONE]
    needed = np.append(missed, np.arange(len(left), len(which)))
    texts = {
        number: life_text(window.lifetimes[number], window.trace) for number in set(which[needed].tolist())
    }
    shown = [texts[number] for number in which[needed].tolist()]
    return np.concatenate(x)[needed], np.concatenate(y)[needed], shown


def _on_image(window: AddressTimeWindow, image: Occupancy) -> Points:
    """Each point shows its address, and the share of its pixel in use."""
    across, up = _grid_positions(window)
    grid = image.grid
    column = np.minimum((across - window.sides[0]) * window.step_axis.unit / grid.width, grid.columns - 1)
    line = (np.arange(LINES) + 0.5) * grid.lines / LINES
    cells = np.ix_(line.astype(np.intp), column.astype(np.intp))
    pool = image.pool[cells].ravel()
    share = 100 * image.in_use[cells].ravel() / np.maximum(pool, 1e-9)
    x, y = (found.ravel() for found in np.meshgrid(across, up))
    there = np.flatnonzero(pool > 0)
    addresses = [window.layout.address(place * window.divisor) for place in y[there].tolist()]
    texts = [
        f"{full:.0f} % in use in this pixel<br>{exact_bytes(int(grid.cell))} around address {address or 0:#x}"
        for full, address in zip(share[there].tolist(), addresses, strict=True)
    ]
    return x[there], y[there], texts

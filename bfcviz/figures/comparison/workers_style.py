"""The style of the picture of all workers; its colours are those of the page's theme."""

from typing import Final

from bfcviz.figures.style.css import following

STYLE: Final = (
    following(".bfcviz-workers")
    + """
.bfcviz-workers { color: var(--text); font: 13px/18px var(--jp-ui-font-family, system-ui, sans-serif) }
.bfcviz-workers p { margin: 4px 0 }
.bfcviz-workers .none { color: var(--muted) }
.bfcviz-workers .bad, .bfcviz-workers .state.lost { color: var(--oom) }
.bfcviz-workers .workers { container-type: inline-size }
.bfcviz-workers :is(.head, .row) {
  display: grid; gap: 0 14px; align-items: center; padding: 3px 6px; border-bottom: 1px solid var(--grid);
  grid-template-columns: minmax(90px, 1fr) minmax(190px, 2.4fr) 84px 90px minmax(200px, 4fr);
}
.bfcviz-workers .head { color: var(--muted); font-size: 11px; line-height: 15px }
.bfcviz-workers .head span:nth-child(n+3):nth-child(-n+4), .bfcviz-workers .number { text-align: right }
.bfcviz-workers .row { cursor: pointer; font-variant-numeric: tabular-nums }
.bfcviz-workers .row:hover { background: color-mix(in srgb, var(--in-use) 10%, transparent) }
.bfcviz-workers .row.chosen { box-shadow: inset 3px 0 0 var(--in-use-line) }
.bfcviz-workers .row:focus-visible { outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: -2px }
.bfcviz-workers .row small { display: block; color: var(--muted); font-size: 11px; line-height: 14px }
.bfcviz-workers .name { overflow: hidden; text-overflow: ellipsis }
.bfcviz-workers .state { margin-right: 6px }
.bfcviz-workers .state.live { color: var(--free-line) }
.bfcviz-workers .bar { position: relative; display: flex; height: 14px; outline: 1px solid var(--grid) }
.bfcviz-workers .bar i { display: block; height: 100% }
.bfcviz-workers i.in-use { background: var(--in-use) }
.bfcviz-workers i.free { background: var(--free); box-shadow: inset 0 0 0 1px var(--free-line) }
.bfcviz-workers i.pool { background: var(--pool); box-shadow: inset 0 0 0 1px var(--pool-line) }
.bfcviz-workers .bar i.limit {
  position: absolute; top: -2px; bottom: -2px; height: auto; width: 2px; background: var(--text);
}
.bfcviz-workers .keys { color: var(--muted); font-size: 11px }
.bfcviz-workers .keys i:first-child { margin-left: 0 }
.bfcviz-workers .key { display: inline-block; width: 10px; height: 9px; margin: 0 4px 0 8px }
.bfcviz-workers .key.limit { width: 2px; background: var(--text) }
.bfcviz-workers svg { display: block; width: 100%; height: 40px }
.bfcviz-workers path.pool { fill: var(--pool) }
.bfcviz-workers path.in-use { fill: var(--in-use) }
.bfcviz-workers path { vector-effect: non-scaling-stroke }
.bfcviz-workers path.limit { stroke: var(--muted); stroke-dasharray: 5 3; fill: none }
.bfcviz-workers path.end { stroke: var(--muted); stroke-width: 2 }
.bfcviz-workers path.end.lost { stroke: var(--oom) }
@container (max-width: 640px) {
  .bfcviz-workers :is(.head, .row) { grid-template-columns: minmax(70px, 1fr) minmax(120px, 2fr) 70px }
  .bfcviz-workers :is(.head, .row) > :nth-child(n+4) { display: none }
}
"""
)
"""A page needs it once."""

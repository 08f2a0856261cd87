"""The style of a card."""

from typing import Final

from bfcviz.figures.style.css import following, holder_rules, holder_variables
from bfcviz.report.html.size_bars import SIZE_BAR_STYLE

_CARD: Final = ".bfcviz-card"

_RULES: Final = """
.bfcviz-card{max-width:1100px;margin:4px 0;padding:2px 0 2px 14px;border-left:5px solid var(--free-line);
  color:var(--jp-ui-font-color1,var(--text));font:13px/1.4 var(--jp-ui-font-family,system-ui,sans-serif)}
.bfcviz-card.bfcviz-failure{border-color:var(--oom)}
.bfcviz-card .headline{font-size:17px;line-height:1.3;font-weight:600;overflow-wrap:anywhere}
.bfcviz-failure .headline{color:var(--oom)}
.bfcviz-card .facts{color:var(--jp-ui-font-color2,var(--muted));font-size:12px;overflow-wrap:anywhere}
.bfcviz-card .bfcviz-bars{margin:8px 0;max-width:760px}
.bfcviz-card .two{display:flex;flex-wrap:wrap;gap:8px 20px;align-items:flex-start}
.bfcviz-card .map{flex:5 1 420px;min-width:0}
.bfcviz-card .plot{position:relative}
.bfcviz-card svg{display:block;width:100%}
.bfcviz-card .plot span{position:absolute;display:flex;align-items:center;justify-content:center;font-size:11px;
  line-height:13px;white-space:nowrap;color:var(--text)}
.bfcviz-card .free-area{fill:var(--free)}
.bfcviz-card .request{fill:none;stroke:var(--oom);stroke-width:2;stroke-dasharray:5 3}
.bfcviz-card .in-the-way{fill:var(--oom)}
.bfcviz-card .key{display:inline-block;width:14px;height:9px;margin:0 5px 0 0;box-sizing:border-box}
.bfcviz-card .key:not(:first-child),.bfcviz-card .scale{margin-left:12px}
.bfcviz-card .key.free{background:var(--free);border:1px solid var(--free-line)}
.bfcviz-card .key.request{border:2px dashed var(--oom)}
.bfcviz-card .key.in-the-way{background:var(--oom);height:3px;vertical-align:middle}
.bfcviz-card table.holders{flex:3 1 290px;border-collapse:collapse;margin:0;font-size:12px;line-height:17px;
  font-variant-numeric:tabular-nums;table-layout:auto;color:inherit;border:0}
.bfcviz-card .holders th{text-align:left;font-weight:600;padding:0;border:0}
.bfcviz-card .holders td{padding:1px 0 1px 12px;border:0;text-align:right;white-space:nowrap;background:none}
.bfcviz-card .holders td:first-child{padding-left:0;text-align:left}
.bfcviz-card .holders tr{background:none!important}  /* JupyterLab has stripes */
.bfcviz-card .swatch{display:inline-block;width:10px;height:10px;margin-right:6px}
.bfcviz-card .to-do{margin-top:8px;overflow-wrap:anywhere}
.bfcviz-card .to-do b{margin-right:6px}
"""

STYLE: Final = (
    f"{following(_CARD)}{following(_CARD, holder_variables)}{holder_rules(_CARD)}{SIZE_BAR_STYLE}{_RULES}"
)
"""The rules of all cards."""

"""The style of the header: JupyterLab's colours for text, the themes' colours for sizes; light and dark."""

from typing import Final

from bfcviz.figures.style.css import following
from bfcviz.report.html.size_bars import SIZE_BAR_STYLE

_RULES: Final = """
.bfcviz-header{color:var(--jp-ui-font-color1,var(--text));
  font-family:var(--jp-ui-font-family,system-ui,sans-serif)}
.bfcviz-header .widget-html,.bfcviz-header .widget-html-content{margin:0;height:auto;line-height:1.35;
  font-size:13px;overflow:visible}
.bfcviz-headline .text{font-size:15px;font-weight:600;line-height:20px;padding:1px 0 1px 10px;
  border-left:4px solid var(--free-line);overflow-wrap:anywhere}
.bfcviz-headline .failed{border-color:var(--oom);color:var(--oom)}
.bfcviz-headline a{font-weight:400;font-size:13px;white-space:nowrap;margin-left:6px;cursor:pointer;
  color:var(--jp-content-link-color,var(--in-use));text-decoration:underline}
.bfcviz-numbers .all{display:flex;flex-wrap:wrap;gap:4px 20px;align-items:center}
.bfcviz-numbers .tiles{flex:6 1 420px;display:grid;grid-template-columns:repeat(4,auto);gap:0 12px;
  justify-content:space-between}
.bfcviz-numbers .tile{display:flex;flex-direction:column;line-height:14px;font-size:11px;cursor:help;
  font-variant-numeric:tabular-nums;white-space:nowrap}
.bfcviz-numbers .tile b{font-size:17px;line-height:20px}
.bfcviz-numbers .tile span{color:var(--jp-ui-font-color2,var(--muted))}
.bfcviz-numbers .bfcviz-bars{flex:4 1 280px}
.bfcviz-step-line summary{cursor:pointer;overflow-wrap:anywhere}
.bfcviz-step-line .file,.bfcviz-step-line .more{color:var(--jp-ui-font-color2,var(--muted))}
.bfcviz-step-line .more{text-decoration:underline dotted;margin-left:8px}
.bfcviz-step-line p{margin:2px 0 2px 14px;max-width:110ch;overflow-wrap:anywhere}
.bfcviz-step-line .wrong{font-weight:600;overflow-wrap:anywhere}
.bfcviz-notice .text{border-left:4px solid var(--muted);padding-left:10px;overflow-wrap:anywhere;
  color:var(--jp-ui-font-color2,var(--muted))}
.bfcviz-notice summary{cursor:pointer;list-style:none}
.bfcviz-notice u{text-decoration:underline dotted}
.bfcviz-notice p{margin:2px 0;max-width:110ch}
"""

STYLE: Final = f"<style>{following('.bfcviz-header')}{SIZE_BAR_STYLE}{_RULES}</style>"
"""A page needs it once, for any number of headers."""

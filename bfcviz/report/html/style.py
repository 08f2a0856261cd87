"""The style of the page: the colours of the figures' themes as variables, for light, dark and paper."""

from typing import Final

from bfcviz.figures.style.css import holder_rules, holder_variables, variables
from bfcviz.figures.style.theme import DARK, FONT, LIGHT, Theme


def style() -> str:
    """The text of the page's style element."""
    return (
        f":root{{{_colours(LIGHT)}}}"
        f"@media (prefers-color-scheme: dark){{:root{{{_colours(DARK)}}}}}"
        f"@media print{{:root{{{_colours(LIGHT)}}}}}"
        f"body{{font:16px/1.5 {FONT}}}{_RULES}{holder_rules()}"
    )


def _colours(theme: Theme) -> str:
    return variables(theme) + holder_variables(theme)


_RULES: Final = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1080px;padding:24px 20px 60px;background:var(--paper);color:var(--text);
  print-color-adjust:exact;-webkit-print-color-adjust:exact}
h1{font-size:26px;line-height:1.25;margin:6px 0 8px}
h2{font-size:18px;margin:34px 0 8px}
h3{font-size:15px;margin:20px 0 4px}
p{margin:6px 0;max-width:76ch}
header .file{font-weight:600;overflow-wrap:anywhere}
.muted,header,.note,figcaption{color:var(--muted);font-size:14px}
.verdict{border-left:6px solid var(--mark);padding:2px 0 2px 16px;margin:14px 0 20px}
.numbers{font-size:18px;font-weight:600}
.verdict.calm{border-color:var(--free-line)}
.two{display:grid;grid-template-columns:1fr 1fr;gap:8px 36px}
.two h2{margin-top:14px}
ol{padding-left:22px;margin:6px 0}
li{margin:0 0 8px;max-width:76ch;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
td{border-top:1px solid var(--grid);padding:5px 10px 5px 0;vertical-align:top;overflow-wrap:anywhere}
tr:first-child td{border-top:0}
td.value{text-align:right;white-space:nowrap}
td.share{width:26%;min-width:70px}
td.note{width:30%}
.two td.note{width:24%}
.plain td.value{text-align:left;white-space:normal;width:45%}
.plain td.name{width:25%}
.bar{display:block;height:12px;margin-top:5px;min-width:1px;background:var(--in-use)}
.bar.asked,.key.asked{background:var(--mark)}
.bar.free,.key.free{background:var(--free);outline:1px solid var(--free-line);outline-offset:-1px}
.bar.pool,.key.pool{background:var(--pool);outline:1px solid var(--pool-line);outline-offset:-1px}
.bar[class*=holder-],.key[class*=holder-]{outline:1px solid var(--pool-line);outline-offset:-1px}
.bar.several{background:var(--muted)}
.bar.waste,.key.waste{background:var(--waste)}
.key{display:inline-block;width:14px;height:10px;margin:0 5px 0 14px;background:var(--in-use)}
.key:first-child{margin-left:0}
.map-key span{white-space:nowrap;display:inline-block;margin-right:14px}
.map-key .key{margin:0 5px 0 0}
.key.line{height:0;border-top:2px solid var(--text);margin-bottom:4px}
.key.dash{height:0;border-top:2px dashed var(--mark);background:none;margin-bottom:4px}
svg{display:block;width:100%}
figure{margin:6px 0 18px;break-inside:avoid}
.region{margin:8px 0 0}
.many{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:2px 14px}
.region .muted{font-size:12px}
.in-use{fill:var(--in-use)}
.free-area{fill:var(--free)}
.waste-area{fill:var(--waste)}
.pin{fill:var(--mark)}
.place{fill:none;stroke:var(--mark);stroke-width:2}
.pool-area{fill:var(--pool)}
.line{fill:none;stroke:var(--in-use-line);stroke-width:1.6}
.line.free{stroke:var(--free-line);stroke-width:1.8}
.line.limit{stroke:var(--text);stroke-dasharray:2 3}
.line.step{stroke:var(--mark);stroke-width:2;stroke-dasharray:5 3}
.rule{stroke:var(--grid);stroke-width:1}
.chart{display:grid;grid-template-columns:74px 1fr;font-size:12px;color:var(--muted)}
.chart{margin-top:12px}
.chart .y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;padding-right:8px;
  margin:-8px 0}
.chart .x{grid-column:2;display:flex;justify-content:space-between;padding-top:3px}
@media (max-width:700px){
  body{padding:14px 14px 40px;font-size:15px}
  h1{font-size:21px}
  .two{grid-template-columns:1fr}
  .chart{grid-template-columns:58px 1fr}
  td.note{width:auto}
  table,tbody,tr{display:block}
  tr{border-top:1px solid var(--grid);padding:5px 0;display:flex;flex-wrap:wrap;gap:0 10px;align-items:baseline}
  td{border:0;padding:0}
  td.name{flex:1 1 60%}
  td.share{flex:1 1 100%;order:4}
  td.share:empty,td.note:empty{display:none}
  td.note{flex:1 1 100%;order:3;font-size:13px}
}
@media print{
  body{max-width:none;padding:0;font-size:11pt}
  h2{break-after:avoid}
  tr,li{break-inside:avoid}
}
"""

"""The style of the side pane, light and dark; its colours are those of the theme."""

from typing import Final

from bfcviz.figures.theme import DARK, LIGHT, Theme


def _colours(theme: Theme) -> str:
    return (
        f"--bfcviz-paper: {theme.paper}; --bfcviz-text: {theme.text}; --bfcviz-muted: {theme.muted}; "
        f"--bfcviz-grid: {theme.grid}; --bfcviz-waste: {theme.waste.fill}; --bfcviz-free: {theme.free.fill}; "
        f"--bfcviz-free-line: {theme.free.line}"
    )


STYLE: Final = f"""<style>
.bfcviz-holders, .bfcviz-chunk {{ {_colours(LIGHT)} }}
[data-jp-theme-light="false"] :is(.bfcviz-holders, .bfcviz-chunk) {{ {_colours(DARK)} }}
@media (prefers-color-scheme: dark) {{
  body:not([data-jp-theme-light]) :is(.bfcviz-holders, .bfcviz-chunk) {{ {_colours(DARK)} }}
}}
.bfcviz-holders, .bfcviz-chunk {{
  box-sizing: border-box; width: 100%; min-height: 0; margin: 0; color: var(--bfcviz-text);
  font: 12px/18px var(--jp-ui-font-family, system-ui, sans-serif);
}}
.bfcviz-holders {{ display: flex; flex: 1 1 45%; flex-direction: column; container-type: inline-size }}
.bfcviz-chunk {{
  flex: 0 0 auto; max-height: calc(100% - 96px); overflow: auto; padding-top: 3px;
  border-top: 1px solid var(--bfcviz-grid);
  scrollbar-width: thin; font-size: 11px; line-height: 15px;
}}
:is(.bfcviz-holders, .bfcviz-chunk) :is(.widget-html, .widget-html-content) {{
  margin: 0; padding: 0; width: 100%; font: inherit; line-height: inherit;
}}
.bfcviz-holders-list {{
  flex: 1 1 auto; min-height: 0; overflow-x: hidden; overflow-y: auto; margin: 0; scrollbar-width: thin;
}}
:is(.bfcviz-holders, .bfcviz-chunk) :is(button, [role=button]) {{ all: unset; cursor: pointer }}
:is(.bfcviz-holders, .bfcviz-chunk) [data-bfcviz]:focus-visible {{
  outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: -2px;
}}
.bfcviz-holders .head {{ display: flex; flex-wrap: wrap; gap: 0 8px; align-items: baseline; padding-bottom: 2px }}
.bfcviz-holders .head {{ font-size: 11px }}
.bfcviz-holders .head b {{ white-space: nowrap }}
.bfcviz-holders .head span {{ display: inline-flex; flex-wrap: wrap; gap: 0 7px; color: var(--bfcviz-muted) }}
.bfcviz-holders .head .by {{ flex: 1 1 auto }}
.bfcviz-holders .head button[aria-pressed=true] {{
  color: var(--bfcviz-text); font-weight: 600; box-shadow: 0 2px 0 var(--bfcviz-text);
}}
.bfcviz-holders .filter {{ flex: 1 1 100%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }}
.bfcviz-holders .filter button, .bfcviz-chunk a {{
  cursor: pointer; color: inherit; text-decoration: underline dotted; text-underline-offset: 3px;
}}
.bfcviz-holders table {{
  width: 100%; table-layout: fixed; border-collapse: separate; border-spacing: 0; margin: 0; color: inherit;
}}
.bfcviz-holders :is(th, td) {{
  height: 20px; box-sizing: border-box; padding: 0 5px 0 0; border: 0; overflow: hidden; white-space: nowrap;
  text-align: right; vertical-align: middle; background: none; font-size: 11px; line-height: 19px;
  font-variant-numeric: tabular-nums;
}}
.bfcviz-holders :is(th, td):first-child {{ text-align: left; padding-left: 4px }}
.bfcviz-holders th {{
  position: sticky; top: 0; z-index: 1; background: var(--bfcviz-paper); color: var(--bfcviz-muted);
  font-weight: 600; border-bottom: 1px solid var(--bfcviz-grid);
}}
.bfcviz-holders th button i {{ font-size: 9px; font-style: normal; padding-left: 2px }}
.bfcviz-holders col.name {{ width: auto }} .bfcviz-holders col.bytes {{ width: 58px }}
.bfcviz-holders col.share {{ width: 36px }} .bfcviz-holders col.growth {{ width: 64px }}
.bfcviz-holders col.chunks {{ width: 46px }} .bfcviz-holders col.waste {{ width: 58px }}
@container (max-width: 399px) {{ .bfcviz-holders .wide {{ display: none }} }}
@container (max-width: 309px) {{ .bfcviz-holders .share {{ display: none }} }}
@container (max-width: 249px) {{ .bfcviz-holders .growth {{ display: none }} }}
.bfcviz-holders tbody tr {{ background: none }}
.bfcviz-holders tbody tr[data-bfcviz] {{ cursor: pointer }}
.bfcviz-holders td.bytes {{
  background: linear-gradient(var(--bar), var(--bar)) left / var(--part) 100% no-repeat;
}}
.bfcviz-holders tbody tr:hover, .bfcviz-holders tbody tr.chosen {{
  background: color-mix(in srgb, var(--fill) 22%, transparent);
}}
.bfcviz-holders tbody tr.chosen {{ font-weight: 600; box-shadow: inset 3px 0 0 var(--fill) }}
.bfcviz-holders .label {{ display: flex; min-width: 0; align-items: center; white-space: pre }}
.bfcviz-holders tr.inside .label {{ padding-left: 12px }}
.bfcviz-holders .label u {{
  flex: none; width: 10px; height: 10px; margin-right: 5px; border-radius: 2px; background: var(--fill);
}}
.bfcviz-holders .label span {{  /* the ellipsis is at the left: names differ at their ends */
  flex: 0 1 auto; overflow: hidden; text-overflow: ellipsis; direction: rtl; text-align: left;
}}
.bfcviz-holders .icicle {{ position: relative; overflow: hidden }}
.bfcviz-holders .icicle div {{
  position: absolute; box-sizing: border-box; overflow: hidden; padding: 0 3px; line-height: 19px; font-size: 11px;
  white-space: nowrap; text-overflow: ellipsis; border: solid var(--bfcviz-paper); border-width: 0 1px 1px 0;
}}
.bfcviz-holders .icicle div[data-bfcviz] {{ cursor: pointer }}
.bfcviz-holders .icicle div[data-bfcviz]:hover, .bfcviz-holders .icicle div.chosen {{
  outline: 2px solid var(--bfcviz-text); outline-offset: -2px; z-index: 1;
}}
.bfcviz-holders .none, .bfcviz-chunk .none {{ color: var(--bfcviz-muted) }}
.bfcviz-chunk summary {{ cursor: pointer; color: var(--bfcviz-muted) }}
.bfcviz-chunk .name {{ font-weight: 600; overflow-wrap: anywhere }}
.bfcviz-chunk dl {{ display: grid; grid-template-columns: fit-content(66px) minmax(0, 1fr); gap: 0 8px; margin: 0 }}
.bfcviz-chunk :is(dt, dd) {{ float: none; width: auto }}  /* JupyterLab gives them 20 % and 80 % */
.bfcviz-chunk dt {{ color: var(--bfcviz-muted); font-weight: normal; margin: 0; overflow-wrap: anywhere }}
.bfcviz-chunk dd {{ margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums }}
.bfcviz-chunk dd b {{ font-weight: 600 }}
.bfcviz-chunk code {{ font: inherit; font-family: var(--jp-code-font-family, ui-monospace, monospace) }}
.bfcviz-chunk dd em {{ font-style: normal; border-bottom: 2px solid var(--bfcviz-waste) }}
</style>"""
"""A page needs it once, for any number of panes."""

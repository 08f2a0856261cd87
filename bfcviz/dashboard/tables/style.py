"""The CSS of the tables: JupyterLab's colours if available, and the theme's colours for states."""

from typing import Final

from bfcviz.figures.style.theme import DARK, LIGHT, Theme, translucent


def _colours(theme: Theme) -> str:
    return (
        f"--bfcviz-here: {theme.highlight}; --bfcviz-here-row: {translucent(theme.highlight, 0.14)}; "
        f"--bfcviz-in-use: {theme.in_use.fill}; --bfcviz-free: {theme.free.fill}; "
        f"--bfcviz-free-line: {theme.free.line}"
    )


STYLE: Final = f"""<style>
.bfcviz-list {{ {_colours(LIGHT)} }}
[data-jp-theme-light="false"] .bfcviz-list {{ {_colours(DARK)} }}
@media (prefers-color-scheme: dark) {{
  body:not([data-jp-theme-light]) .bfcviz-list {{ {_colours(DARK)} }}
}}
.bfcviz-list {{ overflow-x: auto; color: var(--jp-ui-font-color1, inherit) }}
.bfcviz-list table {{
  width: 100%; table-layout: fixed; border-collapse: collapse; border-spacing: 0; margin: 0;
  font: 12px/20px var(--jp-code-font-family, ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace);
}}
.bfcviz-list th, .bfcviz-list td {{
  height: 20px; padding: 0 6px; line-height: 20px; border: 0; text-align: left; white-space: nowrap;
  overflow: hidden; text-overflow: ellipsis; vertical-align: middle; background: none;
}}
.bfcviz-list th {{
  font-family: var(--jp-ui-font-family, system-ui, sans-serif); font-weight: 600; height: 24px;
  color: var(--jp-ui-font-color2, inherit); border-bottom: 1px solid var(--jp-border-color1, #8888);
}}
.bfcviz-list td.right, .bfcviz-list th.right {{ text-align: right; font-variant-numeric: tabular-nums }}
.bfcviz-list button {{
  all: unset; cursor: pointer; white-space: nowrap;
}}
.bfcviz-list th button {{ display: inline-flex; align-items: center }}
.bfcviz-list td button {{ text-decoration: underline dotted; text-underline-offset: 3px }}
.bfcviz-list th button b {{ padding-left: 3px; color: var(--bfcviz-here); font-size: 10px; line-height: 1 }}
.bfcviz-list tbody tr {{ border-bottom: 1px solid var(--jp-border-color3, #8883); background: none }}
.bfcviz-list tbody tr[data-bfcviz] {{ cursor: pointer }}
.bfcviz-list tbody tr[data-bfcviz]:hover {{ background: var(--jp-layout-color2, #8882) }}
.bfcviz-list tbody tr.here, .bfcviz-list tbody tr.here:hover {{
  background: var(--bfcviz-here-row); box-shadow: inset 3px 0 0 var(--bfcviz-here);
}}
.bfcviz-list tbody tr.after-here {{ box-shadow: inset 0 2px 0 var(--bfcviz-here) }}
.bfcviz-list tr:focus-visible, .bfcviz-list button:focus-visible {{
  outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: -2px;
}}
.bfcviz-list .label {{ display: flex; min-width: 0; white-space: pre }}
.bfcviz-list .label span {{ flex: none }}
.bfcviz-list .label span:first-child {{ flex: 0 1 auto; overflow: hidden; text-overflow: ellipsis }}
.bfcviz-list i {{ font-style: normal; color: var(--jp-ui-font-color3, #888) }}
.bfcviz-list u {{
  display: inline-block; width: 8px; height: 8px; margin-right: 6px; border: 1px solid var(--bfcviz-free-line);
  background: var(--bfcviz-free);
}}
.bfcviz-list u.in-use {{ background: var(--bfcviz-in-use); border-color: var(--bfcviz-in-use) }}
.bfcviz-count {{ line-height: 1.4; color: var(--jp-ui-font-color2, inherit) }}
.bfcviz-wrong {{ line-height: 1.4; color: var(--jp-error-color1, #d32f2f) }}
</style>"""
"""A page needs it once, for any number of tables."""

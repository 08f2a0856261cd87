"""The colours of the themes as CSS variables, for HTML that follows the theme of the page around it."""

from collections.abc import Callable

from bfcviz.figures.style.theme import DARK, LIGHT, Theme


def variables(theme: Theme) -> str:
    """The declarations of all colours of a theme; the classes are `--class-0` and so on."""
    colours = {
        "paper": theme.paper,
        "text": theme.text,
        "muted": theme.muted,
        "grid": theme.grid,
        "in-use": theme.in_use.fill,
        "in-use-line": theme.in_use.line,
        "free": theme.free.fill,
        "free-line": theme.free.line,
        "waste": theme.waste.fill,
        "pool": theme.pool.fill,
        "pool-line": theme.pool.line,
        "mark": theme.highlight,
        "oom": theme.oom,
        "other": theme.other.fill,
    }
    colours |= {f"class-{number}": paint.fill for number, paint in enumerate(theme.classes)}
    return f"color-scheme:{theme.name};" + "".join(f"--{name}:{value};" for name, value in colours.items())


def holder_variables(theme: Theme) -> str:
    """The declarations of the colours of the classes of the colouring by holder: `--holder-0` and so on."""
    return "".join(f"--holder-{number}:{paint.fill};" for number, paint in enumerate(theme.holders))


def holder_rules(around: str = "") -> str:
    """Rules that paint the elements of the classes `holder-0` and so on, inside of a selector."""
    return "".join(
        f"{around} .holder-{number}{{fill:var(--holder-{number});background:var(--holder-{number})}}"
        for number in range(len(LIGHT.holders))
    )


def following(selector: str, declared: Callable[[Theme], str] = variables) -> str:
    """Rules that give an element these variables: JupyterLab's theme, and elsewhere the reader's preference."""
    light, dark = declared(LIGHT), declared(DARK)
    return (
        f"{selector}{{{light}}}"
        f'[data-jp-theme-light="false"] {selector}{{{dark}}}'
        f"@media (prefers-color-scheme:dark){{body:not([data-jp-theme-light]) {selector}{{{dark}}}}}"
    )

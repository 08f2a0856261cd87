"""Display in a notebook, where this process is its kernel."""

import sys
from typing import Any


def shell() -> Any:
    """IPython's shell; None where there is none. Does not import IPython."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def has_kernel() -> bool:
    """Whether a display goes to a page, not to a terminal."""
    return getattr(shell(), "kernel", None) is not None


def show(*things: Any) -> None:
    """Display things under the cell that runs."""
    from IPython.display import display  # noqa: PLC0415  slow to import; a kernel has loaded it

    display(*things)

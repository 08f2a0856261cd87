"""The notebook that this process may be the kernel of."""

import sys
from typing import Any


def shell() -> Any:
    """IPython's shell, None where there is none; loads nothing that nobody has loaded."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def has_kernel() -> bool:
    """Whether what is displayed comes to a page, not to a terminal."""
    return getattr(shell(), "kernel", None) is not None


def show(*things: Any) -> None:
    """Display them under the cell that runs."""
    from IPython.display import display  # noqa: PLC0415  slow to import, and here it is loaded

    display(*things)

"""What the kernel of this notebook can do while a cell runs.

A kernel with subshells (ipykernel 7) takes clicks in a thread of its own while a cell is busy. Older ones, and
pages that do not use subshells, deliver them when the cell has ended.
"""

import sys
from collections.abc import Iterable
from typing import Any

import ipywidgets as widgets


def answers_while_busy() -> bool:
    """Whether clicks can reach Python while a cell runs, where the page makes use of it (JupyterLab 4.4 does)."""
    kernel = _kernel()
    return kernel is not None and bool(getattr(kernel, "_supports_kernel_subshells", False))


def words() -> str:
    """The same for people, with what to do."""
    if _kernel() is None:
        return "There is no notebook here: the picture is made, but no page shows it."
    if answers_while_busy():
        return "Buttons and sliders work while a cell runs."
    return (
        "While a cell runs the picture moves on, but buttons and sliders wait for its end: this kernel cannot do "
        "both. Start the workload with run(work), which leaves the kernel free, or install ipykernel 7."
    )


def route(parts: Iterable[widgets.Widget]) -> None:
    """Let clicks on these widgets, and on all in them, come in on the subshell that the page chose for them.

    ipykernel 7.4 sends them to the shell that last wrote to the widget instead: to the busy one. It has no public
    way to say otherwise. Other versions are left as they are.
    """
    for part in parts:
        comm = getattr(part, "comm", None)
        if comm is not None and hasattr(comm, "_reply_subshell_for"):
            comm._reply_subshell_for = _as_asked  # noqa: SLF001
        route(getattr(part, "children", ()))


def _as_asked(_: Any, default: Any) -> Any:
    return default


def _kernel() -> Any:
    """This process's kernel, None where it is none; asks nothing of a package that nobody has loaded."""
    module = sys.modules.get("ipykernel.kernelbase")
    if module is None or not module.Kernel.initialized():
        return None
    return module.Kernel.instance()

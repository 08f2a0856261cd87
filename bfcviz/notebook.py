"""The notebook whose kernel this process is: what it can do while a cell runs, and display in it.

A kernel with subshells (ipykernel 7) handles clicks in a separate thread while a cell runs. Older kernels, and pages
that do not use subshells, handle them after the cell has ended.

Nothing here imports widgets: a training script asks whether it has a page.
"""

import sys
from typing import Any


def answers_while_busy() -> bool:
    """Whether clicks can reach Python while a cell runs, if the page uses subshells (JupyterLab 4.4 does)."""
    kernel = _notebook_kernel()
    return kernel is not None and bool(getattr(kernel, "_supports_kernel_subshells", False))


def description() -> str:
    """What the kernel of this notebook can do while a cell runs, as a sentence, with what to do."""
    if _notebook_kernel() is None:
        return "No notebook kernel runs here: frames are drawn, but no page shows them."
    if answers_while_busy():
        return "Buttons and sliders work while a cell runs."
    return (
        "While a cell runs, the picture is updated, but buttons and sliders wait until the cell ends: this kernel has "
        "no subshells. Start the workload with run(work), which keeps the kernel free, or install ipykernel 7."
    )


def _notebook_kernel() -> Any:
    """This process's kernel, None if it is not a kernel; does not import ipykernel."""
    module = sys.modules.get("ipykernel.kernelbase")
    if module is None or not module.Kernel.initialized():
        return None
    return module.Kernel.instance()


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

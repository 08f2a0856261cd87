"""bfcviz: see every split, merge and extension of a GPU memory heap.

The public names are loaded on first use: importing bfcviz loads no plotly, no widgets and no CUDA.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bfcviz.errors import BfcvizError as BfcvizError
    from bfcviz.errors import OutOfMemory as OutOfMemory

_HOMES = {
    "BfcvizError": "bfcviz.errors",
    "OutOfMemory": "bfcviz.errors",
}

__all__ = list(_HOMES)  # noqa: PLE0604  the names above, in one place
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bfcviz' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

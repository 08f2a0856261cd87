"""Profiles of real training runs, bundled with the package: `sample("lstm")` is a path for `bfcviz.open`.

All are XLA profiles of TensorFlow 2.21 training steps on its CPU device with the BFC pool.
They begin with an empty pool.
"""

from pathlib import Path

from bfcviz.errors import BfcvizError

_FOLDER = Path(__file__).parent
_SUFFIX = ".xplane.pb.gz"


def names() -> list[str]:
    """Names of the bundled samples."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in _FOLDER.glob(f"*{_SUFFIX}"))


def sample(name: str) -> Path:
    """Path of a bundled sample.

    Raises:
        BfcvizError: no sample has this name; the message lists the names.
    """
    if name not in names():
        raise BfcvizError(f"no sample {name!r} is bundled; samples: {', '.join(names())}")
    return _FOLDER / f"{name}{_SUFFIX}"

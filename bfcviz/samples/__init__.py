"""Real runs that come with the package: `sample("lstm")` is a path for `bfcviz.open`.

All are TensorFlow 2.21 training steps on its CPU device over the BFC pool, from the empty pool on (XLA profiles).
"""

from pathlib import Path

from bfcviz.errors import BfcvizError

_FOLDER = Path(__file__).parent
_SUFFIX = ".xplane.pb.gz"


def names() -> list[str]:
    """The samples there are."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in _FOLDER.glob(f"*{_SUFFIX}"))


def sample(name: str) -> Path:
    """Path of a bundled sample.

    Raises:
        BfcvizError: there is none of that name; the message lists those there are.
    """
    if name not in names():
        raise BfcvizError(f"no sample {name!r} is bundled; there are {', '.join(names())}")
    return _FOLDER / f"{name}{_SUFFIX}"

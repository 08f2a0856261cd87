"""Files of real training runs, bundled with the package: `sample("lstm")` is a path for `bfcviz.open`.

All are of TensorFlow 2.21 on its CPU device with the BFC pool:

- `conv`, `lstm` and `transformer` are XLA profiles of training steps. They begin with an empty pool.
- `oom_log` and `oom_dump` are of one moment: a run of the transformer under a limit of 11 MiB failed to allocate
  828.1 KiB. `oom_log` is what the program printed, `oom_dump` the memory dump that it wrote.
"""

from pathlib import Path
from typing import Final

from bfcviz.errors import BfcvizError

_FOLDER: Final = Path(__file__).parent
_RUNS: Final = ("conv", "lstm", "transformer")
_FILES: Final = {
    **{name: f"{name}.xplane.pb.gz" for name in _RUNS},
    "oom_dump": "oom.memory_dump.gz",
    "oom_log": "oom.log.gz",
}


def names() -> list[str]:
    """Names of the bundled samples."""
    return sorted(_FILES)


def run_names() -> list[str]:
    """Names of the samples that hold the history of a training run."""
    return sorted(_RUNS)


def sample(name: str) -> Path:
    """Path of a bundled sample.

    Raises:
        BfcvizError: no sample has this name; the message lists the names.
    """
    if name not in _FILES:
        raise BfcvizError(f"no sample {name!r} is bundled; samples: {', '.join(names())}")
    return _FOLDER / _FILES[name]

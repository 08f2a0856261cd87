"""Files of real training runs, bundled with the package: `sample("lstm")` is a path for `bfcviz.open`.

All are of TensorFlow 2.21 on its CPU device with the BFC pool:

- `conv`, `lstm` and `transformer` are XLA profiles of training steps. They begin with an empty pool.
- `oom_log` and `oom_dump` are of one moment: a run of the transformer under a limit of 11 MiB failed to allocate
  828.1 KiB. `oom_log` is what the program printed, `oom_dump` the memory dump that it wrote.

A wheel of a release holds the failure only. The training runs, 2 MB, are in a second wheel, `bfcviz-samples`, which
`pyproject.toml` in this folder makes; a checkout and what is installed from it have both.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bfcviz.errors import BfcvizError

_FOLDER: Final = Path(__file__).parent
_SECOND_WHEEL: Final = "bfcviz_samples"
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
        BfcvizError: no sample has this name, the message lists the names; or it is not installed.
    """
    if name not in _FILES:
        raise BfcvizError(f"no sample {name!r} is bundled; samples: {', '.join(names())}")
    second = find_spec(_SECOND_WHEEL)
    more = [] if second is None else map(Path, second.submodule_search_locations or ())
    for folder in (_FOLDER, *more):
        if (folder / _FILES[name]).is_file():
            return folder / _FILES[name]
    raise BfcvizError(
        f"the sample {name!r} is not installed, it is in a wheel of its own: pip install bfcviz-samples"
    )

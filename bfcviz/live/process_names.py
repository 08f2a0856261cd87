"""The name of this process in a recording, by the rank that its launcher gave it, and whether it is the launcher."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_RANKS: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""Variables with the rank of a process: of torchrun (docs.pytorch.org/docs/stable/elastic/run.html), Open MPI, MPICH
and Slurm; the first one that is set counts."""

_LAUNCHERS: Final = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
_MAIN_PROCESS: Final = "MainProcess"


def name_of_process(variables: Mapping[str, str]) -> str:
    """The rank of this process, and its name if multiprocessing has started it; empty if it has neither."""
    rank = rank_of_process(variables)
    process = sys.modules.get("multiprocessing.process")
    own = _MAIN_PROCESS if process is None else str(process.current_process().name)
    return "-".join([f"rank-{rank}"] * bool(rank) + [own] * (own != _MAIN_PROCESS))


def rank_of_process(variables: Mapping[str, str]) -> str:
    """The rank of this process as its launcher says it; empty if it has none."""
    return next((variables[name] for name in _RANKS if variables.get(name, "").isdecimal()), "")


def is_launcher() -> bool:
    """Whether this process is torchrun: it imports PyTorch, starts the ranks and allocates nothing."""
    if "LOCAL_RANK" in os.environ or not sys.argv:
        return False
    program, words = sys.argv[0], sys.orig_argv
    if program == "-m" and "-m" in words[:-1]:  # while Python still looks for the module
        return words[words.index("-m") + 1] in _LAUNCHERS
    parts = Path(program.removesuffix(".py")).parts
    return bool({*parts[-1:], ".".join(parts[-3:])} & _LAUNCHERS)

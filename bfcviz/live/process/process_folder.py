"""Where each process of a recorded program records: the folder itself, or a subfolder named after its rank.

::

    run.bfc/                 the process that was started; with ranks: nothing
        rank-0/ rank-1/      torchrun's ranks, and those of other launchers that set RANK
        SpawnProcess-1/      workers of multiprocessing, by the names that it gives them
        process-4711/        any further process, by its number
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bfcviz.errors import FolderTaken
from bfcviz.events.storage.recording import Recording
from bfcviz.events.storage.recording_set import claim_subfolder

MOST_PROCESSES: Final = 256
"""Recorded processes of one program: a program that starts a Python for each file must not fill the disk."""

_RANKS: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""Variables with the rank of a process: of torchrun (docs.pytorch.org/docs/stable/elastic/run.html), Open MPI, MPICH
and Slurm; the first one that is set counts."""

_LAUNCHERS: Final = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
_MAIN_PROCESS: Final = "MainProcess"


def begin_recording(folder: Path, record: Callable[[Path], Recording]) -> Recording | None:
    """Begin the recording of this process; None: there are enough already.

    Args:
        folder: of `bfcviz record -o`.
        record: begins a recording in an empty folder.

    Raises:
        FileError: the folder cannot be written.
    """
    name = name_of_process(os.environ)
    if not name:
        try:
            return record(folder)
        except FolderTaken:  # by an earlier process
            name = f"process-{os.getpid()}"
    if sum(1 for _ in folder.iterdir()) >= MOST_PROCESSES:
        return None
    return record(claim_subfolder(folder, name))


def name_of_process(variables: Mapping[str, str]) -> str:
    """The rank of this process, and its name if multiprocessing has started it; empty if it has neither."""
    rank = next((variables[name] for name in _RANKS if variables.get(name, "").isdecimal()), "")
    process = sys.modules.get("multiprocessing.process")
    own = _MAIN_PROCESS if process is None else str(process.current_process().name)
    return "-".join([f"rank-{rank}"] * bool(rank) + [own] * (own != _MAIN_PROCESS))


def is_launcher() -> bool:
    """Whether this process is torchrun: it imports PyTorch, starts the ranks and allocates nothing."""
    if "LOCAL_RANK" in os.environ or not sys.argv:
        return False
    program, words = sys.argv[0], sys.orig_argv
    if program == "-m" and "-m" in words[:-1]:  # while Python still looks for the module
        return words[words.index("-m") + 1] in _LAUNCHERS
    parts = Path(program.removesuffix(".py")).parts
    return bool({*parts[-1:], ".".join(parts[-3:])} & _LAUNCHERS)

"""follow: a LiveDashboard of a recording that another process writes, or will write."""

import os
from pathlib import Path
from typing import Any, Final

from bfcviz.dashboard.live import LiveDashboard
from bfcviz.events.storage.wait_for_recording import await_recording

WAIT_S: Final = 30.0


def follow(path: str | os.PathLike[str], *, wait_s: float = WAIT_S, **options: Any) -> LiveDashboard:
    """The dashboard of another process's heap, live, from its recording.

    ::

        bfcviz.follow("run.bfc")    # beside `bfcviz record -o run.bfc -- python train.py`

    It shows the events recorded so far, follows new ones, and says when the process ended or was killed.

    Args:
        path: the recording's folder.
        wait_s: seconds to wait for a recording that has not started.
        options: arguments of LiveDashboard.

    Raises:
        FileError: the path is not a recording.
        BfcvizError: no recording started within `wait_s`.
    """
    await_recording(Path(path), wait_s)
    return LiveDashboard(path, **options)

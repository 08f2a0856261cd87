"""follow: a LiveDashboard of a recording that another process writes, or is about to."""

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

    It shows what was recorded so far, goes on with it, and says when the process ended or was killed.

    Args:
        path: the recording's folder.
        wait_s: seconds to wait for a recording that has not begun.
        options: of the LiveDashboard.

    Raises:
        FileError: the path is no recording.
        BfcvizError: none has begun in that time.
    """
    await_recording(Path(path), wait_s)
    return LiveDashboard(path, **options)

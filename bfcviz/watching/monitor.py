"""Lookout: the thread beside the workload that looks for alerts, and keeps up with rings that no dashboard reads."""

from collections.abc import Callable
from typing import Final

from bfcviz.periodic import Periodic

PERIOD_S: Final = 0.1
"""Seconds between two looks."""

_PATIENCE_S: Final = 5.0  # that `stop` waits for a look under way


class Lookout:
    """Calls `look` again and again, until it is stopped or a look fails.

    Begin it where NumPy is not served (`bfcviz.live.numpy.serve.unserved`): its arrays are not the workload's.

    Args:
        look: what to do, in this thread and, for the last time, in the one that calls `stop`.
        failed: told what a look raised; there are no more after it.
    """

    def __init__(self, look: Callable[[], object], failed: Callable[[Exception], object]) -> None:
        self._look = look
        self._failed = failed
        self._periodic = Periodic(self._next, "bfcviz-lookout", failed=failed)
        self._periodic.start(PERIOD_S)

    def stop(self) -> None:
        """Look a last time, and end it."""
        if self._periodic.running and self._periodic.stop(_PATIENCE_S):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  whatever it is, the workload goes on
                self._failed(error)

    def _next(self) -> float:
        self._look()
        return PERIOD_S

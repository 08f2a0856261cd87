"""Renderer: makes a picture again and again beside a workload, which never waits for it."""

from collections.abc import Callable
from typing import Final

from bfcviz.dashboard.background.pace import Pace
from bfcviz.errors import BfcvizError
from bfcviz.periodic import Periodic

RATE: Final = 10.0
"""Pictures a second, at most."""

BUDGET: Final = 0.08
"""Share of one core that pictures may take."""

MOST_FAILURES: Final = 3
"""Pictures in a row that may fail before it gives up."""

_PATIENCE_S: Final = 5.0
"""Seconds that `stop` waits for a picture under way: it may itself wait for a lock that the caller holds."""


class Renderer:
    """Calls `frame` at most `rate` times a second, and less often when that would take more than `budget`.

    Nothing that goes wrong in a frame reaches the workload: it is kept in `error`, and after three frames in a
    row that failed there are no more.

    Args:
        frame: makes one picture; returns whether there may be more to show later.
        rate: pictures a second, at most.
        budget: share of one core, 0..1.
        ended: called when no more pictures come, whatever the reason; in the thread that made them.

    Raises:
        BfcvizError: a rate or budget that cannot be.

    Attributes:
        error: what the last frame raised; None where it went well.
        pace: what pictures cost.
    """

    def __init__(
        self,
        frame: Callable[[], bool],
        *,
        rate: float = RATE,
        budget: float = BUDGET,
        ended: Callable[[], None] | None = None,
    ) -> None:
        if not (0 < rate <= 1000 and 0 < budget <= 1):
            raise BfcvizError(
                f"{rate} pictures a second on {budget} of a core were asked for; give a rate up to 1000 and a "
                "share above 0, up to 1"
            )
        self.pace = Pace(rate, budget)
        self.error: Exception | None = None
        self._frame = frame
        self._failures = 0
        self._paused = False
        self._periodic = Periodic(self._step, "bfcviz-renderer", ended=ended)

    @property
    def running(self) -> bool:
        """Whether it was started and has neither stopped nor come to its end."""
        return self._periodic.running

    @property
    def paused(self) -> bool:
        """Whether it makes no pictures for now."""
        return self._paused

    def start(self) -> None:
        """Make pictures in a thread of its own; nothing changes where it runs already."""
        if not self.running:
            self._begin()
            self._periodic.start()  # in the caller's context, by which a kernel knows the cell of messages

    def start_task(self) -> None:
        """Make pictures on this thread's event loop: for a kernel that is idle, with the work elsewhere.

        Raises:
            BfcvizError: no event loop runs in this thread.
        """
        if self.running:
            return
        self._begin()
        try:
            self._periodic.start_task()
        except RuntimeError:
            raise BfcvizError("no event loop runs here, as it does in a notebook; use start()") from None

    def pause(self) -> None:
        """Make no pictures until `resume`; what is under way is finished."""
        self._paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self._paused = False

    def stop(self) -> None:
        """End it, and wait for a picture under way, unless that one is what stops it. It can be started again."""
        self._periodic.stop(_PATIENCE_S)

    def _begin(self) -> None:
        self._failures = 0
        self.error = None

    def _step(self) -> float | None:
        """One picture, unless paused; returns the seconds to wait for the next, None where there is none."""
        if self._paused:
            return self.pace.period_s
        self.pace.begin()
        try:
            goes_on = self._frame()
        except Exception as error:  # noqa: BLE001  whatever it is, the workload goes on
            self.error = error
            self._failures += 1
            goes_on = self._failures < MOST_FAILURES
        else:
            self.error = None
            self._failures = 0
        wait = self.pace.end()
        return wait if goes_on else None

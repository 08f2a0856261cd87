"""Renderer: draws frames beside a workload, which never waits for them."""

from collections.abc import Callable
from threading import Thread
from typing import Final

from bfcviz.dashboard.background.frame_timing import Pace
from bfcviz.errors import BfcvizError
from bfcviz.periodic import Periodic

RATE: Final = 10.0
"""Most frames per second."""

BUDGET: Final = 0.08
"""Share of one core that drawing may take."""

MOST_FAILURES: Final = 3
"""Failed frames in a row after which it stops."""

_PATIENCE_S: Final = 5.0
"""Seconds that `stop` waits for a frame in progress: the frame may wait for a lock that the caller holds."""


class Renderer:
    """Calls `frame` at most `rate` times per second, and less often if that would take more than `budget`.

    An error in a frame does not reach the workload: it is stored in `error`. After three failed frames in a row the
    renderer stops.

    Args:
        frame: draws one frame; returns whether more frames may be needed.
        rate: most frames per second.
        budget: share of one core, 0..1.
        ended: called after the last frame, for any reason, in the thread that drew it.

    Raises:
        BfcvizError: the rate or budget is out of range.

    Attributes:
        error: the exception of the last frame; None if it succeeded.
        pace: measures the cost of frames.
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
                f"rate={rate} frames/s with budget={budget} of a core is out of range: give a rate above 0, up to "
                "1000, and a budget above 0, up to 1"
            )
        self.pace = Pace(rate, budget)
        self.error: Exception | None = None
        self._frame = frame
        self._failures = 0
        self._paused = False
        self._periodic = Periodic(self._step, "bfcviz-renderer", ended=ended)

    @property
    def running(self) -> bool:
        """Whether it was started, and neither was stopped nor ended by itself."""
        return self._periodic.running

    @property
    def thread(self) -> Thread | None:
        """The thread that draws; None before `start`, after `stop`, and on an event loop."""
        return self._periodic.thread

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self._paused

    def start(self) -> None:
        """Draw frames in a separate thread. Does nothing if it runs already."""
        if not self.running:
            self._begin()
            self._periodic.start()  # in the caller's context: the kernel finds the cell of a message by it

    def start_task(self) -> None:
        """Draw frames on this thread's event loop: for an idle kernel, with the workload in another thread.

        Raises:
            BfcvizError: no event loop runs in this thread.
        """
        if self.running:
            return
        self._begin()
        try:
            self._periodic.start_task()
        except RuntimeError:
            raise BfcvizError(
                "no event loop runs in this thread, such as a notebook's; use start()"
            ) from None

    def pause(self) -> None:
        """Draw no frames until `resume`; a frame in progress is finished."""
        self._paused = True

    def resume(self) -> None:
        """Continue after `pause`."""
        self._paused = False

    def stop(self) -> None:
        """Stop, and wait for a frame in progress, unless that frame called `stop`. It can be started again."""
        self._periodic.stop(_PATIENCE_S)

    def _begin(self) -> None:
        self._failures = 0
        self.error = None

    def _step(self) -> float | None:
        """Draw one frame, unless paused; return the seconds until the next one, None if it was the last."""
        if self._paused:
            return self.pace.period_s
        self.pace.begin()
        try:
            more = self._frame()
        except Exception as error:  # noqa: BLE001  no error may stop the workload
            self.error = error
            self._failures += 1
            more = self._failures < MOST_FAILURES
        else:
            self.error = None
            self._failures = 0
        wait = self.pace.end()
        return wait if more else None

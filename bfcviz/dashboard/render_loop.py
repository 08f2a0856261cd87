"""Renderer: draws frames beside a workload, which never waits for them."""

import asyncio
import contextvars
import math
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from enum import Enum
from threading import Thread
from typing import Any, Final, Generic, TypeVar

from bfcviz.errors import BfcvizError
from bfcviz.periodic import Periodic

# ------------------------------------------------------------------------------
# When the next frame of a live heap is drawn (Pace), and what it draws (FrameChoice).
#
# A whole frame costs tens of milliseconds; ten of them per second take a third of a core. So while new events come
# in each frame, only the region map is redrawn, and the other panels follow every second or two. When the heap is
# idle, or the user shows an earlier step, the whole frame is drawn, including the parts that are drawn only for an
# idle heap.

SAVED_S: Final = 1.0
"""Seconds of budget that may be spent at once: one expensive frame among cheap ones does not delay them."""

LONGEST_S: Final = 2.0
"""Most seconds from one frame to the next, at any cost: one slow frame must not stop the others."""


class Pace:
    """The pace of the renderer: measures frames and computes when the next one may begin."""

    def __init__(self, rate: float, budget: float) -> None:
        self.period_s = 1 / rate  # least seconds from one frame to the next
        self._budget = budget
        self._began = self._began_cpu = 0.0
        self._due = -math.inf  # when the next frame may begin
        self._spent = 0.0  # seconds of processor time that the budget does not cover yet
        self._counted = -math.inf  # when the budget was last added
        self.cost_s = 0.0  # processor time of the last frame in the thread that drew it, in seconds
        self.frames = 0  # number of frames so far

    def begin(self) -> None:
        """Begin a frame, in this thread."""
        self._began, self._began_cpu = time.monotonic(), time.thread_time()

    def end(self) -> float:
        """End the frame; return the seconds to wait before the next one."""
        self.cost_s = time.thread_time() - self._began_cpu
        self.frames += 1
        self._spent = max(self._spent - (self._began - self._counted) * self._budget, 0.0) + self.cost_s
        self._counted = self._began
        owed = self._spent / self._budget - SAVED_S
        # A frame that began a little late, as it waited for the interpreter's lock, does not make the next one late.
        late = self._began - self._due
        on_time = self._due if 0 <= late < self.period_s else self._began
        self._due = max(on_time + self.period_s, self._began + min(owed, LONGEST_S))
        return max(self._due - time.monotonic(), 0.0)


IDLE_S: Final = 0.3  # seconds without an event after which a heap is idle

WHOLE_S: Final = 1.0
"""Least seconds between two whole frames of an active heap; expensive ones are drawn less often."""

_SHARE: Final = 0.015  # of one core, for whole frames of an active heap
_LONGEST_S: Final = 3.0


class FrameKind(Enum):
    """What a frame of the renderer draws."""

    NOTHING = "nothing"
    MAP = "only the region map"
    MOVING = "everything except what is drawn only for an idle heap"
    WHOLE = "everything"


class FrameChoice:
    """What the renderer draws next: tracks when events came and what was drawn since then."""

    def __init__(self) -> None:
        self.moving = False  # the heap is active, and the last frame did not draw everything
        self._pending = False  # events came that no whole frame shows yet
        self._came_before = False  # events came before the last frame
        self._last_came = self._whole_due = 0.0

    def due(self, *, came: bool, followed: bool, ended: bool = False) -> FrameKind:
        """Choose what the renderer draws now.

        Args:
            came: events came since the last call.
            followed: the newest step is shown; if not, only the range of steps changes.
            ended: no more events will come.
        """
        now = time.monotonic()
        active = now - self._last_came < IDLE_S or (came and self._came_before)
        self._last_came, self._came_before = now if came else self._last_came, came
        self._pending |= came
        if not self._pending:
            return FrameKind.NOTHING
        if ended or not active:
            return FrameKind.WHOLE
        self.moving = followed
        if now >= self._whole_due:
            return FrameKind.MOVING if followed else FrameKind.WHOLE
        return FrameKind.MAP if came and followed else FrameKind.NOTHING

    def drew(self, frame: FrameKind, cost_s: float) -> None:
        """Record a frame that succeeded; `cost_s`: its processor time."""
        if frame is FrameKind.WHOLE:
            self._pending = self.moving = False
        if frame is not FrameKind.MAP:
            self._whole_due = time.monotonic() + min(max(WHOLE_S, cost_s / _SHARE), _LONGEST_S)


# ------------------------------------------------------------------------------
# Renderer: draws frames beside a workload, which never waits for them.

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
        self.pace = Pace(rate, budget)  # measures the cost of frames
        self.error: Exception | None = None  # the exception of the last frame; None if it succeeded
        self._frame = frame
        self._failures = 0
        self._paused = False
        self._periodic = Periodic(self._step, "bfcviz-renderer", ended=ended)

    @property
    def running(self) -> bool:
        """Whether the renderer was started, and neither was stopped nor ended by itself."""
        return self._periodic.running

    @property
    def thread(self) -> Thread | None:
        """The thread in which the renderer draws; None before `start`, after `stop`, and on an event loop."""
        return self._periodic.thread

    @property
    def paused(self) -> bool:
        """Whether the renderer is paused."""
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
        """Continue to draw frames after `pause`."""
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


# ------------------------------------------------------------------------------
# Workload: a function in a separate thread, so that the notebook's kernel can handle clicks.

T = TypeVar("T")


class Workload(Generic[T]):
    """A function that runs while the renderer draws; `await` it, or call `result()`, for its result or exception.

    Python cannot stop a thread from outside: an interrupt ends the wait, not the function.
    """

    def __init__(
        self, function: Callable[..., T], arguments: tuple[Any, ...], ended: Callable[[], None]
    ) -> None:
        self._future: Future[T] = Future()
        self._function = function
        self._arguments = arguments
        self._ended = ended
        run = contextvars.copy_context().run  # what it prints appears in the cell that started it
        self._thread = Thread(target=run, args=(self._run,), name="bfcviz-workload", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether the workload has returned or raised."""
        return self._future.done()

    @property
    def error(self) -> BaseException | None:
        """The exception that the workload raised; None while it runs, and if it returned."""
        return self._future.exception() if self._future.done() else None

    def result(self, timeout: float | None = None) -> T:
        """Wait at most `timeout` seconds; return the workload's result, or raise its exception or TimeoutError."""
        return self._future.result(timeout)

    def __await__(self) -> Generator[Any, None, T]:
        # Shielded: cancelling the wait must not cancel the future, as the function cannot be stopped.
        return asyncio.shield(asyncio.wrap_future(self._future)).__await__()

    def _run(self) -> None:
        try:
            result = self._function(*self._arguments)
        except BaseException as error:  # noqa: BLE001  `result` raises it
            self._future.set_exception(error)
        else:
            self._future.set_result(result)
        self._ended()

"""LiveDashboard: the Inspector of an active heap; it shows the newest event until the user goes back."""

import os
import time
import weakref
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Any, Final, TypeVar

import ipywidgets as widgets

from bfcviz import notebook
from bfcviz.analysis.account import DeviceAccount, device_number
from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.header import notice
from bfcviz.dashboard.inspector import Inspector
from bfcviz.dashboard.render_loop import BUDGET, RATE, FrameChoice, FrameKind, Renderer, Workload
from bfcviz.dashboard.table import row
from bfcviz.dashboard.toolbar import numbered
from bfcviz.errors import BfcvizError
from bfcviz.events.origin import Status
from bfcviz.events.sliding_window import KEEP
from bfcviz.events.storage.folder import await_recording
from bfcviz.events.trace import Trace
from bfcviz.live.device_account import account_now
from bfcviz.model.trace_from_source import source_name, trace_of
from bfcviz.periodic import Periodic
from bfcviz.unwatched import unwatched

# ------------------------------------------------------------------------------
# RingReader: reads events from the rings of heaps in this process, more often than frames are drawn.
#
# A ring overwrites events that were not read. Between two frames, and while one is drawn, a fast heap could fill its
# whole ring. So a separate thread copies new events, which takes some microseconds, as often as the heap's speed
# requires. A heap still loses events if it fills its ring within `LEAST_S`, or while one call holds the
# interpreter's lock.

LEAST_S: Final = 0.01  # least seconds between two reads

MOST_S: Final = 0.05  # most seconds between two reads: the delay until it notices that a heap became fast

_SHARE: Final = 0.25  # of a ring that may fill between two reads


class RingReader:
    """Reads the new events of live heaps that can lose events, until it is stopped or the traces are freed.

    Args:
        traces: of heaps; it holds weak references to them.
    """

    def __init__(self, traces: Iterable[Trace]) -> None:
        self._traces = [weakref.ref(trace) for trace in traces if trace.slack is not None]
        self._wait = LEAST_S
        self._periodic = Periodic(self._read, "bfcviz-ring-reader")

    @property
    def running(self) -> bool:
        """Whether live heaps are being read: started and not stopped."""
        return self._periodic.running

    def start(self) -> None:
        """Start to read the live heaps. Does nothing if it runs already, or if no trace can lose events."""
        if self._traces:
            self._periodic.start(LEAST_S)

    def stop(self) -> None:
        """Stop reading the live heaps, without waiting for a read in progress; it can be started again."""
        self._periodic.stop(0)

    def _read(self) -> float | None:
        """Read the live heaps that still exist; return the seconds until the next read, None if no trace is left."""
        found = [trace for each in self._traces if (trace := each()) is not None and trace.following]
        if not found:
            return None
        self._wait = min(read_ring_once(trace, self._wait) for trace in found)
        return self._wait


def read_ring_once(trace: Trace, waited: float) -> float:
    """A read of the `RingReader`; return the seconds in which a quarter of the ring fills at this speed."""
    filled = trace.fetch() / (_SHARE * (trace.slack or 1))
    return min(max(waited / filled if filled else MOST_S, LEAST_S), MOST_S)


# ------------------------------------------------------------------------------
# The status line of a live view: counts of events and frames, and their rates.

PERIOD_S: Final = 1.0

_LEAST_RATE_S: Final = 0.1  # a rate over less says nothing


class StatusLine:
    """The status line of a live heap: counts events and frames; measures their rates once a second.

    Attributes:
        ending: how what is watched ended, such as `interrupted`, where the trace cannot say it; "": it has not.
    """

    def __init__(self) -> None:
        self.ending = ""
        self._at = self._due = 0.0
        self._steps = self._frames = 0
        self._rates = ""

    def hurry(self) -> None:
        """Measure the rates of events and frames for the next status line."""
        self._due = 0.0

    def restart(self) -> None:
        """Forget the rates of the status line: what was counted before is of another heap, or unseen."""
        self._at = self._due = 0.0

    def text(
        self, trace: Trace, shown: int, frames: int, error: BaseException | None, *, paused: bool = False
    ) -> str:
        """The status line.

        Args:
            trace: what is shown.
            shown: events of the last frame; the trace may have more already.
            frames: drawn so far.
            error: why no more are drawn.
            paused: whether the user paused the drawing.
        """
        now = time.monotonic()
        if now >= self._due:
            seconds, self._rates = now - self._at, ""
            if self._at and seconds > _LEAST_RATE_S:
                events, drawn = (len(trace) - self._steps) / seconds, (frames - self._frames) / seconds
                self._rates = f", {events:,.0f} events/s, {drawn:.1f} frames/s"
            self._at, self._due = 0.0 if paused else now, now + PERIOD_S  # no rate over a pause
            self._steps, self._frames = len(trace), frames
        rates = self._rates if trace.following and not paused and not self.ending else ""
        parts = [_status_line_state(trace, shown, self.ending, paused=paused) + rates]
        if not notice(trace.origin)[0]:  # `notice` shows the reasons, below
            parts += trace.origin.reasons
        if error is not None:
            parts.insert(0, f"failed: {type(error).__name__}: {error}")
        return "; ".join(parts)


def _status_line_state(trace: Trace, shown: int, ending: str, *, paused: bool) -> str:
    if trace.following:  # a ring grows as long as arrays live in its heap; after the end that is not shown
        name = ending or ("paused" if paused else "live")
    else:
        name = f"{ending or 'ended'} ({trace.origin.status})"
    return f"{name}: {shown:,} events{'' if trace.following else _status_line_exit(trace)}"


def _status_line_exit(trace: Trace) -> str:
    """In the status line: how the process that `bfcviz record` recorded ended; empty for other traces."""
    process = trace.origin.details.get("process")
    if not isinstance(process, int):
        return ""
    if trace.origin.status is Status.TRUNCATED:
        return f"; process {process} was killed, or ended without closing its recording"
    return f"; process {process} ended"


# ------------------------------------------------------------------------------
# LiveDashboard

T = TypeVar("T")


class LiveDashboard(widgets.VBox):  # type: ignore[misc]
    """The live view of one or more heaps while they work, drawn by a thread beside them.

    The heap's threads never wait for a frame: events are read from the heap's log, and the heap's state is read only
    if the log has lost events (a lock of some microseconds). Frames take at most `budget` of a core on average: if
    they cost more, fewer are drawn. While new events come in each frame, only the region map is redrawn, and the rest
    follows every second or two. When the heap is idle, everything is drawn.

    Args:
        source: a BFCAllocator, EventLog, Recording, Trace, or path of a recording, or a list of these.
        rate: most frames per second.
        budget: share of one core that drawing may take.
        keep: events to keep of a heap that has only a ring in memory; 64 bytes each.
        start: whether to start now; else call `start()`.
        options: arguments of the Inspector.

    Raises:
        BfcvizError: a source that is not a heap, log, recording or trace, or cannot be read.

    Attributes:
        inspector: the view of the heap shown.
        traces: the trace of each source.
        renderer: draws the frames; its `pace` measures their cost, its `error` is the last failure.
        pictures: number of frames drawn.
        status: the status line, as HTML; `StatusLine` makes its text.
        bar: the row above the Inspector: the button that pauses, the menu of heaps if there are several, the status.
        menu, pause_button: the menu of heaps, and the button that pauses.
    """

    @unwatched()
    def __init__(
        self,
        source: Any,
        *,
        rate: float = RATE,
        budget: float = BUDGET,
        keep: int = KEEP,
        start: bool = True,
        **options: Any,
    ) -> None:
        sources = list(source) if isinstance(source, list | tuple) else [source]
        if not sources:
            raise BfcvizError("no heap to watch: the list is empty; give a heap, or a list of heaps")
        self.traces = [trace_of(each, keep) for each in sources]
        self._shown = 0
        self._hidden = False
        self._length = self._drawn = len(self.traces[0])  # events that came, and those that the page shows
        self._frame_choice = FrameChoice()
        self._ring_reader = RingReader(self.traces)
        self._is_here = not any(isinstance(each, str | os.PathLike) for each in sources)
        read_device = widget_lifetime.weakly(self.show_device, gone=None)
        self._device_reader = Periodic(read_device, "bfcviz-device-memory")
        self._workload: Workload[Any] | None = None
        self.pictures = 0
        self.status_line = StatusLine()
        ended = widget_lifetime.weakly(self.show_end, gone=None)
        frame = widget_lifetime.weakly(self.draw_frame, gone=False)
        self.renderer = Renderer(frame, rate=rate, budget=budget, ended=ended)
        self.inspector = Inspector(self.trace, follow=True, **options)
        self.status = widgets.HTML()
        self.status.add_class("bfcviz-live")
        self.pause_button = widgets.ToggleButton(
            value=False, description="pause", icon="pause", tooltip="pause drawing"
        )
        names = [source_name(each, trace) for each, trace in zip(sources, self.traces, strict=True)]
        self.menu = widgets.Dropdown(options=numbered(names), value=0, description="heap")
        self.bar = row([self.pause_button, *([self.menu] if len(sources) > 1 else []), self.status])
        super().__init__([self.bar, self.inspector], _view_count=0)
        widget_lifetime.free_unseen(self, self.inspector, beside=[self.menu])
        self.pause_button.observe(lambda _: self._pause_changed(), "value")
        self.menu.observe(lambda _: self._change_heap(), "value")
        self.observe(self._views_changed, "_view_count")
        widget_lifetime.route([self])
        self._show_status()
        if start:
            self.start()

    @property
    def trace(self) -> Trace:
        """The trace of the live heap that is shown.

        Raises:
            BfcvizError: the dashboard is closed.
        """
        if self.closed:
            raise BfcvizError("this LiveDashboard is closed and has no trace; make a new one")
        return self.traces[self._shown]

    @property
    def closed(self) -> bool:
        """Whether the live dashboard was closed."""
        return not self.traces

    @property
    def growing(self) -> bool:
        """Whether more events of the live heap may be shown: neither the trace nor what is watched has ended."""
        return self.trace.following and not self.status_line.ending

    # -- running and drawing ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to draw the live heap in a thread, beside the workload."""
        self._start_readers()
        with unwatched():
            self.renderer.start()

    def _start_readers(self) -> None:
        with unwatched():
            self._ring_reader.start()
            self._device_reader.start()

    def stop(self) -> None:
        """Stop drawing and reading the live heap until `start`, and show its state; one with a ring may lose events."""
        self.renderer.stop()
        self._ring_reader.stop()
        self._device_reader.stop(0)
        with self.inspector.lock:
            if not self.closed:
                self.inspector.header.show_device(None)
        self._complete_frame()

    def pause(self) -> None:
        """Stop drawing the live heap until `resume`; events are still read, up to `keep` of a heap with a ring."""
        self.pause_button.value = True

    def resume(self) -> None:
        """Continue to draw the live heap after `pause`."""
        self.pause_button.value = False

    def refresh(self) -> bool:
        """Read new events of the live heap, draw the whole frame now; return whether more may come. From any thread."""
        return self._show(now=True)

    def draw_frame(self) -> bool:
        """Draw the frame of the live heap that is due, for the renderer; return whether more may come."""
        with self.inspector.lock:
            if self.closed:
                return False
            if self.renderer.paused:  # since this frame began: the whole frame was drawn already
                return self.trace.following
            return self._show(now=False)

    def _show(self, *, now: bool) -> bool:
        with self.inspector.lock:
            if self.closed:
                return False
            self.trace.refresh()
            before, self._length = self._length, len(self.trace)
            came, growing = self._length > before, self.trace.following
            frame = self._frame_choice.due(
                came=came, followed=self.inspector.follow, ended=now or not growing
            )
            if frame is not FrameKind.NOTHING:
                self.draw(frame)
            if now:
                self.status_line.hurry()
            self._show_status()
            return growing

    def draw(self, frame: FrameKind) -> None:
        """Draw this kind of frame of the live heap; a moving map that cannot be drawn alone comes with all else."""
        began = time.thread_time()
        if frame is not FrameKind.MAP or not self.inspector.draw_moving_map():
            frame = FrameKind.MOVING if frame is FrameKind.MAP else frame
            self.inspector.trace_grew(moving=frame is FrameKind.MOVING)
        # Not after a failure: the next frame draws it.
        self._frame_choice.drew(frame, time.thread_time() - began)
        self.pictures += 1
        self._drawn = len(self.trace)

    def show_device(self) -> float | None:
        """Read and show the memory of the live heap's device; return the seconds until the next time, None: no more."""
        traces = self.traces if self._is_here else []
        if not any(device_number(trace, 0) is not None and trace.following for trace in traces):
            return None
        account = None if self.renderer.paused else _live_device_account(traces[self._shown])
        with self.inspector.lock:
            if self._device_reader.running and not self.closed:
                self.inspector.header.show_device(account)
        return PERIOD_S

    def _complete_frame(self) -> None:
        """Draw the whole frame if the last one drew only a part."""
        with self.inspector.lock:
            if self._frame_choice.moving and not self.closed:
                self.draw(FrameKind.WHOLE)

    def run(self, function: Callable[..., T], *arguments: Any) -> Workload[T]:
        """Run a workload in a separate thread and keep this one free: then every kernel can handle clicks.

        In a notebook the kernel's event loop draws the frames meanwhile. `await` the returned Workload for the
        result. If the workload raises, the dashboard also shows the error.
        """
        self.renderer.stop()
        self._start_readers()
        try:
            self.renderer.start_task()
        except BfcvizError:  # a script: no event loop
            self.start()
        self._workload = Workload(function, arguments, self._workload_ended)
        if self._workload.done:  # before it was known here
            self._workload_ended()
        return self._workload

    def close(self) -> None:
        """Close the live dashboard: stop drawing, remove it from the page, and free its memory."""
        if "bar" not in self.__dict__ or self.closed:  # Python also closes one whose __init__ raised
            return
        self.renderer.stop()
        self._ring_reader.stop()
        self._device_reader.stop(0)
        self.traces = []
        self._workload = None
        self.inspector.close()
        widget_lifetime.close(self, self.menu)
        self.set_trait("children", ())

    # -- user actions and status -----------------------------------------------------------------------------

    def _pause_changed(self) -> None:
        paused = self.pause_button.value
        self.pause_button.description = "resume" if paused else "pause"
        self.pause_button.icon = "play" if paused else "pause"
        self._pause_or_resume()
        if not paused and not self.closed:
            # What came during the pause is no speed of the heap: it is taken in before the rates are measured.
            with self.inspector.lock:
                self.trace.refresh()
                self.status_line.restart()
        self._show_status_now()

    def _views_changed(self, change: dict[str, Any]) -> None:
        """A view appeared or disappeared: without a view, such as after an output is cleared, nothing is drawn."""
        self._hidden = change["new"] == 0
        self.status_line.restart()
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        if self.pause_button.value or self._hidden:
            self.renderer.pause()
            self._complete_frame()
        else:
            self.renderer.resume()

    def _change_heap(self) -> None:
        with self.inspector.lock:
            self._shown = self.menu.value
            self._frame_choice = FrameChoice()
            self.trace.refresh()
            self._length = self._drawn = len(self.trace)
            self.inspector.change_trace(self.trace)
            if not self.growing:
                self.inspector.show_end()
            widget_lifetime.route([self.inspector])  # its lists are new
            self.status_line.restart()
            self._show_status()

    def _show_status(self) -> None:
        working = self._workload is not None and not self._workload.done
        error = self.renderer.error or (None if self._workload is None else self._workload.error)
        paused = self.pause_button.value
        text = self.status_line.text(self.trace, self._drawn, self.pictures, error, paused=paused)
        # After the end there is nothing to pause; a view that was paused before may still show the rest.
        self.pause_button.layout.display = None if paused or self.growing else "none"
        if not working and self.growing and not notebook.answers_while_busy():
            text += f". {notebook.description()}"
        self.status.value = f"<div role='status' style='line-height: 1.45'>{escape(text)}</div>"

    def show_end(self) -> None:
        """Show the last status line, and nothing to follow; called after the last frame."""
        if not self.closed:
            self._show_status_now()
            if not self.growing:
                self.inspector.show_end()

    def _show_status_now(self) -> None:
        with self.inspector.lock:
            self.status_line.hurry()
            self._show_status()

    def _workload_ended(self) -> None:
        """Show the end in the next frame; in a pause there is none."""
        self.status_line.hurry()
        if self.pause_button.value and not self.closed:
            self._show_status_now()


def _live_device_account(trace: Trace) -> DeviceAccount | None:
    """The account of a live heap's device now; None: it has no device, or not in this process."""
    process, number = trace.origin.details.get("process"), device_number(trace, 0)
    if number is None or process not in {None, os.getpid()} or not trace.following:
        return None
    return next((each for each in account_now().devices if each.number == number), None)


# ------------------------------------------------------------------------------
# What another process records: `follow`, a LiveDashboard of one recording.

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

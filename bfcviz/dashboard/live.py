"""LiveDashboard: the Inspector of a heap that is at work, always at its newest event unless somebody looks back."""

import time
import weakref
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, TypeVar

import ipywidgets as widgets

from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.background import kernel
from bfcviz.dashboard.background.frame_choice import Frame, Motion
from bfcviz.dashboard.background.renderer import BUDGET, RATE, Renderer
from bfcviz.dashboard.background.ring_reader import Drain
from bfcviz.dashboard.background.status_line import Pulse
from bfcviz.dashboard.background.workload import Work
from bfcviz.dashboard.inspector import Inspector
from bfcviz.dashboard.sources import name_of, trace_of
from bfcviz.errors import BfcvizError
from bfcviz.events.live_window import KEEP
from bfcviz.events.trace import Trace

T = TypeVar("T")


class LiveDashboard(widgets.VBox):  # type: ignore[misc]
    """A view of one or more heaps while they work, drawn by a thread beside them.

    The heap's threads never wait for a picture: events are read from the heap's log, and the heap is asked for
    its state only where the log has lost events (a lock of some microseconds). Pictures take at most `budget`
    of a core on average: where they cost more, there are fewer. While events come one picture after the other,
    the region map alone moves and the rest follows every second or two (see `motion`); when the heap rests, there
    is all of it.

    Args:
        source: a BFCAllocator, EventLog, Recording, Trace, or path of a recording, or a list of these.
        rate: pictures a second, at most.
        budget: share of one core that pictures may take.
        keep: events kept of a heap that has only a ring in memory; 64 bytes each.
        start: whether to begin at once; else `start()` does.
        options: of the Inspector.

    Raises:
        BfcvizError: a source that cannot be watched.

    Attributes:
        inspector: the view itself.
        traces: one for each source.
        renderer: what draws; its `pace` tells the cost of a picture, its `error` what went wrong.
        pictures: how many were made.
    """

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
            raise BfcvizError("no heap was given to watch; give one, or a list of some")
        self.traces = [trace_of(each, keep) for each in sources]
        self._shown = 0
        self._unseen = False
        self._length = len(self.traces[0])
        self._motion = Motion()
        self._drain = Drain(self.traces)
        self._work: Work[Any] | None = None
        self.pictures = 0
        self._pulse = Pulse()
        self.renderer = Renderer(_frame_of(self), rate=rate, budget=budget, ended=_ending_of(self))
        self.inspector = Inspector(self.trace, follow=True, **options)
        self._words = widgets.HTML()
        self._words.add_class("bfcviz-live")
        self._switch = widgets.ToggleButton(
            value=False, description="pause", icon="pause", tooltip="pause the picture"
        )
        names = [name_of(each, trace) for each, trace in zip(sources, self.traces, strict=True)]
        self._menu = widgets.Dropdown(options=numbered(names), value=0, description="heap")
        row = [self._switch, *([self._menu] if len(sources) > 1 else []), self._words]
        self._bar = widgets.HBox(row, layout={"flex_flow": "row wrap", "align_items": "center"})
        super().__init__([self._bar, self.inspector], _view_count=0)
        widget_lifetime.free_unseen(self, self.inspector, beside=[self._menu])
        self._switch.observe(lambda _: self._switched(), "value")
        self._menu.observe(lambda _: self._change_heap(), "value")
        self.observe(self._seen, "_view_count")
        kernel.route([self])
        self._say()
        if start:
            self.start()

    @property
    def trace(self) -> Trace:
        """What is shown.

        Raises:
            BfcvizError: the dashboard is closed.
        """
        if self.closed:
            raise BfcvizError("this LiveDashboard is closed and has no trace any more; make a new one")
        return self.traces[self._shown]

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self.traces

    # -- how it goes on --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Draw beside whatever runs, in a thread."""
        self._drain.start()
        self.renderer.start()

    def stop(self) -> None:
        """Draw and read nothing more until `start`, and show where it stands; a heap with a ring goes on unseen."""
        self.renderer.stop()
        self._drain.stop()
        self._rest()

    def pause(self) -> None:
        """Draw nothing until `resume`; events are still read, up to `keep` of a heap with a ring."""
        self._switch.value = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self._switch.value = False

    def refresh(self) -> bool:
        """Take over what is new and show it all, now; returns whether more may come. From any thread."""
        return self._show(now=True)

    def _frame(self) -> bool:
        """The renderer's picture: whichever is due; returns whether more may come."""
        with self.inspector.lock:
            if self.closed:
                return False
            if self.renderer.paused:  # since this frame began: the whole picture is there already
                return self.trace.following
            return self._show(now=False)

    def _show(self, *, now: bool) -> bool:
        with self.inspector.lock:
            if self.closed:
                return False
            self.trace.refresh()
            before, self._length = self._length, len(self.trace)
            came, going = self._length > before, self.trace.following
            frame = self._motion.due(came=came, followed=self.inspector.follow, ended=now or not going)
            if frame is not Frame.NOTHING:
                self._draw(frame)
            self._say()
            return going

    def _draw(self, frame: Frame) -> None:
        began = time.thread_time()
        if frame is not Frame.GLANCE or not self.inspector.glance():
            frame = Frame.MOVING if frame is Frame.GLANCE else frame
            self.inspector.trace_grew(moving=frame is Frame.MOVING)
        self._motion.drew(frame, time.thread_time() - began)  # not where it failed: the next makes up for it
        self.pictures += 1

    def _rest(self) -> None:
        """The whole picture of where it stands, where what is shown is only a part of it."""
        with self.inspector.lock:
            if self._motion.moving and not self.closed:
                self._draw(Frame.WHOLE)

    def run(self, function: Callable[..., T], *arguments: Any) -> Work[T]:
        """Run a workload in a thread of its own and leave this one free: clicks are then answered by any kernel.

        In a notebook pictures are made by the kernel's event loop meanwhile. `await` what this returns for the
        result; what it raised is also said in the dashboard.
        """
        self.renderer.stop()
        self._drain.start()
        try:
            self.renderer.start_task()
        except BfcvizError:  # a script: no event loop
            self.renderer.start()
        self._work = Work(function, arguments, self._pulse.hurry)
        return self._work

    def close(self) -> None:
        """End it: no more pictures, the page forgets it, and what it kept is freed."""
        if "_bar" not in self.__dict__ or self.closed:  # Python closes one as well that was refused
            return
        self.renderer.stop()
        self._drain.stop()
        self.traces = []
        self._work = None
        self.inspector.close()
        widget_lifetime.close(self, self._menu)
        self.set_trait("children", ())

    # -- what happens ----------------------------------------------------------------------------------------

    def _switched(self) -> None:
        paused = self._switch.value
        self._switch.description, self._switch.icon = ("go on", "play") if paused else ("pause", "pause")
        self._let_draw()

    def _seen(self, change: dict[str, Any]) -> None:
        """A view of it came or went: where the last one went, as when an output is cleared, nothing is drawn."""
        self._unseen = change["new"] == 0
        self._let_draw()

    def _let_draw(self) -> None:
        if self._switch.value or self._unseen:
            self.renderer.pause()
            self._rest()
        else:
            self.renderer.resume()

    def _change_heap(self) -> None:
        with self.inspector.lock:
            self._shown = self._menu.value
            self._motion = Motion()
            self.trace.refresh()
            self._length = len(self.trace)
            self.inspector.change_trace(self.trace)
            kernel.route([self.inspector])  # its lists are new

    def _say(self) -> None:
        working = self._work is not None and not self._work.done
        error = self.renderer.error or (None if self._work is None else self._work.error)
        text = self._pulse.words(self.trace, self.pictures, error)
        if text is None:
            return
        if not working and self.trace.following and not kernel.answers_while_busy():
            text += f". {kernel.words()}"
        self._words.value = f"<div role='status' style='line-height: 1.45'>{escape(text)}</div>"

    def _ended(self) -> None:
        if not self.closed:
            self._pulse.hurry()
            self._say()


def numbered(names: Sequence[str]) -> list[tuple[str, int]]:
    """Names of heaps with their numbers, for a menu; with the number in the name where names alone do not tell."""
    many = len(set(names)) < len(names)
    return [(f"{name} ({number})" if many else name, number) for number, name in enumerate(names)]


def _frame_of(dashboard: LiveDashboard) -> Callable[[], bool]:
    """`refresh` for a renderer, whose thread must not keep a dashboard alive that nobody has any more."""
    where = weakref.ref(dashboard)

    def frame() -> bool:
        there = where()
        return there is not None and there._frame()  # noqa: SLF001

    return frame


def _ending_of(dashboard: LiveDashboard) -> Callable[[], None]:
    where = weakref.ref(dashboard)

    def ended() -> None:
        there = where()
        if there is not None:
            there._ended()  # noqa: SLF001

    return ended

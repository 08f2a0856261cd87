"""The lifetime of a dashboard's widgets: until they are closed, or no page and no variable refers to them.

ipywidgets keeps every widget in a table, and the comm manager keeps its callback, until the widget is closed. A
dashboard has some 300 widgets; each button refers to the dashboard, and the dashboard to its events. So one open
widget keeps everything in memory.
"""

import atexit
import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

import ipywidgets as widgets
import traitlets
from ipywidgets.widgets import widget as _registry

P = ParamSpec("P")
T = TypeVar("T")

_LINKS = (traitlets.link, traitlets.directional_link)


def family(*parents: widgets.Widget, without: Collection[widgets.Widget] = ()) -> list[widgets.Widget]:
    """These widgets and all inside them: children, layouts and styles; without those in `without` and their parts."""
    known, found, waiting = {id(each) for each in without}, [], list(parents)
    while waiting:
        widget = waiting.pop()
        if id(widget) in known:
            continue
        known.add(id(widget))
        found.append(widget)
        for value in list(widget._trait_values.values()):  # noqa: SLF001  getattr would create missing values
            parts = value if isinstance(value, list | tuple) else (value,)
            waiting += [part for part in parts if isinstance(part, widgets.Widget)]
    return found


def close(*parents: widgets.Widget, without: Collection[widgets.Widget] = ()) -> None:
    """End the lifetime of these widgets and all inside: close them, remove their observers and links to others."""
    for widget in family(*parents, without=without):
        with suppress(KeyError):  # created before ipykernel was imported, which has its own table of comms
            widgets.Widget.close(widget)
        widget.comm = None
        _unlink_widget(widget)
        widget.unobserve_all()


def free_unseen(
    root: widgets.Widget, *inside: widgets.Widget, beside: Collection[widgets.Widget] = ()
) -> None:
    """Let Python free `root` when the page shows no view of it and no variable refers to it.

    It is kept until the first view appears, and again while a later view exists.

    Args:
        root: a widget that counts its views.
        inside: widgets in it that count their views and can be displayed alone.
        beside: widgets that belong to it but are not always inside it.
    """

    def changed(_: object) -> None:
        seen = any(each._view_count for each in (root, *inside))  # noqa: SLF001  ipywidgets' name for it
        _set_widgets_kept(family(root, *beside), kept=seen)

    roots.add(root)
    for each in (root, *inside):
        each.observe(changed, "_view_count")


def _set_widgets_kept(found: Iterable[widgets.Widget], *, kept: bool) -> None:
    for widget in found:
        if widget.comm is None:
            continue
        # A reloaded page requests every widget in this table, including those that no page shows now.
        _registry._instances[widget.model_id] = widget if kept else _weak_proxy(widget)  # noqa: SLF001  no public way
        handle = widget._handle_msg  # noqa: SLF001
        widget.comm.on_msg(handle if kept else weakly(handle, gone=None))


def _weak_proxy(widget: widgets.Widget) -> widgets.Widget:
    """A weak proxy of a widget; when the widget is freed, its entry in the table is removed."""
    number = widget.model_id
    return weakref.proxy(widget, lambda _: _registry._instances.pop(number, None))  # noqa: SLF001


def weakly(method: Callable[P, T], *, gone: T) -> Callable[P, T]:
    """The method of a widget as a callback that does not keep the widget alive; returns `gone` once that is freed."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: P.args, **named: P.kwargs) -> T:
        alive = reference()
        return gone if alive is None else alive(*arguments, **named)

    return call


def _unlink_widget(widget: widgets.Widget) -> None:
    """Remove traitlets' links to this widget: the other end would keep it in memory."""
    by_name = widget._trait_notifiers.values()  # noqa: SLF001  traitlets has no public list of observers
    observers = [each for by_type in by_name for found in by_type.values() for each in found]
    owners = [getattr(each, "__self__", None) for each in observers]
    for link in {id(owner): owner for owner in owners if isinstance(owner, _LINKS)}.values():
        with suppress(ValueError):  # the other end is closed already
            link.unlink()


def _forget_all() -> None:
    """Drop all open widgets without sending messages: the page keeps its last picture when a kernel ends.

    Else a widget freed during Python's shutdown would close itself when half of the modules are gone.
    """
    for root in list(roots):
        for widget in family(root):
            _registry._instances.pop(widget._model_id, None)  # noqa: SLF001
            if widget.comm is not None:
                widget.comm._closed = True  # noqa: SLF001  else it sends a close message when it is freed
                widget.comm.on_msg(None)
                widget.comm = None


roots: "weakref.WeakSet[widgets.Widget]" = weakref.WeakSet()
"""The dashboards that exist, and what they share."""

atexit.register(_forget_all)


def route(parts: Iterable[widgets.Widget]) -> None:
    """Handle clicks on these widgets, and on all inside them, on the subshell that the page chose.

    ipykernel 7.4 uses the shell that last wrote to the widget instead, which is the busy one. It has no public way to
    change that. Other versions are not changed.
    """
    for part in parts:
        comm = getattr(part, "comm", None)
        if comm is not None and hasattr(comm, "_reply_subshell_for"):
            comm._reply_subshell_for = _comm_reply_subshell  # noqa: SLF001
        route(getattr(part, "children", ()))


def _comm_reply_subshell(_: Any, default: Any) -> Any:
    return default

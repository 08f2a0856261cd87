"""How long the widgets of a dashboard live: until they are closed, or no page and no variable refers to them.

ipywidgets keeps every widget in a table, and the comm manager keeps its callback, until the widget is closed. A
dashboard has some 300 widgets; each button refers to the dashboard, and the dashboard to its events. So one widget
that stays open keeps everything.
"""

import atexit
import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

import ipywidgets as widgets
import traitlets
from ipywidgets.widgets import widget as _registry

_LINKS = (traitlets.link, traitlets.directional_link)


def family(*roots: widgets.Widget, without: Collection[widgets.Widget] = ()) -> list[widgets.Widget]:
    """These widgets and every widget in them: children, layouts and styles; not those `without`, or in these."""
    known, found, waiting = {id(each) for each in without}, [], list(roots)
    while waiting:
        widget = waiting.pop()
        if id(widget) in known:
            continue
        known.add(id(widget))
        found.append(widget)
        for value in list(widget._trait_values.values()):  # noqa: SLF001  getattr would make what is not there
            parts = value if isinstance(value, list | tuple) else (value,)
            waiting += [part for part in parts if isinstance(part, widgets.Widget)]
    return found


def close(*roots: widgets.Widget, without: Collection[widgets.Widget] = ()) -> None:
    """Close the family of these widgets, and end what observes it and what links it to others."""
    for widget in family(*roots, without=without):
        with suppress(KeyError):  # made before ipykernel came, with its own table of comms
            widgets.Widget.close(widget)
        widget.comm = None
        _unlink(widget)
        widget.unobserve_all()


def free_unseen(
    root: widgets.Widget, *inside: widgets.Widget, beside: Collection[widgets.Widget] = ()
) -> None:
    """Let Python free `root` once the page shows no view of it and no variable refers to it.

    It is kept until the first view appears, and again while a later view is there.

    Args:
        root: counts its views.
        inside: widgets in it that count theirs, and can be displayed on their own.
        beside: widgets that belong to it and are not always in it.
    """

    def changed(_: object) -> None:
        seen = any(each._view_count for each in (root, *inside))  # noqa: SLF001  ipywidgets' name for it
        _set_kept(family(root, *beside), kept=seen)

    _roots.add(root)
    for each in (root, *inside):
        each.observe(changed, "_view_count")


def _set_kept(found: Iterable[widgets.Widget], *, kept: bool) -> None:
    for widget in found:
        if widget.comm is None:
            continue
        # A page that is loaded anew asks for all that is in this table, also for what no page shows now.
        _registry._instances[widget.model_id] = widget if kept else _proxy(widget)  # noqa: SLF001  no public way
        hear = widget._handle_msg  # noqa: SLF001
        widget.comm.on_msg(hear if kept else _weakly(hear))


def _proxy(widget: widgets.Widget) -> widgets.Widget:
    """Refers to a widget without keeping it; its entry in the table goes with the widget."""
    number = widget.model_id
    return weakref.proxy(widget, lambda _: _registry._instances.pop(number, None))  # noqa: SLF001


def _weakly(method: Callable[[Any], Any]) -> Callable[[Any], None]:
    where = weakref.WeakMethod(method)

    def call(message: Any) -> None:
        there = where()
        if there is not None:
            there(message)

    return call


def _unlink(widget: widgets.Widget) -> None:
    """End traitlets' links that this widget takes part in: the other end would keep it."""
    by_name = widget._trait_notifiers.values()  # noqa: SLF001  traitlets has no public list of observers
    observers = [each for by_type in by_name for found in by_type.values() for each in found]
    for link in {id(of): of for each in observers if isinstance(of := _owner(each), _LINKS)}.values():
        with suppress(ValueError):  # the other end has closed, too
            link.unlink()


def _owner(observer: object) -> object:
    return getattr(observer, "__self__", None)


def _forget_all() -> None:
    """Forget what is open, and send nothing: the page keeps its last picture when a kernel ends.

    While Python ends, a widget that is freed would close itself with half of the modules gone.
    """
    for root in list(_roots):
        for widget in family(root):
            _registry._instances.pop(widget._model_id, None)  # noqa: SLF001
            if widget.comm is not None:
                widget.comm._closed = True  # noqa: SLF001  else it sends its end when it is freed
                widget.comm.on_msg(None)
                widget.comm = None


_roots: "weakref.WeakSet[widgets.Widget]" = weakref.WeakSet()
atexit.register(_forget_all)

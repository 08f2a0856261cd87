"""The notebook whose kernel this process is: what it can do while a cell runs, and display in it.

A kernel with subshells (ipykernel 7) handles clicks in a separate thread while a cell runs. Older kernels, and pages
that do not use subshells, handle them after the cell has ended.
"""

import atexit
import sys
import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

import ipywidgets as widgets
import traitlets
from ipywidgets.widgets import widget as _registry

# ------------------------------------------------------------------------------
# The lifetime of a dashboard's widgets: until they are closed, or no page and no variable refers to them.
#
# ipywidgets keeps every widget in a table, and the comm manager keeps its callback, until the widget is closed. A
# dashboard has some 300 widgets; each button refers to the dashboard, and the dashboard to its events. So one open
# widget keeps everything in memory.

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
    """Close the family of these widgets, and remove its observers and its links to other widgets."""
    for widget in family(*parents, without=without):
        with suppress(KeyError):  # created before ipykernel was imported, which has its own table of comms
            widgets.Widget.close(widget)
        widget.comm = None
        _unlink(widget)
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
        _set_kept(family(root, *beside), kept=seen)

    roots.add(root)
    for each in (root, *inside):
        each.observe(changed, "_view_count")


def _set_kept(found: Iterable[widgets.Widget], *, kept: bool) -> None:
    for widget in found:
        if widget.comm is None:
            continue
        # A reloaded page requests every widget in this table, including those that no page shows now.
        _registry._instances[widget.model_id] = widget if kept else _proxy(widget)  # noqa: SLF001  no public way
        handle = widget._handle_msg  # noqa: SLF001
        widget.comm.on_msg(handle if kept else _weakly(handle))


def _proxy(widget: widgets.Widget) -> widgets.Widget:
    """A weak proxy of a widget; when the widget is freed, its entry in the table is removed."""
    number = widget.model_id
    return weakref.proxy(widget, lambda _: _registry._instances.pop(number, None))  # noqa: SLF001


def _weakly(method: Callable[[Any], Any]) -> Callable[[Any], None]:
    reference = weakref.WeakMethod(method)

    def call(message: Any) -> None:
        alive = reference()
        if alive is not None:
            alive(message)

    return call


def _unlink(widget: widgets.Widget) -> None:
    """Remove traitlets' links to this widget: the other end would keep it in memory."""
    by_name = widget._trait_notifiers.values()  # noqa: SLF001  traitlets has no public list of observers
    observers = [each for by_type in by_name for found in by_type.values() for each in found]
    for link in {id(of): of for each in observers if isinstance(of := _owner(each), _LINKS)}.values():
        with suppress(ValueError):  # the other end is closed already
            link.unlink()


def _owner(observer: object) -> object:
    return getattr(observer, "__self__", None)


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


# ------------------------------------------------------------------------------
# The notebook whose kernel this process is: what it can do while a cell runs, and display in it.


def answers_while_busy() -> bool:
    """Whether clicks can reach Python while a cell runs, if the page uses subshells (JupyterLab 4.4 does)."""
    kernel = _kernel()
    return kernel is not None and bool(getattr(kernel, "_supports_kernel_subshells", False))


def description() -> str:
    """The same as a sentence for the user, with what to do."""
    if _kernel() is None:
        return "No notebook kernel runs here: frames are drawn, but no page shows them."
    if answers_while_busy():
        return "Buttons and sliders work while a cell runs."
    return (
        "While a cell runs, the picture is updated, but buttons and sliders wait until the cell ends: this kernel has "
        "no subshells. Start the workload with run(work), which keeps the kernel free, or install ipykernel 7."
    )


def route(parts: Iterable[widgets.Widget]) -> None:
    """Handle clicks on these widgets, and on all inside them, on the subshell that the page chose.

    ipykernel 7.4 uses the shell that last wrote to the widget instead, which is the busy one. It has no public way to
    change that. Other versions are not changed.
    """
    for part in parts:
        comm = getattr(part, "comm", None)
        if comm is not None and hasattr(comm, "_reply_subshell_for"):
            comm._reply_subshell_for = _requested_subshell  # noqa: SLF001
        route(getattr(part, "children", ()))


def _requested_subshell(_: Any, default: Any) -> Any:
    return default


def _kernel() -> Any:
    """This process's kernel, None if it is not a kernel; does not import ipykernel."""
    module = sys.modules.get("ipykernel.kernelbase")
    if module is None or not module.Kernel.initialized():
        return None
    return module.Kernel.instance()


def shell() -> Any:
    """IPython's shell; None where there is none. Does not import IPython."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def has_kernel() -> bool:
    """Whether a display goes to a page, not to a terminal."""
    return getattr(shell(), "kernel", None) is not None


def show(*things: Any) -> None:
    """Display things under the cell that runs."""
    from IPython.display import display  # noqa: PLC0415  slow to import; a kernel has loaded it

    display(*things)

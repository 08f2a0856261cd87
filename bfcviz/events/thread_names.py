"""The names of this process's threads, by the numbers that events carry.

Events cannot hold a name, and most of them are written without the GIL. So the thread that begins to watch a framework
is named here, and each thread that `threading` starts while one is watched, before its own code runs. The numbers are
those of all logs of the process.
"""

import threading
from functools import cache

from bfcviz.events.log import EventLog

_names: dict[str, str] = {}


@cache
def _numbers() -> EventLog:
    """A log without events: only a log knows the number that the events of a thread have."""
    return EventLog(64)


def number_of_thread() -> int:
    """The number that the events of this thread have."""
    return _numbers().begin_operation(-1)


def name_thread() -> tuple[str, str] | None:
    """Keep the name of this thread; returns its number and name, None where the number has a name."""
    number, name = str(number_of_thread()), threading.current_thread().name
    if number in _names:
        return None
    _names[number] = name
    return number, name


def names_of_threads() -> dict[str, str]:
    """The names so far, by number: a copy."""
    return dict(_names)

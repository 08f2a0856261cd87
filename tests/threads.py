"""Threads for tests."""

import threading
import time

from bfcviz.errors import BfcvizError

PATIENCE_S = 60


def in_thread(function, *arguments):
    """Start a thread; returns it and the list that receives its result, or its error of bfcviz."""
    result = []

    def run():
        try:
            result.append(function(*arguments))
        except BfcvizError as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, result


def wait_until(condition):
    """Ask again and again, until it holds."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def in_threads(work, count):
    """Run work(0), work(1), ... at once, each in a thread of its own, and wait for all."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait_for_end(name):
    """Wait until no thread of this name runs."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

"""Threads for tests."""

import threading

PATIENCE_S = 60


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

"""Threads for tests."""

import threading


def in_threads(work, count):
    """Run work(0), work(1), ... at once, each in a thread of its own, and wait for all."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

"""Threads that allocate and free, and check what is theirs."""

import ctypes
import random
import threading

from processes import sized

THREADS = 4


ROUNDS = sized(4000, 1000)


SIZES = (1, 300, 5000, 70_000)


def run_in_threads(work):
    """Run work(number) in THREADS threads at once; raises what any of them raised."""
    errors, start = [], threading.Barrier(THREADS)

    def guarded(number):
        try:
            start.wait(10)
            work(number)
        except BaseException as error:  # noqa: BLE001  raised again by who waits
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    if errors:
        raise errors[0]


def hammer(allocate, free, fill=None):
    """Work for a thread: allocate and free at random; with `fill`, own bytes must stay as they were written."""

    def work(number):
        chance, live = random.Random(number), []
        for turn in range(ROUNDS):
            if live and (len(live) > 20 or chance.random() < 0.45):
                address, size, value = live.pop(chance.randrange(len(live)))
                if fill:
                    assert ctypes.string_at(address, size) == bytes([value]) * size
                free(address)
            else:
                size, value = chance.choice(SIZES), (number * 50 + turn) % 256
                address = allocate(size)
                if not address:
                    continue
                if fill:
                    fill(address, value, size)
                live.append((address, size, value))
        for address, _, _ in live:
            free(address)

    return work

"""What is asked again and again: the thread ends before Python does."""

from processes import run_code


def test_python_ends_after_the_thread():
    code = """
import atexit, threading
from bfcviz.live.observed_heap import Polling

atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))
asked = threading.Event()
polling = Polling(asked.set, 0.001, "polling")
polling.start()
assert asked.wait(60)
"""
    assert run_code(code) == "['MainThread']\n"


def test_stopped_it_can_start_again():
    code = """
import threading
from bfcviz.live.observed_heap import Polling

asked = threading.Semaphore(0)
polling = Polling(asked.release, 0.001, "polling")
for _ in range(2):
    polling.start()
    assert asked.acquire(timeout=150)
    polling.stop()
print(threading.active_count())
"""
    assert run_code(code) == "1\n"

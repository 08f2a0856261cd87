"""Threads that use NumPy at once: which are served, that none waits forever, and that the totals are right."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy._core.multiarray import get_handler_name
from processes import needs_compiled

from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.numpy import serve_numpy, unserved

pytestmark = needs_compiled

THREADS = 4


def in_threads(work, threads=THREADS):
    """Call work(number) in threads at once; what they return, or the error one raised."""
    start = threading.Barrier(threads)

    def together(number):
        start.wait(10)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(together, range(threads), timeout=120))


def churn(number):
    """Sums of arrays made in turn, some of them kept."""
    held, total = [], 0
    for i in range(3000):
        array = np.full(1 + (i * 7919 + number) % 3000, number, np.int64)
        array.resize(array.size + i % 100, refcheck=False)
        total += int(array.sum())
        if i % 3 == 0:
            held.append(array * 2)
        if len(held) > 50:
            held.pop(i % 50)
    return total + sum(int(array.sum()) for array in held)


def test_threads_get_what_plain_numpy_gives_them():
    plain = in_threads(churn)
    with serve_numpy("256MiB") as service:
        assert in_threads(churn) == plain
    service.settle()
    assert service.allocator.stats().chunks_in_use == 0
    assert service.allocator.rejected_frees == 0
    service.allocator.check_invariants()


def test_threads_run_out_of_memory_each_for_itself():
    def work(_):
        try:
            return [np.zeros(300_000, np.uint8) for _ in range(4)] and "served"
        except MemoryError:
            return "full"

    with serve_numpy("1MiB") as service:
        for _ in range(20):
            assert "full" in in_threads(work)
        assert service.out_of_memory is not None
    service.allocator.check_invariants()


def test_threads_are_served_when_their_starter_is():
    names = {}
    go_on = threading.Event()

    def note(name):
        go_on.wait(10)
        names[name] = get_handler_name(np.ones(3))

    class Own(threading.Thread):
        def run(self):
            note("own class")

    threads = [threading.Thread(target=note, args=("before",))]
    threads[0].start()
    with serve_numpy("1MiB"):
        threads += [threading.Thread(target=note, args=("inside",)), Own()]
        for thread in threads[1:]:
            thread.start()
        with unserved():
            threads.append(threading.Thread(target=note, args=("unserved",)))
            threads[-1].start()
        go_on.set()
        for thread in threads:
            thread.join()
    threads.append(threading.Thread(target=note, args=("after",)))
    threads[-1].start()
    threads[-1].join()
    served = {name for name, handler in names.items() if handler == "bfcviz"}
    assert served == {"inside", "own class"}
    assert len(names) == 5


def test_starting_threads_is_as_it_was():
    before = threading.Thread.start
    with serve_numpy("1MiB"):
        thread = threading.Thread(target=int)
        thread.start()
        with pytest.raises(RuntimeError, match="once"):
            thread.start()
        thread.join()
        assert "run" not in vars(thread)
        foreign = lambda thread, under=threading.Thread.start: under(thread)  # noqa: E731
        threading.Thread.start = foreign
    try:
        assert threading.Thread.start is foreign
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
    finally:
        threading.Thread.start = before


def test_a_thread_that_goes_on_afterwards_falls_back_to_numpy():
    go_on, arrays = threading.Event(), []

    def work():
        arrays.append(np.empty(10))
        go_on.wait(10)
        arrays.append(np.empty(10))

    with serve_numpy("1MiB") as service:
        thread = threading.Thread(target=work)
        thread.start()
        while not arrays:
            pass
    go_on.set()
    thread.join()
    assert service.allocator.stats().num_allocs == 1
    arrays.clear()
    service.settle()
    assert service.allocator.stats().chunks_in_use == 0


def test_a_recording_can_end_while_threads_go_on(tmp_path):
    def work(ended):
        while not ended.is_set():
            for size in (1, 1000, 30_000):
                np.empty(size)

    for number in range(10):
        ended = threading.Event()
        with Recording(tmp_path / str(number)) as recording:
            service = serve_numpy("16MiB", log=recording)
            with service, ThreadPoolExecutor(2) as pool:
                done = [pool.submit(work, ended) for _ in range(2)]
                while service.allocator.log.head < 2000 * (1 + number % 3):
                    pass
                recording.close()
                ended.set()
                for one in done:
                    one.result(60)
        service.allocator.check_invariants()
        log, trace = service.allocator.log, recording.trace()
        assert len(trace) == log.on_disk <= log.head
        assert log.copy(0, len(trace)).tobytes() == trace.read(0, len(trace)).tobytes()


def test_a_full_disk_in_the_midst_goes_on_in_memory(tmp_path):
    log = EventLog(64, folder=tmp_path)
    with serve_numpy("16MiB", log=log) as service:
        churn(1)
        log.leave_to_parent()  # as on a full disk: no more records to the file
        churn(2)
    assert log.head > log.on_disk
    service.allocator.check_invariants()

"""A heap that is closed, or whose process ends, while threads wait for memory and objects hold it."""

from processes import run_code


def test_close_ends_the_wait_of_a_thread():
    code = """
import threading, time
from heaps import new_heap
from bfcviz.errors import AllocatorError
heap = new_heap(1024, retry_s=60)
heap.allocate(1024)
def wait():
    try:
        heap.allocate(1024)
    except AllocatorError as error:
        print(error)
thread = threading.Thread(target=wait)
thread.start()
while heap.log.head < 4:
    time.sleep(0.01)
heap.close()
thread.join(10)
print(thread.is_alive())
"""
    message, is_alive = run_code(code).splitlines()
    assert "1024 bytes" in message
    assert "closed" in message
    assert is_alive == "False"


def test_a_process_may_end_with_heaps_open(tmp_path):
    code = f"""
from heaps import MIB, Scripted, new_heap
from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.events.log import EventLog
class Owner:
    def __init__(self, heap):
        self.heap, self.address = heap, heap.allocate(1000)
    def __del__(self):
        self.heap.free(self.address)
recorded = new_heap(MIB, HostSubAllocator(), log=EventLog(64, {str(tmp_path)!r}))
scripted = new_heap(MIB, Scripted(lambda alignment, num_bytes: (MIB, num_bytes)))
owners = [Owner(heap) for heap in (recorded, scripted, recorded)]
cycle = [owners[0]]
cycle.append(cycle)
functions = recorded.c_functions()
print(recorded.log.head)
"""
    assert run_code(code) == "5\n"
    assert (tmp_path / "events.bin").stat().st_size % 64 == 0

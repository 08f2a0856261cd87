"""Stacks: each allocation carries who asked for it, told once, and nothing of it can disturb the program."""

import ctypes
import gc
import signal
import sys
import threading
import weakref
from functools import partial
from io import FileIO

import numpy as np
import pytest
from processes import needs_compiled

import bfcviz
from bfcviz.errors import LiveError
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live import stack_capture
from bfcviz.live.c_callbacks import DEEPEST, WALK_ON, Walker
from bfcviz.live.labels_and_marks import label
from bfcviz.live.numpy import serve_numpy, unserved
from bfcviz.live.stack_capture import Capture, Stacks

pytestmark = needs_compiled


def labels_of(service):
    """The label of each allocation, in order."""
    with unserved():
        events = service.allocator.log.copy(0, service.allocator.log.head)
        numbers = events["label"][events["kind"] == Kind.ALLOCATE].tolist()
    return [service.allocator.labels[number] for number in numbers]


def functions(told):
    """The functions of a stack, innermost first."""
    return [line.partition(" (")[0].rpartition(".")[2] for line in told.details["stack"].split("\n")]


def layer(size=10):
    return np.empty(size, np.uint8)


def network(depth=0):
    return network(depth - 1) if depth else layer()


def in_thread(work, *arguments):
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    thread.join()


def library(package="library"):
    """A function of an installed package: it calls itself so many times, then what it is given."""
    code = "def call(depth, function):\n    return call(depth - 1, function) if depth else function()"
    names = {"__name__": f"{package}.inner"}
    exec(compile(code, f"/venv/lib/python3.12/site-packages/{package}/inner.py", "exec"), names)  # noqa: S102
    return names["call"]


def test_an_allocation_tells_who_asked_for_it():
    with serve_numpy("1MiB", capture="stack") as service:
        network()
    (told,) = labels_of(service)
    assert functions(told)[:3] == ["layer", "network", "test_an_allocation_tells_who_asked_for_it"]
    line = layer.__code__.co_firstlineno + 1
    assert told.name == f"test_stack_capture.py:{line} layer"
    assert told.details["stack"].split("\n")[0] == f"layer ({__file__}:{line})"


def test_a_stack_is_told_once():
    with serve_numpy("16MiB", capture="stack") as service:
        for _ in range(1000):
            layer()
        layer()
    assert len(service.allocator.labels) == 1 + 2
    assert (
        service.capture.walker.stacks < 10
    )  # the same call is at one place when it is new, at another when adapted
    assert service.capture.walker.missed == 0


def test_a_label_in_force_names_it():
    with serve_numpy("1MiB", capture="stack") as service:
        for name in ("forward", "backward", "forward"):
            with label(name):
                layer()
    told = labels_of(service)
    assert [each.name for each in told] == ["forward", "backward", "forward"]
    assert told[0] == told[2]
    assert functions(told[0])[0] == "layer"


@pytest.mark.parametrize(("what", "names"), [("nothing", ["", ""]), ("label", ["", "forward"])])
def test_less_is_recorded_where_less_is_wanted(what, names):
    with serve_numpy("1MiB", capture=what) as service:
        layer()
        with label("forward"):
            layer()
    assert [each.name for each in labels_of(service)] == names
    assert not any(each.details for each in labels_of(service))


def test_modules_are_hidden_with_what_is_inside_them():
    hide = ("numpy", "other")
    code = "def helper(layer): return layer()"
    helpers = {}
    for module in ("other", "other.inner", "others"):
        names = {"__name__": module}
        exec(code, names)  # noqa: S102
        helpers[module] = names["helper"]
    with serve_numpy("1MiB", capture=Stacks(hide=hide)) as service:
        for helper in helpers.values():
            helper(layer)
        np.pad(np.empty(3), 2)
    plain, inner, others, *padding = map(functions, labels_of(service))
    assert plain[:2] == inner[:2] == ["layer", "test_modules_are_hidden_with_what_is_inside_them"]
    assert others[:2] == ["layer", "helper"]
    assert all(stack[0] == "test_modules_are_hidden_with_what_is_inside_them" for stack in padding)


def test_a_recording_by_default_names_its_holders(tmp_path):
    """Without a label the innermost own frame is the name, also where a library allocates."""
    with bfcviz.watch(numpy=True, path=tmp_path / "run", dashboard=False):
        first, second = layer(1000), np.pad(np.empty(3000), 2)
        held = [network(depth) for depth in range(20)]
    assert len(held) == 20
    found = bfcviz.holders(tmp_path / "run", "last")
    named = {name for name in found.names if name.startswith("test_stack_capture.py:")}
    unnamed = sum(
        int(row["bytes"]) for row, name in zip(found.rows, found.names, strict=True) if name == "no label"
    )
    assert (len(named), unnamed) == (2, 0)
    assert "<module>" not in " ".join(found.names)
    assert first.nbytes + second.nbytes < found.bytes_in_use


def test_uncompiled_labels_alone_are_recorded_and_the_reason_is_said(monkeypatch):
    monkeypatch.setattr(stack_capture, "IS_COMPILED", False)
    capture = Capture(Labels())
    assert capture.walker is None
    assert "compiled" in capture.note
    with label("forward"):
        assert capture.labels.name(capture.number()) == "forward"
    assert Capture(Labels(), "label").note == ""


def test_where_all_is_hidden_there_is_no_stack():
    def work():
        with label("forward"):
            network()

    with serve_numpy("1MiB", capture=Stacks(hide=(__name__, "threading"), depth=2)) as service:
        in_thread(work)
    assert [(each.name, dict(each.details)) for each in labels_of(service)] == [("forward", {})]


def test_a_stack_is_as_deep_as_wanted():
    with serve_numpy("1MiB", capture=Stacks(depth=5)) as service:
        network(depth=2)
        network(depth=20)
        network(depth=21)
    shallow, deep, deeper = labels_of(service)
    assert functions(shallow)[4] == "test_a_stack_is_as_deep_as_wanted"
    assert functions(deep) == ["layer", *["network"] * 4]
    assert deep == deeper


@pytest.mark.parametrize("deep", [1, 11, 12, 13, 30, 100, 400])
def test_below_a_library_the_name_is_the_programs_own_line(deep):
    """As deep as the library calls itself: pandas allocates 30 frames deep, and dask deeper."""
    call, numbers = library(), partial(np.empty, 10)

    def own():
        return call(deep, numbers)

    with serve_numpy("1MiB", capture="stack") as service:
        for _ in range(2):
            own()
    told, again = labels_of(service)
    assert told == again
    assert told.name == f"test_stack_capture.py:{own.__code__.co_firstlineno + 1} own"
    lines = functions(told)
    assert len(lines) <= 129
    assert (lines[0], "own" in lines) == ("call", True)
    if len(lines) == 129:
        assert int(told.details["stack"].split("\n")[64].split()[1]) > 300 - 129  # "... 303 more frames"
    assert service.capture.walker.missed == 0


def test_where_no_line_is_the_programs_own_the_name_has_the_package():
    with serve_numpy("1MiB", capture="stack") as service:
        for package in ("pandas", "dask"):
            for deep in (0, 40):
                in_thread(library(package), deep, partial(np.empty, 10))
    names = {told.name for told in labels_of(service)}
    assert names == {"pandas: inner.py:2 call", "dask: inner.py:2 call"}


def test_one_place_may_be_the_end_of_a_stack_or_not():
    """The same innermost frames end here in one thread, and have a caller of the program's own in another."""
    call = library()
    hide = ("numpy", "threading", "library.outer")
    with serve_numpy("1MiB", capture=Stacks(hide, depth=1)) as service:
        in_thread(call, 0, partial(np.empty, 10))
        call(0, partial(np.empty, 10))
        in_thread(call, 0, partial(np.empty, 10))
    ends, own, again = (told.name for told in labels_of(service))
    assert ends == again == "library: inner.py:2 call"
    assert own.startswith("test_stack_capture.py:")


@pytest.mark.parametrize("what", ["everything", 3, Stacks(depth=0), Stacks(depth=1000)])
def test_what_cannot_be_captured_is_said(what):
    with pytest.raises(LiveError, match=r"choose nothing, label, stack|give a depth from 1 to 128"):
        serve_numpy("1MiB", capture=what)


def test_stacks_of_code_that_is_gone_are_not_mixed_up():
    with serve_numpy("16MiB", capture="stack") as service:
        for number in range(200):
            names = {"np": np}
            exec(f"def made{number}(): return np.empty(1)\nmade{number}()", names)  # noqa: S102
            del names
    assert [functions(told)[0] for told in labels_of(service)] == [f"made{number}" for number in range(200)]


def test_many_stacks_keep_apart():
    """More than the table begins with."""
    many = 3000
    code = compile("layer()\n" * many, "many.py", "exec")
    with serve_numpy("16MiB", log=EventLog(1 << 16), capture="stack") as service:
        for _ in range(2):
            exec(code, {"layer": layer})  # noqa: S102
    lines = [told.details["stack"].split("\n")[1] for told in labels_of(service)]
    assert lines == [f"<module> (many.py:{n + 1})" for n in range(many)] * 2
    assert service.capture.walker.stacks >= many


def test_the_table_goes_with_the_heap():
    names = {"np": np}
    exec("def made(): return np.empty(1)", names)  # noqa: S102
    gone = weakref.ref(names["made"].__code__)
    service = serve_numpy("1MiB", capture="stack")
    with service:
        names["made"]()
    del names
    gc.collect()
    assert gone() is not None
    del service
    gc.collect()
    assert gone() is None


def test_each_thread_has_its_own_stack():
    def work(depth):
        for _ in range(500):
            network(depth)

    with serve_numpy("16MiB", capture="stack") as service:
        threads = [threading.Thread(target=work, args=(depth,)) for depth in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    counts = [functions(told).count("network") for told in labels_of(service)]
    assert sorted(counts) == sorted([1, 2, 3, 4] * 500)


def test_a_finalizer_that_runs_while_a_label_is_interned_goes_without(tmp_path):
    """Interning makes objects, so garbage is collected there, whose finalizers may want memory."""
    labels = Labels()
    numbers = []

    class File(FileIO):
        def fileno(self):
            numbers.append(labels.intern("inside"))
            return super().fileno()

    with File(tmp_path / "labels.jsonl", "wb") as file:
        labels.append_to(file)
        numbers.clear()
        assert labels.intern("outside") == 1
        labels.append_to(None)
    assert set(numbers) == {0}
    assert labels.intern("inside") == 2


def test_ctrl_c_while_a_stack_is_named_reaches_the_program():
    interrupted = []

    class Interrupted(Labels):
        def intern(self, name, /, **details):
            if "stack" in details:
                signal.raise_signal(signal.SIGINT)
            return super().intern(name, **details)

    with serve_numpy("1MiB", labels=Interrupted(), capture="stack") as service:
        try:
            layer()
            for _ in range(1000):
                pass
        except KeyboardInterrupt:
            interrupted.append(1)
    assert interrupted == [1]
    assert service.allocator.stats().num_allocs == 1


def test_heaps_in_python_ask_for_the_number():
    labels = Labels()
    assert Capture(labels, "nothing").number() == 0
    capture = Capture(labels, "stack")

    def allocate():
        return capture.number()

    with label("copy"):
        told = labels[allocate()]
        assert labels[Capture(labels, "label").number()] == ("copy", {})
    assert told.name == "copy"
    assert functions(told)[:2] == ["allocate", "test_heaps_in_python_ask_for_the_number"]


def test_stacks_are_in_the_recording_before_what_names_them(tmp_path):
    with Recording(tmp_path / "run") as recording:
        with serve_numpy("1MiB", log=recording, capture="stack"):
            network()
            seen = recording.trace()
        events = seen.read(0, len(seen))
    number = int(events["label"][events["kind"] == Kind.ALLOCATE][0])
    assert functions(seen.labels[number])[:2] == ["layer", "network"]


def test_what_a_frame_costs_is_given_back():
    """No frame and no code object is kept by an allocation."""
    with serve_numpy("1MiB", capture="stack"):
        layer()
        before = sys.getrefcount(layer.__code__)
        for _ in range(100):
            layer()
        assert sys.getrefcount(layer.__code__) <= before + 2


# ------------------------------------------------------------------------------
# Walker: when it asks for a stack's name, and when it gives the label alone.


def test_beyond_so_many_stacks_there_are_labels():
    walker = Walker(lambda _frame, number, _depth: number + 100, 8, 2)
    numbers = [walker.number(label) for label in (7, 8, 9, 10)]
    assert numbers == [107, 108, 9, 10]
    assert (walker.stacks, walker.missed) == (2, 2)


def test_it_asks_again_with_more_frames_until_there_is_a_name():
    asked = []

    def tell(_frame, label, depth):
        asked.append(depth)
        return label + 100 if depth > 40 else WALK_ON

    walker = Walker(tell, 8, 1000)

    def dive(n):
        return dive(n - 1) if n else walker.number(7)

    assert dive(60) == dive(60) == 107
    assert asked == [8, 24, 40, 56]  # of the second call every answer is known
    assert walker.missed == 0


def test_a_stack_that_never_gets_a_name_has_the_label():
    """`name_stack` should not ask for more at the end of a stack; it must not hang the program."""
    walker = Walker(lambda *_: WALK_ON, 8, 1000)
    assert walker.number(7) == 7
    assert walker.missed == 1

    def dive(n):
        return dive(n - 1) if n else walker.number(7)

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * DEEPEST)
    try:
        assert dive(2 * DEEPEST) == 7
    finally:
        sys.setrecursionlimit(before)


def test_an_exception_raised_meanwhile_is_not_lost():
    class Tired(Exception):
        pass

    def raise_it(*_):
        raise Tired

    asked = []

    def tell(*_):
        asked.append(1)
        raise_it()

    walker = Walker(tell, 8, 10)
    numbers = []

    def allocate():
        numbers.append(walker.number(3))
        for _ in range(1000):
            pass

    with pytest.raises(Tired):
        allocate()
    assert numbers in ([], [3])
    assert (asked, walker.missed) == ([1], 1)


def test_without_the_interpreters_lock_there_is_the_label():
    walker = Walker(lambda _frame, number, _depth: number + 1, 8, 10)
    context, address = walker.hook()
    arguments = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
    without = ctypes.CFUNCTYPE(*arguments)(address)
    with_lock = ctypes.PYFUNCTYPE(*arguments)(address)
    assert (with_lock(context, 5), walker.missed) == (6, 0)
    assert (without(context, 5), walker.missed) == (5, 1)


def test_near_the_end_of_recursion_there_is_the_label():
    def dive(n):
        np.empty(1)
        dive(n + 1)

    with serve_numpy("64MiB", capture="stack") as service, pytest.raises(RecursionError):
        dive(0)
    service.allocator.check_invariants()
    assert service.allocator.stats().num_allocs > 100

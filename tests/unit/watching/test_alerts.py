"""What an Alert refuses."""

import threading

import numpy as np
import pytest
from heaps import KIB, MIB, new_heap
from processes import needs_compiled

import bfcviz
from bfcviz.errors import LiveError
from bfcviz.events.schema import Kind
from bfcviz.model.find_steps import events_of
from bfcviz.model.trace_from_source import trace_of
from bfcviz.watching.alerts import GOOD_CHECKS, GOOD_MARKS, Alert, AlertMonitor


@pytest.mark.parametrize(
    ("wrong", "facts"),
    [
        (lambda: Alert("size", above=1), "'size'.*bytes_in_use"),
        (lambda: Alert("bytes_in_use"), "above or below"),
        (lambda: Alert("bytes_in_use", 1, 2), "above or below"),
        (lambda: Alert("growth_per_step", below=1), "growth_per_step.*above"),
        (lambda: Alert("external_fragmentation", above=30), "30.*0 to 1"),
        (lambda: Alert("bytes_in_use", above=float("nan")), "nan.*bytes_in_use"),
        (lambda: bfcviz.watch(numpy=True, alerts=["400MiB"]), "'400MiB'.*Alert"),
    ],
)
def test_wrong_arguments_are_refused(wrong, facts):
    with pytest.raises(LiveError, match=facts):
        wrong()


def test_a_text_that_is_not_a_size_is_refused():
    with pytest.raises(ValueError, match=r"much.*size"):
        Alert("bytes_in_use", above="much")


# ------------------------------------------------------------------------------
# When alerts go off, what they call, and that their errors do not reach the workload.


PATIENCE_S = 60


def monitor_of(*alerts, heap=None, **options):
    heap = new_heap(**options) if heap is None else heap
    return heap, AlertMonitor(trace_of(heap), alerts)


def texts(alarms):
    return [alarm.text for alarm in alarms]


def expect_no_alarms(monitor):
    """Check as often as an alert needs before it may go off again."""
    for _ in range(GOOD_CHECKS):
        assert monitor.check() == []


def test_it_goes_off_again_only_after_the_number_stayed_on_the_good_side():
    heap, monitor = monitor_of(Alert("bytes_in_use", above=10 * KIB))
    heap.allocate(8 * KIB)
    assert monitor.check() == []
    second = heap.allocate(4 * KIB)
    (alarm,) = monitor.check()
    assert (alarm.heap, alarm.step, alarm.value) == ("bfc", heap.log.head, 12 * KIB)
    for fact in ("bytes in use", "12.0 KiB", f"step {heap.log.head}", "above 10.0 KiB"):
        assert fact in alarm.text
    expect_no_alarms(monitor)  # the heap stays past the threshold
    heap.free(second)
    assert monitor.check() == []
    second = heap.allocate(20 * KIB)
    assert monitor.check() == []  # too soon
    heap.free(second)
    monitor.check()
    expect_no_alarms(monitor)
    heap.allocate(20 * KIB)
    (alarm,) = monitor.check()
    assert alarm.value == 28 * KIB


def test_a_number_that_rises_and_falls_each_step_sets_it_off_once():
    heap, monitor = monitor_of(Alert("bytes_in_use", above=10 * KIB))
    alarms = []
    for _ in range(30):
        heap.free(heap.allocate(20 * KIB))
        alarms += monitor.check()
    assert len(alarms) == 1


def test_a_single_event_past_the_threshold_is_found():
    heap, monitor = monitor_of(Alert("bytes_in_use", above=100 * KIB))
    for number in range(500):
        heap.free(heap.allocate(200 * KIB if number == 123 else 300))
    (alarm,) = monitor.check()
    assert alarm.value == 200 * KIB
    assert monitor.check() == []


def test_each_measure_has_its_own_unit():
    heap, monitor = monitor_of(
        Alert("external_fragmentation", above=0.3),
        Alert("largest_free_chunk", below="900KiB"),
        Alert("pool_bytes", above="512KiB"),
        Alert("reserved_not_in_use", above=0.5),
    )
    held = [heap.allocate(10 * KIB) for _ in range(50)]
    for address in held[::2]:
        heap.free(address)
    found = {alarm.alert.measure: alarm for alarm in monitor.check()}
    assert {*found} == {"external_fragmentation", "largest_free_chunk", "pool_bytes", "reserved_not_in_use"}
    assert found["external_fragmentation"].text.endswith("above 30%")
    assert found["largest_free_chunk"].text.endswith("below 900.0 KiB")
    label, value = found["external_fragmentation"].mark
    assert label == "alert: external fragmentation above 30%"
    assert value == round(100 * found["external_fragmentation"].value)


def test_a_heap_that_can_grow_is_short_of_nothing():
    alerts = (Alert("largest_free_chunk", below=4 * MIB), Alert("free_bytes", below=4 * MIB))
    heap, monitor = monitor_of(*alerts, limit=64 * MIB, allow_growth=True)
    heap.allocate(MIB)
    heap.allocate(16 * MIB)
    assert monitor.check() == []
    held = [heap.allocate(3 * MIB) for _ in range(15)]
    assert [alarm.alert.measure for alarm in monitor.check()] == ["largest_free_chunk", "free_bytes"]
    for address in held:
        heap.free(address)
    monitor.check()
    expect_no_alarms(monitor)
    held = [heap.allocate(3 * MIB) for _ in range(15)]
    assert [alarm.alert.measure for alarm in monitor.check()] == ["largest_free_chunk", "free_bytes"]


def test_a_number_that_starts_past_the_threshold_must_reach_the_good_side_first():
    heap, monitor = monitor_of(Alert("bytes_in_use", below=KIB))
    assert monitor.check() == []
    held = heap.allocate(10 * KIB)
    monitor.check()
    expect_no_alarms(monitor)
    heap.free(held)
    assert [alarm.value for alarm in monitor.check()] == [0]


def test_growth_is_from_one_mark_to_the_next_of_its_kind():
    heap, monitor = monitor_of(Alert("growth_per_step", above=5 * KIB))
    heap.mark("epoch 0")
    for number, size in enumerate((4, 4, 8, 1)):
        heap.allocate(size * KIB)
        heap.mark(f"step {number}")
        heap.mark("epoch 1" if number == 3 else "alert: not a step")
    (text,) = texts(monitor.check())
    for fact in ("17.0 KiB", "'epoch 0' to 'epoch 1'", "above 5.0 KiB"):
        assert fact in text
    heap.allocate(6 * KIB)
    heap.mark("step 4")
    (text,) = texts(monitor.check())
    assert "6.0 KiB from 'step 3' to 'step 4'" in text


def test_a_leak_in_every_step_sets_growth_off_once_for_each_kind_of_marks():
    heap, monitor = monitor_of(
        Alert("growth_per_step", above=5 * KIB), Alert("bytes_in_use", above=100 * KIB)
    )
    found = []
    for number in range(40):
        heap.mark("train begins")
        heap.allocate(6 * KIB)
        heap.mark(f"step {number}")
        found += monitor.check()
    measures = [alarm.alert.measure for alarm in found]
    assert (measures.count("growth_per_step"), measures.count("bytes_in_use")) == (2, 1)
    for number in range(GOOD_MARKS):
        heap.mark(f"step {40 + number}")
    assert monitor.check() == []
    heap.allocate(6 * KIB)
    heap.mark("step 50")
    (text,) = texts(monitor.check())
    assert "'step 49' to 'step 50'" in text


@pytest.mark.parametrize("at_once", [1, 5, GOOD_MARKS + 3])
def test_growth_goes_off_as_often_where_a_check_has_many_marks(at_once):
    heap, monitor = monitor_of(Alert("growth_per_step", above=5 * KIB))
    found = []
    for number in range(65):
        heap.mark(f"step {number}")
        if number % (GOOD_MARKS + 3) == 0:
            heap.allocate(6 * KIB)
        if number % at_once == at_once - 1:
            found += monitor.check()
    assert len(found) == 5


def test_it_continues_after_the_log_lost_events():
    heap = new_heap(log=bfcviz.EventLog(64))
    heap, monitor = monitor_of(Alert("bytes_in_use", above=50 * KIB), heap=heap)
    for _ in range(300):
        heap.allocate(300)
    assert len(monitor.check()) == 1


@needs_compiled
def test_the_call_runs_while_the_workload_does_and_the_trace_has_a_mark():
    went_off, threads = threading.Event(), []

    def call(alarm):
        threads.append(threading.current_thread().name)
        went_off.set()

    alert = Alert("bytes_in_use", above="4MiB", call=call)
    with bfcviz.watch(numpy=True, limit="64MiB", alerts=[alert]) as w:
        dashboard = w.dashboard
        held = np.empty(MIB)
        assert went_off.wait(PATIENCE_S)
    assert threads == ["bfcviz-monitor"]
    (alarm,) = w.alarms
    assert alarm.alert is alert
    assert dashboard.notices == [f"numpy: {alarm.text}"]
    (mark,) = events_of(w.trace, [Kind.MARK])
    assert w.trace.labels.name(int(mark["label"])) == "alert: bytes in use above 4.0 MiB"
    assert int(mark["size"]) == held.nbytes
    dashboard.close()


@needs_compiled
def test_an_alarm_just_before_the_end_is_found_at_the_end(tmp_path):
    alert = Alert("bytes_in_use", above="4MiB")
    with bfcviz.watch(numpy=True, limit="64MiB", alerts=[alert], path=tmp_path / "run") as w:
        np.empty(MIB)
    assert [alarm.value for alarm in w.alarms] == [8 * MIB]
    assert len(events_of(bfcviz.open(tmp_path / "run"), [Kind.MARK])) == 1


@needs_compiled
def test_a_failing_call_does_not_reach_the_workload_or_stop_other_alerts():
    def fail(alarm):
        raise ValueError("no mail today")

    alerts = [Alert("bytes_in_use", above="4MiB", call=fail), Alert("bytes_in_use", above="3MiB")]
    with bfcviz.watch(numpy=True, limit="64MiB", alerts=alerts) as w:
        dashboard = w.dashboard
        held = np.empty(MIB)
    assert len(w.alarms) == 2
    assert [str(error) for error in w.errors] == ["no mail today"]
    assert [notice for notice in dashboard.notices if "ValueError: no mail today" in notice]
    assert held.nbytes == 8 * MIB
    dashboard.close()

"""Alerts: what sets them off, once; whom they tell; and that nothing of it reaches the workload."""

import threading

import numpy as np
import pytest
from heaps import KIB, MIB, new_heap

import bfcviz
from bfcviz.dashboard.sources import trace_of
from bfcviz.errors import LiveError
from bfcviz.events.schema import Kind
from bfcviz.model.browse.navigation import events_of
from bfcviz.watching.alert_monitor import CALM, Guard
from bfcviz.watching.alerts import Alert

PATIENCE_S = 60


def guard(*alerts, heap=None, **options):
    heap = new_heap(**options) if heap is None else heap
    return heap, Guard(trace_of(heap), alerts)


def told(alarms):
    return [alarm.text for alarm in alarms]


def calm(looks):
    """As many looks as an alert has to be silent for."""
    for _ in range(CALM):
        assert looks.look() == []


def test_it_goes_off_once_and_again_only_after_it_was_good_for_a_while():
    heap, looks = guard(Alert("bytes_in_use", above=10 * KIB))
    heap.allocate(8 * KIB)
    assert looks.look() == []
    second = heap.allocate(4 * KIB)
    (alarm,) = looks.look()
    assert (alarm.heap, alarm.step, alarm.value) == ("bfc", heap.log.head, 12 * KIB)
    assert alarm.text == f"bytes in use was 12.0 KiB at step {heap.log.head}, above 10.0 KiB"
    calm(looks)  # it is past it all the time
    heap.free(second)
    assert looks.look() == []
    second = heap.allocate(20 * KIB)
    assert looks.look() == []  # too soon
    heap.free(second)
    looks.look()
    calm(looks)
    heap.allocate(20 * KIB)
    (alarm,) = looks.look()
    assert alarm.value == 28 * KIB


def test_what_goes_up_and_down_with_each_step_is_told_once():
    heap, looks = guard(Alert("bytes_in_use", above=10 * KIB))
    alarms = []
    for _ in range(30):
        heap.free(heap.allocate(20 * KIB))
        alarms += looks.look()
    assert len(alarms) == 1


def test_what_was_past_it_for_one_event_only_is_found():
    heap, looks = guard(Alert("bytes_in_use", above=100 * KIB))
    for number in range(500):
        heap.free(heap.allocate(200 * KIB if number == 123 else 300))
    (alarm,) = looks.look()
    assert alarm.value == 200 * KIB
    assert looks.look() == []


def test_each_measure_has_its_own_unit():
    heap, looks = guard(
        Alert("external_fragmentation", above=0.3),
        Alert("largest_free_chunk", below="900KiB"),
        Alert("pool_bytes", above="512KiB"),
        Alert("reserved_not_in_use", above=0.5),
    )
    held = [heap.allocate(10 * KIB) for _ in range(50)]
    for address in held[::2]:
        heap.free(address)
    found = {alarm.alert.measure: alarm for alarm in looks.look()}
    assert {*found} == {"external_fragmentation", "largest_free_chunk", "pool_bytes", "reserved_not_in_use"}
    assert found["external_fragmentation"].text.endswith(", above 30%")
    assert found["largest_free_chunk"].text.endswith(", below 900.0 KiB")
    label, value = found["external_fragmentation"].mark
    assert label == "alert: external fragmentation above 30%"
    assert value == round(100 * found["external_fragmentation"].value)


def test_a_heap_that_can_grow_is_short_of_nothing():
    alerts = (Alert("largest_free_chunk", below=4 * MIB), Alert("free_bytes", below=4 * MIB))
    heap, looks = guard(*alerts, limit=64 * MIB, allow_growth=True)
    heap.allocate(MIB)
    heap.allocate(16 * MIB)
    assert looks.look() == []
    held = [heap.allocate(3 * MIB) for _ in range(15)]
    assert [alarm.alert.measure for alarm in looks.look()] == ["largest_free_chunk", "free_bytes"]
    for address in held:
        heap.free(address)
    looks.look()
    calm(looks)
    held = [heap.allocate(3 * MIB) for _ in range(15)]
    assert [alarm.alert.measure for alarm in looks.look()] == ["largest_free_chunk", "free_bytes"]


def test_a_number_that_begins_below_has_to_have_been_good_first():
    heap, looks = guard(Alert("bytes_in_use", below=KIB))
    assert looks.look() == []
    held = heap.allocate(10 * KIB)
    looks.look()
    calm(looks)
    heap.free(held)
    assert [alarm.value for alarm in looks.look()] == [0]


def test_growth_is_from_one_mark_to_the_next_of_its_kind():
    heap, looks = guard(Alert("growth_per_step", above=5 * KIB))
    heap.mark("epoch 0")
    for number, size in enumerate((4, 4, 8, 1)):
        heap.allocate(size * KIB)
        heap.mark(f"step {number}")
        heap.mark("epoch 1" if number == 3 else "alert: not a step")
    found = told(looks.look())
    assert found == ["bytes in use grew by 17.0 KiB from 'epoch 0' to 'epoch 1', above 5.0 KiB"]
    heap.allocate(6 * KIB)
    heap.mark("step 4")
    assert told(looks.look())[0].startswith("bytes in use grew by 6.0 KiB from 'step 3' to 'step 4'")


def test_a_log_that_lost_events_is_no_reason_to_stop():
    heap = new_heap(log=bfcviz.EventLog(64))
    heap, looks = guard(Alert("bytes_in_use", above=50 * KIB), heap=heap)
    for _ in range(300):
        heap.allocate(300)
    assert len(looks.look()) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Alert("size", above=1), "'size'; there are: bytes_in_use, "),
        (lambda: Alert("bytes_in_use"), "give either above or below"),
        (lambda: Alert("bytes_in_use", 1, 2), "give either above or below"),
        (lambda: Alert("growth_per_step", below=1), "give above"),
        (lambda: Alert("external_fragmentation", above=30), "a share: give a number from 0 to 1"),
        (lambda: Alert("bytes_in_use", above=float("nan")), "nan was given for bytes_in_use"),
        (lambda: bfcviz.watch(numpy=True, alerts=["400MiB"]), "'400MiB' was given as an alert"),
    ],
)
def test_nonsense_is_refused(wrong, said):
    with pytest.raises(LiveError, match=said):
        wrong()


def test_a_size_that_is_none_is_refused():
    with pytest.raises(ValueError, match="not a size in bytes"):
        Alert("bytes_in_use", above="much")


def test_somebody_is_told_while_the_code_runs_and_the_trace_has_a_mark():
    went_off, threads = threading.Event(), []

    def call(alarm):
        threads.append(threading.current_thread().name)
        went_off.set()

    alert = Alert("bytes_in_use", above="4MiB", call=call)
    with bfcviz.watch(numpy=True, limit="64MiB", alerts=[alert]) as w:
        dashboard = w.dashboard
        held = np.empty(MIB)
        assert went_off.wait(PATIENCE_S)
    assert threads == ["bfcviz-lookout"]
    (alarm,) = w.alarms
    assert alarm.alert is alert
    assert f"numpy: {alarm.text}" in dashboard._notices.value
    (mark,) = events_of(w.trace, [Kind.MARK])
    assert w.trace.labels.name(int(mark["label"])) == "alert: bytes in use above 4.0 MiB"
    assert int(mark["size"]) == held.nbytes
    dashboard.close()


def test_what_comes_just_before_the_end_is_told_at_the_end(tmp_path):
    alert = Alert("bytes_in_use", above="4MiB")
    with bfcviz.watch(numpy=True, limit="64MiB", alerts=[alert], path=tmp_path / "run") as w:
        np.empty(MIB)
    assert [alarm.value for alarm in w.alarms] == [8 * MIB]
    assert len(events_of(bfcviz.open(tmp_path / "run"), [Kind.MARK])) == 1


def test_a_call_that_fails_does_not_reach_the_workload_nor_end_the_others():
    def fail(alarm):
        raise ValueError("no mail today")

    alerts = [Alert("bytes_in_use", above="4MiB", call=fail), Alert("bytes_in_use", above="3MiB")]
    with bfcviz.watch(numpy=True, limit="64MiB", alerts=alerts) as w:
        dashboard = w.dashboard
        held = np.empty(MIB)
    assert len(w.alarms) == 2
    assert [str(error) for error in w.errors] == ["no mail today"]
    assert "beside the workload: ValueError: no mail today" in dashboard._notices.value
    assert held.nbytes == 8 * MIB
    dashboard.close()


def test_many_notices_do_not_fill_the_page():
    with bfcviz.watch(numpy=True, limit="1MiB") as w:
        dashboard = w.dashboard
        for number in range(9):
            dashboard.notice(f"<notice {number}>")
    assert "(4 more before these)" in dashboard._notices.value
    assert "&lt;notice 8&gt;" in dashboard._notices.value
    assert "&lt;notice 3&gt;" not in dashboard._notices.value
    dashboard.close()

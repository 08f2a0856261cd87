"""The steps of a session: their order, their trace, and the marks in each heap."""

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace


def test_the_journey_leads_from_the_session_to_the_manager(manager):
    stages = [step.stage for step in manager.journey.steps]
    expected = ["session", *["settings"] * 3, "factory", "device", "factory", "device", "device", "manager"]
    assert stages == expected
    factories = [step.words for step in manager.journey.steps if step.stage == "factory"]
    assert factories[0].startswith("GPUCompatibleCPUDeviceFactory")
    assert "/device:GPU:1" in manager.journey._repr_html_()
    manager.journey.note("<b>", "<i>")
    assert "&lt;b&gt;</td><td style='text-align:left'>&lt;i&gt;" in manager.journey._repr_html_()


def test_the_journey_is_a_trace_of_marks_and_begins_each_heaps_own(manager, tmp_path):
    trace = manager.journey.trace()
    assert set(trace.read(0, len(trace))["kind"]) == {Kind.MARK}
    trace.save(tmp_path / "journey.parquet")
    again = Trace.open(tmp_path / "journey.parquet")
    names = [again.labels.name(number) for number in again.read(0, len(again))["label"]]
    assert names == [step.label for step in manager.journey.steps]
    gpu = manager.gpu(0)
    gpu.allocator().allocate(100, label="first tensor")
    own = gpu.trace()
    told = [own.labels.name(number) for number in own.read(0, len(own))["label"]]
    assert told[0] == "session: begins"
    assert "created /job:localhost/replica:0/task:0/device:GPU:0 (simulated)" in told[7]
    assert told[-1] == "first tensor"
    assert own.origin.details["simulated"] is True

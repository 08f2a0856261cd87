from figures.synthetic import KiB, PlainHeap

from bfcviz.dashboard.trace_series import Series


def trace(chunks):
    heap = PlainHeap(64 * KiB)
    for _ in range(chunks):
        heap.allocate(KiB)
    return heap.trace()


def test_the_newest_is_shown_until_the_user_chooses_another():
    series = Series("window", theme="dark")
    assert "waiting for the first window" in series.status.value
    assert series.inspector is None
    first, second, third = trace(1), trace(2), trace(3)
    series.add("1", first)
    assert series.trace is first
    assert series.inspector.theme == "dark"
    series.add("2", second)
    assert series.trace is second
    assert series.children[1] is series.inspector
    series.menu.value = 0
    assert series.trace is first
    series.add("3", third)
    assert series.trace is first
    assert [name for name, _ in series.menu.options] == ["1", "2", "3"]
    series.menu.value = 2
    series.add("4", first)
    assert series.trace is first
    series.say("<b>")
    assert series.status.value == "&lt;b&gt;"
    series.close()

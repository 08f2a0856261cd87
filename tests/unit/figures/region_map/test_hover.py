import re
from threading import Thread

import numpy as np
from unit.figures.synthetic import KiB, MiB, PlainHeap

import bfcviz
from bfcviz.figures.map_rows import lay_out
from bfcviz.figures.region_map import MOST_FRAMES, MOST_TEXTS, points_in_pieces, points_on_grid
from bfcviz.model import Model


def small_chunks(count, region=2 * MiB):
    heap = PlainHeap(region)
    for number in range(count):
        heap.allocate(200, f"op {number % 3}")
    model = Model(heap.trace())
    model.seek(len(heap.events))
    return model, lay_out(model.regions(), wrapped_rows=2)


def points_of(model, rows):
    chunks = model.chunks()
    pieces = rows.pieces(chunks["address"], chunks["size"])
    return points_in_pieces(chunks, pieces, rows.part(None), model.trace.labels)


def test_each_of_many_chunks_has_a_point_and_the_widest_have_full_texts():
    model, rows = small_chunks(2000)
    points = points_of(model, rows)
    referred = [int(re.match(r"%{meta\[(\d+)]}", text)[1]) for text in points["hovertemplate"]]
    assert set(referred) == set(range(2001))
    assert len(referred) < 4000
    texts = points["meta"][:2001]
    whole = sum("zoom in" not in text for text in texts)
    assert MOST_TEXTS - 1 <= whole <= MOST_TEXTS  # the widest chunk is in two pieces
    assert texts[-1].startswith("<b>free</b>, 1.5 MiB")
    assert len(set(points["y"] % 1)) > 1  # a tall row has points from top to bottom


def test_labels_are_written_once():
    model, rows = small_chunks(300)
    points = points_of(model, rows)
    assert sorted(points["meta"][301:]) == ["no label", "op 0", "op 1", "op 2"]
    assert not any("op" in text for text in points["hovertemplate"])


def test_a_grid_has_no_more_points_than_fit_however_many_rows():
    for regions in (1, 3, 2000):
        heap = PlainHeap(4 * KiB, regions=regions, gap=4 * KiB)
        for _ in range(regions):
            heap.allocate(4 * KiB)
        model = Model(heap.trace())
        model.seek(len(heap.events))
        rows = lay_out(model.regions())
        points = points_on_grid(model.chunks(), rows, rows.part(None), model.trace.labels)
        assert 100 <= len(points["x"]) <= 1000
        assert len(points["x"]) == len(points["y"]) == len(points["hovertemplate"])
        assert np.ptp(points["y"]) >= 0.9 * (len(rows) - 1)


def test_points_are_no_farther_apart_than_rows_are_high():
    """In a map 1,000 pixels wide and 300 high: plotly takes the nearest point, and a row has one in its middle."""
    heap = PlainHeap(64 * MiB)
    heap.allocate(30 * MiB)
    model = Model(heap.trace())
    model.seek(len(heap.events))
    rows = lay_out(model.regions())
    points = points_of(model, rows)
    for row in range(7):  # those with nothing but this chunk
        x = np.sort(points["x"][np.floor(points["y"]) == row]) / rows.width * 1000
        assert np.diff(x).max() / 2 < 300 / len(rows) / 2


def test_as_many_rows_as_there_may_be_have_not_too_many_points():
    heap = PlainHeap(4 * KiB, regions=1500, gap=4 * KiB)
    for _ in range(1500):
        heap.allocate(4 * KiB)
    model = Model(heap.trace())
    model.seek(len(heap.events))
    assert len(points_of(model, lay_out(model.regions()))["x"]) <= 6000


def test_the_innermost_frames_of_a_stack_are_shown_one_per_line():
    heap = PlainHeap(64 * KiB)
    heap.allocate(KiB, "few", stack="layer (<model>.py:3)\n<module> (train.py:9)")
    heap.allocate(
        KiB, "many", stack="\n".join(f"f{n} (a.py:{n})" for n in range(MOST_FRAMES + 3)), shape="[4]"
    )
    model = Model(heap.trace())
    model.seek(len(heap.events))
    texts = points_of(model, lay_out(model.regions()))["meta"]
    assert "few<br>layer (&lt;model&gt;.py:3)<br>&lt;module&gt; (train.py:9)" in texts
    (many,) = (text.split("<br>") for text in texts if text.startswith("many"))
    assert many[1:] == ["f0 (a.py:0)", *many[2 : MOST_FRAMES + 1], "… 3 more", "shape: [4]"]


def test_a_stack_of_torch_has_the_readers_lines_first_and_no_frame_of_the_allocator():
    inside = [f"c10::cuda::CUDACachingAllocator::Native::f{n}() (:0)" for n in range(10)]
    own = ["update (/home/me/models.py:181)", "train (/home/me/train.py:9)"]
    heap = PlainHeap(64 * KiB)
    heap.allocate(KiB, "models.py:181 update", stack="\n".join([*inside, "at::native::mul(int) (:0)", *own]))
    model = Model(heap.trace())
    model.seek(len(heap.events))
    (text,) = (
        text for text in points_of(model, lay_out(model.regions()))["meta"] if text.startswith("models")
    )
    assert text.split("<br>")[1:] == [*own, "at::native::mul", "… 10 more"]


def test_a_thread_has_its_name_in_the_texts_of_the_map_and_of_addresses_over_time():
    kept = []
    with bfcviz.watch(numpy=True, limit="16MiB", dashboard=False, capture="nothing") as w:
        thread = Thread(target=lambda: kept.append(np.empty(KiB)), name="<loader>")
        thread.start()
        thread.join()
    number = next(number for number, name in w.trace.origin.details["threads"].items() if name == "<loader>")
    of_map = " ".join(text for each in bfcviz.draw("region_map", w.trace).data for text in each.meta or ())
    over_time = " ".join(
        text for each in bfcviz.draw("address_time", w.trace).data for text in each.hovertext or ()
    )
    for texts in (of_map, over_time):
        assert f"thread {number}: &lt;loader&gt;, stream" in texts
    model, rows = small_chunks(3)
    assert "thread 0, stream" in points_of(model, rows)["meta"][0]

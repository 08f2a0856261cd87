"""The cursor of the region map: where the arrow keys go, what it chooses, and what it tells the page."""

import json
import re

import pytest
from unit.figures.drawn_map import at_step
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace

from bfcviz.dashboard.map_cursor import MapCursor
from bfcviz.errors import BfcvizError
from bfcviz.figures.map_rows import rows_of
from bfcviz.figures.region_map import chunk_at
from bfcviz.figures.view_options import PLAIN, Look, MapWindow, Selected
from bfcviz.model import Model


@pytest.fixture
def model():
    return at_step(busy_trace(), 400)


def boxes(cursor):
    """What the page draws: (left, right, row) of each."""
    return json.loads(re.search(r"data-bfcviz-cursor='(.*?)'", cursor.widget.value)[1])


def row(cursor):
    """The row that a screen reader says."""
    return int(re.search(r"row ([0-9,]+) of", cursor.widget.value)[1]) - 1


def chosen(cursor, model, look=PLAIN):
    """The chunk that it is at."""
    return cursor.move(model, look, "choose").selected


def test_it_begins_at_the_selected_chunk_or_the_first_one(model):
    chunks, cursor = model.chunks(), MapCursor()
    assert cursor.move(model, PLAIN, "here") == PLAIN
    assert chosen(cursor, model) == Selected.of(chunks[0])
    cursor.move(model, Look(selected=Selected.of(chunks[5])), "here")
    assert chosen(cursor, model) == Selected.of(chunks[5])
    assert ", selected, " in cursor.widget.value


def test_left_and_right_go_through_all_chunks_by_address(model):
    chunks, cursor = model.chunks(), MapCursor()
    cursor.move(model, PLAIN, "here")
    for chunk in chunks[1:]:
        cursor.move(model, PLAIN, "right")
        assert chosen(cursor, model) == Selected.of(chunk)
    cursor.move(model, PLAIN, "right")
    for chunk in chunks[-2::-1]:
        cursor.move(model, PLAIN, "left")
        assert chosen(cursor, model) == Selected.of(chunk)


def test_they_go_from_the_end_of_a_row_or_a_region_to_the_next_address():
    heap = PlainHeap(4 * KiB, regions=3, gap=4 * KiB)
    for _ in range(9):
        heap.allocate(KiB)
    model, cursor = at_step(heap.trace(), len(heap.trace())), MapCursor()
    chunks = model.chunks()
    assert len(set(chunks["region"].tolist())) == 3
    cursor.move(model, Look(selected=Selected.of(chunks[0])), "here")
    for chunk in chunks[1:]:
        cursor.move(model, PLAIN, "right")
        assert chosen(cursor, model) == Selected.of(chunk)


def test_up_and_down_go_to_the_chunk_above_and_below(model):
    rows, cursor, passed = rows_of(model), MapCursor(), [0]
    cursor.move(model, PLAIN, "here")
    for _ in range(len(rows)):
        before = chosen(cursor, model)
        cursor.move(model, PLAIN, "down")
        if row(cursor) == passed[-1]:
            break
        assert before != chosen(cursor, model) == Selected.of(chunk_at(model, 0.0, row(cursor), PLAIN))
        passed.append(row(cursor))
    assert boxes(cursor)[-1][2] == len(rows) - 1  # the last chunk is the rest of the region
    for wanted in passed[-2::-1]:
        cursor.move(model, PLAIN, "up")
        assert row(cursor) <= wanted
    assert row(cursor) == 0


def test_a_chunk_of_several_rows_is_one_move():
    heap = PlainHeap(64 * MiB)
    heap.allocate(24 * MiB)
    model, cursor = at_step(heap.trace(), len(heap.trace())), MapCursor()
    cursor.move(model, PLAIN, "here")
    assert len(boxes(cursor)) == 6
    assert boxes(cursor)[0] == [0.0, 1.0, 0]
    cursor.move(model, PLAIN, "down")
    assert chosen(cursor, model).born is None
    assert "free, 40.0 MiB, selected, row 7 of 16" in cursor.widget.value


def test_it_keeps_its_place_at_other_steps_and_has_none_without_a_region():
    model, cursor = at_step(busy_trace(), 400), MapCursor()
    cursor.move(model, PLAIN, "here")
    for _ in range(7):
        cursor.move(model, PLAIN, "right")
    before = model.chunks()[7]
    model.seek(300)
    cursor.show(model, PLAIN)
    there = chosen(cursor, model)
    assert there.address <= int(before["address"]) + int(before["size"])
    empty = Model(busy_trace())
    assert cursor.move(empty, PLAIN, "choose") == PLAIN
    cursor.move(empty, PLAIN, "right")
    assert cursor.widget.value == ""


def test_a_zoomed_map_moves_to_a_chunk_that_it_does_not_show(model):
    rows, cursor = rows_of(model), MapCursor()
    look = Look(map_window=MapWindow((0.0, rows.width / 8), (-0.2, 2.0)))
    assert cursor.move(model, look, "here") == look
    for _ in range(len(rows)):
        look = cursor.move(model, look, "down")
    (left, right), (top, bottom) = look.map_window.bytes, look.map_window.rows
    assert (right - left, bottom - top) == pytest.approx((rows.width / 8, 2.2))
    assert top <= row(cursor) < bottom
    for _ in range(40):
        look = cursor.move(model, look, "left")
        window = look.map_window
        assert any(
            box_left * rows.width < window.bytes[1]
            and box_right * rows.width > window.bytes[0]
            and window.rows[0] < row + 1
            and row < window.rows[1]
            for box_left, box_right, row in boxes(cursor)
        )


def test_it_says_nothing_once_the_map_lost_the_focus_and_refuses_what_it_does_not_know(model):
    cursor = MapCursor()
    cursor.move(model, PLAIN, "here")
    cursor.move(model, PLAIN, "leave")
    assert cursor.widget.value == ""
    with pytest.raises(BfcvizError, match="sideways"):
        cursor.move(model, PLAIN, "sideways")

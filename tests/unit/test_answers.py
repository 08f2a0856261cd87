"""What a result shows at a prompt and in a notebook: a short text with the answer first, and the same as HTML."""

import re
import sys
from functools import cache
from html import unescape

import numpy as np
import pytest
from shared import sample_file, sample_trace
from unit.figures.synthetic import PlainHeap

import bfcviz
from bfcviz.answers import MOST_LINES, Answer, AnswerTable
from bfcviz.errors import BfcvizError, MissingExtra

GROWS = "bfc:allow_growth=true"
MAKERS = {
    "why": lambda: bfcviz.why(bfcviz.sample("oom_log")),
    "why of a question": lambda: bfcviz.why(sample_trace("conv"), size="1GiB"),
    "why of a text": lambda: bfcviz.why(
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 4.00 GiB total)"
    ),
    "holders": lambda: bfcviz.holders(sample_trace("conv"), "peak"),
    "leaks": lambda: bfcviz.leaks(sample_trace("conv")),
    "growths": lambda: bfcviz.growths(sample_trace("conv")),
    "what grew": lambda: bfcviz.what_grew(sample_trace("conv"), 33_000),
    "trace": lambda: sample_trace("conv"),
    "replay": lambda: bfcviz.replay(sample_trace("conv"), GROWS),
    "recorded replay": lambda: bfcviz.replay(sample_trace("conv"), GROWS, record=True),
    "compare": lambda: bfcviz.compare_recordings(sample_trace("conv"), sample_file("conv")),
    "limit": lambda: bfcviz.smallest_limit(sample_trace("conv"), GROWS),
}


@cache
def made(name):
    return MAKERS[name]()


@pytest.fixture(params=MAKERS)
def answer(request):
    return made(request.param)


def test_a_prompt_shows_a_few_lines(answer):
    assert isinstance(answer, Answer)
    lines = repr(answer).splitlines()
    assert 1 <= len(lines) <= MOST_LINES
    assert max(map(len, lines)) < 300
    assert "array(" not in repr(answer)
    assert "<bfcviz." not in repr(answer)


@pytest.mark.parametrize("name", ["holders", "leaks", "what grew", "trace", "compare"])
def test_a_table_is_a_data_frame_where_pandas_is_installed(name, monkeypatch):
    answer = made(name)
    frame, table = answer.to_pandas(), answer.to_arrow()
    assert (list(frame.columns), len(frame)) == (table.column_names, len(table))
    assert len(frame)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"bfcviz\[lab\]"):
        answer.to_pandas()


def test_a_prompt_shows_an_account_as_its_table():
    account = bfcviz.account(bfcviz.sample("oom_log"))
    assert repr(account) == str(account)
    assert repr(account.devices[0]) == str(account.devices[0])
    assert len(repr(account).splitlines()) <= MOST_LINES


def test_a_notebook_shows_the_whole_text(answer):
    html = answer._repr_html_()
    first, _, rest = html.partition("</div>")
    shown = f"{first}</div>{''.join(re.findall('(?s)<pre.*</pre>', rest))}"  # without the tables
    assert unescape(re.sub(r"<[^>]+>", "\n", shown)).split() == str(answer).split()
    assert re.search(r"font-weight:600\">[^<]{15,}</div>", html)


@pytest.mark.parametrize("name", ["why", "holders", "leaks", "compare", "what grew"])
def test_a_notebook_shows_tables_and_a_figure(name):
    answer = made(name)
    cells = [re.findall(r"<td[^>]*>([^<]*)</td>", table.html) for table in answer.tables]
    assert all(cells)
    assert answer._repr_html_().count("<table") == len(cells)
    figure = answer.figure(theme="dark")
    assert len(figure.data) > 0
    assert figure.table.num_rows > 0


def test_numbers_of_a_figure_and_of_the_answer_agree_to_the_digit():
    failed = made("why")
    shown = " ".join(str(each.text) for each in failed.figure().data if each.type == "bar")
    sizes = dict(failed.tables[0].rows)
    assert sizes["largest free chunk"].split(",")[0] in shown
    assert sizes["free in the pool"].split(" in ")[0] in shown


def test_a_text_has_nothing_to_draw():
    with pytest.raises(BfcvizError, match=r"bfcviz\.draw"):
        made("why of a text").figure()


@pytest.mark.parametrize("name", ["trace", "replay", "recorded replay"])
def test_a_trace_is_drawn_as_its_region_map(name):
    figure = made(name).figure(theme="dark")
    assert "Region map" in str(figure.layout.annotations)
    assert figure.table.num_rows > 0


def test_failures_that_a_text_states_as_a_data_frame():
    (row,) = made("why of a text").to_pandas().to_dict("records")
    assert row["verdict"] == made("why of a text").to_json()["failures"][0]["verdict"]
    assert row["requested"] == 2 << 30


@pytest.mark.parametrize("name", ["why", "why of a question", "compare", "replay"])
def test_numbers_of_an_answer_as_a_data_frame(name):
    answer, frame = made(name), made(name).to_pandas()
    expected = {
        "compare": lambda: answer.holders.num_rows,
        "replay": lambda: answer.served,
    }.get(name, lambda: len(answer.held_by) + sum(len(run.pins) for run in answer.useful_runs[:1]))()
    assert len(frame) == expected


@pytest.mark.parametrize("name", ["holders", "leaks", "trace"])
def test_as_a_data_frame(name):
    answer = made(name)
    assert len(answer.to_pandas()) == len(answer.to_arrow())


def test_a_table_has_texts_at_the_left_and_numbers_at_the_right():
    table = AnswerTable(
        ("policy", "result", "peak"), [("bfc", "out of memory", "64.0 MiB")], texts=["result"]
    )
    sides = re.findall(r"text-align:(\w+)[^>]*>([^<]*)<", table.html)
    assert [side for side, _ in sides] == ["left", "left", "right"] * 2
    assert [text for _, text in sides[3:]] == ["bfc", "out of memory", "64.0 MiB"]


def test_labels_cannot_break_out():
    heap = PlainHeap(1 << 22)
    heap.allocate(1 << 20, label="<script>alert(1)</script>\x1b[31m")
    shown = bfcviz.holders(heap.trace())
    assert "<script>" not in shown._repr_html_()
    assert "&lt;script&gt;" in shown._repr_html_()
    assert "\x1b" not in repr(shown)
    assert np.asarray(shown.rows["bytes"]).max() >= 1 << 20


def test_a_long_text_says_how_much_is_left_out():
    class Long(Answer):
        def __str__(self):
            return "\n".join(f"line {n}" for n in range(100))

    lines = repr(Long()).splitlines()
    assert lines[:9] == [f"line {n}" for n in range(9)]
    assert "91 more lines" in lines[9]

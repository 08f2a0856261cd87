"""What a result shows at a prompt and in a notebook: a short text with the answer first, and the same as HTML."""

import re

import numpy as np
import pytest
from unit.figures.synthetic import PlainHeap

import bfcviz
from bfcviz.answers import MOST_LINES, Answer

CONV = bfcviz.sample("conv")
GROWS = "bfc:allow_growth=true"
MAKERS = {
    "why": lambda: bfcviz.why(bfcviz.sample("oom_log")),
    "why of a question": lambda: bfcviz.why(CONV, size="1GiB"),
    "why of a text": lambda: bfcviz.why(
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 4.00 GiB total)"
    ),
    "holders": lambda: bfcviz.holders(CONV, "peak"),
    "leaks": lambda: bfcviz.leaks(CONV),
    "growths": lambda: bfcviz.growths(CONV),
    "trace": lambda: bfcviz.open(CONV),
    "replay": lambda: bfcviz.replay(CONV, GROWS),
    "compare": lambda: bfcviz.compare_recordings(CONV, CONV),
    "limit": lambda: bfcviz.smallest_limit(CONV, GROWS),
}


@pytest.fixture(scope="module", params=MAKERS)
def answer(request):
    return MAKERS[request.param]()


def test_a_prompt_shows_a_few_lines(answer):
    assert isinstance(answer, Answer)
    lines = repr(answer).splitlines()
    assert 1 <= len(lines) <= MOST_LINES
    assert max(map(len, lines)) < 300
    assert "array(" not in repr(answer)
    assert "<bfcviz." not in repr(answer)


def test_a_notebook_shows_the_whole_text(answer):
    html = answer._repr_html_()
    text = re.sub(r"<[^>]+>", "\n", html).replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")
    text = text.replace("&#x27;", "'").replace("&quot;", '"')
    assert text.split() == str(answer).split()
    assert re.search(r"font-weight:600\">[^<]{15,}</div>", html)


@pytest.mark.parametrize("name", ["holders", "leaks", "trace"])
def test_as_a_data_frame(name):
    answer = MAKERS[name]()
    assert len(answer.to_pandas()) == len(answer.to_arrow())


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

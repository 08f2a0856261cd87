"""The code of a picture, when run, makes the same picture."""

from pathlib import Path

import numpy as np
import pytest
from shared import sample_trace
from unit.figures.synthetic import busy_trace

import bfcviz
from bfcviz.figures import FIGURES, Look, Picture, draw
from bfcviz.figures.export import IN_MEMORY, code_for
from bfcviz.figures.view_options import MapWindow, Selected

WINDOW = MapWindow((0.0, np.float64(1 << 20)), (0.0, 2.5))


@pytest.fixture
def run(monkeypatch):
    """Runs code and returns what it named."""
    shown = []
    monkeypatch.setattr(Picture, "show", lambda figure: shown.append(figure))  # noqa: PLW0108  binds the figure

    def run_code(code):
        names = {}
        exec(compile(code, "<copied>", "exec"), names)  # noqa: S102  it is our own
        assert shown == [names["figure"]]
        return names["figure"]

    return run_code


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A trace file whose name contains code."""
    return busy_trace().save(
        tmp_path_factory.mktemp("run") / 'a\'); import os; os.abort() # "b\\n"\u202e.parquet'
    )


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize(
    "look",
    [
        Look(),
        Look(
            theme="dark",
            axis="time",
            steps=(10, 200),
            wanted=1 << 20,
            map_window=WINDOW,
            selected=Selected(4096, 12),
        ),
    ],
)
def test_the_code_makes_the_same_figure(name, look, file, run):
    options = {key: getattr(look, key) for key in Look.__dataclass_fields__}
    figure = run(code_for(name, file, 300, 0, look))
    assert figure.to_json() == draw(name, bfcviz.open(file), 300, **options).to_json()


def test_the_code_names_no_defaults():
    assert code_for("region_map", Path("/data/run.parquet"), 1234) == (
        "import bfcviz\n"
        "\n"
        "trace = bfcviz.open('/data/run.parquet')\n"
        "figure = bfcviz.draw('region_map', trace, 1234)\n"
        "figure.show()\n"
    )


def test_what_was_chosen_is_named_one_a_line_where_it_is_much():
    look = Look(theme="dark", map_window=WINDOW, selected=Selected(4096))
    assert code_for("region_map", Path("/run.parquet"), 5, 2, look).splitlines()[1:] == [
        "from bfcviz.figures.view_options import MapWindow, Selected",
        "",
        "trace = bfcviz.open('/run.parquet')",
        "figure = bfcviz.draw(",
        "    'region_map',",
        "    trace,",
        "    5,",
        "    pool=2,",
        "    theme='dark',",
        "    map_window=MapWindow(bytes=(0.0, 1048576.0), rows=(0.0, 2.5)),",
        "    selected=Selected(address=4096, born=None),",
        ")",
        "figure.show()",
    ]


def test_a_sample_is_opened_by_its_name_on_every_machine(run):
    code = code_for("bin_histogram", sample_trace("oom_log").path, 5)
    assert 'bfcviz.open(bfcviz.sample("oom_log"))' in code
    assert run(code).table.num_rows > 0


def test_a_trace_in_memory_is_the_users_to_name():
    code = code_for("region_map", busy_trace().path, 3)
    assert IN_MEMORY in code

import sys
from types import SimpleNamespace

import ipywidgets as widgets
import pytest

from bfcviz.dashboard.background import kernel


@pytest.fixture
def run_in(monkeypatch):
    """Lets this process look like a kernel of some kind."""

    def pretend(**attributes):
        fake = SimpleNamespace(
            Kernel=SimpleNamespace(initialized=lambda: True, instance=lambda: SimpleNamespace(**attributes))
        )
        monkeypatch.setitem(sys.modules, "ipykernel.kernelbase", fake)

    return pretend


def test_where_there_is_no_kernel_nobody_clicks(monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel.kernelbase", raising=False)
    assert not kernel.answers_while_busy()
    assert "no notebook" in kernel.words()


def test_a_kernel_with_subshells_answers(run_in):
    run_in(_supports_kernel_subshells=True)
    assert kernel.answers_while_busy()
    assert "work while a cell runs" in kernel.words()


@pytest.mark.parametrize("attributes", [{}, {"_supports_kernel_subshells": False}])
def test_one_without_does_not_and_people_are_told_what_to_do(run_in, attributes):
    run_in(**attributes)
    assert not kernel.answers_while_busy()
    assert "run(work)" in kernel.words()


def test_clicks_come_in_where_the_page_sent_them():
    inner, outer = widgets.Button(), widgets.Button()
    box = widgets.VBox([widgets.HBox([inner]), outer])
    for widget in (inner, outer, box):
        widget.comm = SimpleNamespace(
            _reply_subshell_for=None, on_msg=lambda _: None, comm_id="1", close=lambda: None
        )
    kernel.route([box])
    for widget in (inner, outer, box):
        assert widget.comm._reply_subshell_for("data", "theirs") == "theirs"


def test_kernels_that_need_no_help_get_none():
    button = widgets.Button()
    kernel.route([button])
    assert not hasattr(button.comm, "_reply_subshell_for")

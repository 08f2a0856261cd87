import sys
from types import SimpleNamespace

import ipywidgets as widgets
import pytest
from ipywidgets.widgets.widget import _instances

from bfcviz import notebook
from bfcviz.dashboard import widget_lifetime


@pytest.fixture
def run_in(monkeypatch):
    """Make this process look like a kernel with these attributes."""

    def pretend(**attributes):
        fake = SimpleNamespace(
            Kernel=SimpleNamespace(initialized=lambda: True, instance=lambda: SimpleNamespace(**attributes))
        )
        monkeypatch.setitem(sys.modules, "ipykernel.kernelbase", fake)

    return pretend


def test_without_a_kernel_no_clicks_arrive(monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel.kernelbase", raising=False)
    assert not notebook.answers_while_busy()
    assert "No notebook" in notebook.description()


def test_a_kernel_with_subshells_answers(run_in):
    run_in(_supports_kernel_subshells=True)
    assert notebook.answers_while_busy()
    assert "while a cell runs" in notebook.description()


@pytest.mark.parametrize("attributes", [{}, {"_supports_kernel_subshells": False}])
def test_one_without_does_not_and_the_description_says_what_to_do(run_in, attributes):
    run_in(**attributes)
    assert not notebook.answers_while_busy()
    assert "run(work)" in notebook.description()


def test_clicks_are_handled_on_the_subshell_the_page_chose():
    inner, outer = widgets.Button(), widgets.Button()
    box = widgets.VBox([widgets.HBox([inner]), outer])
    own = {widget: widget.comm for widget in (inner, outer, box)}
    for widget in own:
        widget.comm = SimpleNamespace(
            _reply_subshell_for=None, on_msg=lambda _: None, comm_id="1", close=lambda: None
        )
    widget_lifetime.route([box])
    for widget, comm in own.items():
        assert widget.comm._reply_subshell_for("data", "theirs") == "theirs"
        widget.comm = comm
    _instances.pop("1")  # else it stays in the state of all later pages


def test_other_kernels_are_not_changed():
    button = widgets.Button()
    widget_lifetime.route([button])
    assert not hasattr(button.comm, "_reply_subshell_for")

"""The notebook on reading a failure, in JupyterLab: its pictures are drawn and its reports fit the page."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

_PLOTS = "number => document.querySelectorAll('.js-plotly-plot').length >= number"


def test_the_failure_is_drawn_and_its_report_fits(lab_page):
    with lab_page.opened("05_read_an_oom.ipynb") as lab:
        lab.run_all()
        assert lab.printed_errors() == []
        lab.page.wait_for_function(_PLOTS, arg=5)
        reports = lab.page.locator(".jp-OutputArea-output pre:has-text('What would help')")
        for fact in ("828.1 KiB", "fragmentation", "106.0 KiB"):
            assert fact in reports.first.inner_text()
        assert "layer_1/activations" in reports.last.inner_text()
        assert max(len(line) for text in reports.all_inner_texts() for line in text.splitlines()) <= 110

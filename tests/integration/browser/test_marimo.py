"""A notebook of marimo in a real page: the page without a kernel for an Inspector, and a figure that plotly draws."""

import socket
import subprocess
import sys

import pytest
from integration.browser.lab import PAGE_LIMIT_MS, _environment, watched_page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

NOTEBOOK = """
import marimo
app = marimo.App()

@app.cell
def _():
    import bfcviz
    log = bfcviz.open(bfcviz.sample("oom_log"))
    bfcviz.Inspector(log)
    return bfcviz, log

@app.cell
def _(bfcviz, log):
    bfcviz.draw("region_map", log)
    return
"""


@pytest.fixture
def address(tmp_path):
    """Where the notebook is served as an app."""
    (tmp_path / "notebook.py").write_text(NOTEBOOK)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("run", "notebook.py", "--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port))
    served = subprocess.Popen(
        [sys.executable, "-m", "marimo", *words],
        cwd=tmp_path,
        env=_environment(tmp_path) | {"MARIMO_SKIP_UPDATE_CHECK": "1", "XDG_CONFIG_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert any("URL" in line for line in served.stdout)
        yield f"http://127.0.0.1:{port}"
    finally:
        served.terminate()
        served.communicate()


def test_the_page_without_a_kernel_and_a_figure(browser, address):
    page, outside, errors = watched_page(browser, address)
    page.set_default_timeout(PAGE_LIMIT_MS)
    page.goto(address)
    inside = page.frame_locator("iframe.bfcviz-page")
    inside.locator("#app[data-ready]").wait_for()
    page.locator(".js-plotly-plot .annotation-text:has-text('Region map')").first.wait_for()
    assert "742.2 KiB" in inside.locator("body").inner_text()
    last = inside.locator("#step").input_value()
    inside.locator("#back").click()
    inside.locator(f"#told:text-matches('^Step {int(last) - 1:,}:')").wait_for(state="attached")
    inside.locator("#fit").fill("1GiB")
    assert inside.locator("#answer").inner_text().startswith("1.0 GiB would not fit")
    page.close()
    assert [url for url in outside if "mathjax" not in url] == []  # marimo itself asks for MathJax
    assert errors == []

"""One server and one browser for all tests here; one page of JupyterLab shows their notebooks one after the other."""

import os

import pytest
from integration.browser.lab import BROWSER_OPTIONS, Lab, find_browser, serve
from shared import ROOT


def pytest_collection_modifyitems(items):
    """A page that took too long on a busy machine gets one more chance; what it shows wrongly does not."""
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=["TimeoutError"]))


@pytest.fixture(scope="package")
def browser():
    """Not for the whole session: Playwright keeps an event loop running, where no other test could start one."""
    found = find_browser()
    if found is None:
        reason = "no Chromium or Chrome found (apt-get install chromium, or set BROWSER_PATH)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  slow to import, and of no use without a browser

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=BROWSER_OPTIONS)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        (folder / notebook.name).write_bytes(notebook.read_bytes())
    with serve(folder, tmp_path_factory.mktemp("home")) as served:
        yield served


@pytest.fixture(scope="package")
def lab_page(browser, server):
    """One page for all tests: it loads JupyterLab and plotly's script once."""
    lab = Lab(browser, server)
    yield lab
    lab.page.close()

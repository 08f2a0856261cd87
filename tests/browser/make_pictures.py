"""Makes notebooks/pictures/*.png: the Inspector of notebook 01 in a real JupyterLab page.

    python tests/browser/make_pictures.py

Each picture shows the bundled training run where its heap is fragmented the worst.
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser.lab import Lab, find_browser, serve  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

NOTEBOOK = "01_step_through.ipynb"
PICTURES = ROOT / "notebooks" / "pictures"
SIZE = (1560, 1500)


def main():
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        for theme in ("light", "dark"):
            picture = PICTURES / ("inspector.png" if theme == "light" else "inspector_dark.png")
            with tempfile.TemporaryDirectory() as place:
                _take(browser, Path(place), theme, picture)
            print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size / 1024:.0f} KiB")
        browser.close()


def _take(browser, place, theme, picture):
    served, home = place / "served", place / "home"
    served.mkdir()
    home.mkdir()
    source = (ROOT / "notebooks" / NOTEBOOK).read_text()
    (served / NOTEBOOK).write_text(source.replace("step=worst)", f"step=worst, theme='{theme}')"))
    with serve(served, home, dark=theme == "dark") as server:
        lab = Lab(browser, server, size=SIZE)
        lab.open(NOTEBOOK)
        lab.run_all()
        lab.page.evaluate("() => jupyterapp.commands.execute('application:toggle-left-area')")
        view = lab.page.locator(".bfcviz-dashboard").nth(1)
        step = lab.python("real.step")
        view.locator(f".bfcviz-words:has-text('step {step:,} of')").wait_for()
        plot = view.locator(".js-plotly-plot")
        plot.locator(".cartesianlayer .subplot").nth(4).wait_for(state="attached")
        view.scroll_into_view_if_needed()
        lab.page.wait_for_function(
            "([plot, view]) => Math.abs(plot.querySelector('.main-svg').getBoundingClientRect().width"
            " - view.getBoundingClientRect().width) < 40",
            arg=[plot.element_handle(), view.element_handle()],
        )
        view.screenshot(path=picture)
        lab.close()


if __name__ == "__main__":
    main()

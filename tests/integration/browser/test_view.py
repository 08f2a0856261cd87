"""`bfcviz view` in a real page: it shows the dashboard of a file to clients with the token, and leaves nothing."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from integration.browser.lab import PAGE_LIMIT_MS, WIDGET_LATE, _environment, watched_page
from processes import children_of

import bfcviz

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

LIMIT_S = 150
HOSTILE = "x'); import os; os.abort() #\n\"<img src=x onerror=alert(1)>{{ 1 % 0 }}.xplane.pb.gz"
"""A file's name that wants to be Python, HTML and a template."""


APART = """() => {
  const box = (each) => each.getBoundingClientRect();
  const ticks = [...document.querySelectorAll(".js-plotly-plot .xtick text")].map(box).filter((each) => each.width);
  const sides = [...document.querySelectorAll(".bfcviz-side *")].map(box).filter((each) => each.width);
  const touch = (one, other) =>
    one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
  const [above, list] = [".head", "table"].map((each) => box(document.querySelector(`.bfcviz-holders ${each}`)));
  if (above.bottom > list.top + 1) return false;
  const plot = box(document.querySelector(".js-plotly-plot .main-svg"));
  return ticks.length > 5 && ticks.every((one) => one.right <= plot.right && !sides.some((other) => touch(one, other)));
}"""
"""No tick is clipped at the right, or reaches into the pane beside the map; nor what is above the list."""


FOLLOWED = """() => {
  const drawn = document.querySelector(".bfcviz-figure").dataset.bfcvizStep;
  const { data } = document.querySelector(".js-plotly-plot");
  const hovers = data.some((each) => each.xaxis === "x" && each.mode === "none" && each.x.length > 100);
  const named = document.querySelector(".bfcviz-step-line [data-bfcviz-step]").dataset.bfcvizStep;
  return Number(drawn) >= 2 && drawn === named && hovers;
}"""
"""The view went on, and everything has followed: an image of the map alone has no hover texts."""


PRINTED = """() => {
  const dashboard = document.querySelector(".bfcviz-dashboard");
  let cutting = 0;
  for (let each = dashboard.parentElement; each; each = each.parentElement)
    cutting += getComputedStyle(each).overflow !== "visible";
  const { display } = getComputedStyle(dashboard.querySelector(".bfcviz-toolbar"));
  return [getComputedStyle(dashboard).filter.split("(")[0], cutting, display];
}"""
"""What inverts the dark colours on paper, how many elements around the dashboard cut it, and how its toolbar shows."""


class Viewer:
    """A running `bfcviz view`.

    Attributes:
        server: where it listens.
        token: what it asks for.
        process: the server.
        temporary: the only folder it may leave files in.
    """

    def __init__(self, folder, *options):
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        file = folder / HOSTILE
        file.write_bytes(bfcviz.sample("lstm").read_bytes())
        self.log = folder / "log"
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bfcviz", "view", str(file), "--no-browser", *options],
                env=_environment(folder) | {"TMPDIR": str(self.temporary)},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                cwd=folder,
            )
        self.server, self.token = self._address()

    def _address(self):
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until and self.process.poll() is None:
            if found := re.search(r"(http://127\.0\.0\.1:\d+/)\?token=(\w{32})\n", self.log.read_text()):
                return found.groups()
            time.sleep(0.05)  # between two looks, not in place of one
        return pytest.fail(f"no address was printed:\n{self.log.read_text()}")

    def end(self):
        """Ctrl-C; returns the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=LIMIT_S)


@pytest.fixture
def viewer(tmp_path):
    started = Viewer(tmp_path, "--theme", "dark")
    yield started
    if started.process.poll() is None:
        started.process.terminate()
        started.process.wait(timeout=LIMIT_S)


@pytest.fixture
def page(browser, viewer):
    """A page; fails at the end if it requested anything but from the server, or had an error."""
    page, outside, errors = watched_page(browser, viewer.server)
    page.set_viewport_size({"width": 1500, "height": 1400})
    page.set_default_timeout(PAGE_LIMIT_MS)
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    yield page
    page.close()
    assert outside == []
    assert [error for error in errors if error != WIDGET_LATE] == []


def a_first_screen_is_there_before_the_kernel_and_gives_way_to_the_figures(page):
    first = page.locator("#bfcviz-first-screen")
    first.locator(".bfcviz-card .bfcviz-dark > svg").nth(1).wait_for()  # the map, and the timeline
    assert not first.locator(".bfcviz-card .bfcviz-light > svg").first.is_visible()
    assert first.locator(".headline").inner_text()
    assert first.locator(".holders tbody tr").count() > 0
    assert page.locator(".js-plotly-plot").count() == 0
    page.locator(".js-plotly-plot .main-svg").first.wait_for(state="attached")
    first.wait_for(state="detached")
    assert page.locator(".bfcviz-dashboard").is_visible()


def it_prints_whole_and_light(page):
    page.emulate_media(media="print")
    assert page.evaluate(PRINTED) == ["invert", 0, "none"]
    page.emulate_media(media="screen")


def test_the_page_shows_the_dashboard_and_ctrl_c_leaves_nothing(viewer, page):
    refused = page.goto(f"{viewer.server}?token=wrong")
    assert refused.url.startswith(f"{viewer.server}login")
    assert page.locator(".js-plotly-plot").count() == 0
    assert len([*viewer.temporary.rglob("kernel-*.json")]) <= 1  # that one which waits for a page

    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{viewer.server}?token={viewer.token}", wait_until="commit")
    a_first_screen_is_there_before_the_kernel_and_gives_way_to_the_figures(page)
    assert [url for url in asked if url.endswith(".voila.js")] == []  # all came in one script
    same = "async () => (await Promise.all(bfcvizPlotly.values())).map((each) => each === Plotly)"
    assert page.evaluate(same) == [True]  # plotly was evaluated once
    view = page.locator(".bfcviz-dashboard")
    view.locator(".bfcviz-step-line:has-text(' of 32,001')").wait_for()  # at its fullest
    assert view.locator(".bfcviz-step-line:has-text('step 0 of')").count() == 0
    view.locator(".js-plotly-plot .cartesianlayer .subplot").nth(2).wait_for(state="attached")
    for width in (900, 1500):
        page.set_viewport_size({"width": width, "height": 1400})
        page.wait_for_function(APART)
    page.keyboard.press("Home")  # nothing was clicked: the page has the keys from the start
    view.locator(".bfcviz-step-line:has-text('step 0 of 32,001')").wait_for()
    page.keyboard.press("ArrowRight")
    view.locator(".bfcviz-step-line:has-text('step 1 of 32,001')").wait_for()
    for _ in range(9):  # a key that is held
        page.keyboard.down("ArrowRight")
    page.keyboard.up("ArrowRight")
    page.wait_for_function(FOLLOWED)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    view.locator(".bfcviz-step-line:has-text('step 1 of 32,001')").wait_for()
    page.mouse.click(5, 1380)  # beside the dashboard
    page.keyboard.press("ArrowLeft")
    view.locator(".bfcviz-step-line:has-text('step 0 of 32,001')").wait_for()
    view.locator(".bfcviz-last").click()
    view.locator(".bfcviz-step-line:has-text('step 32,001 of')").wait_for()
    assert page.locator("body").get_attribute("data-jp-theme-light") == "false"
    of = "(query) => getComputedStyle(document.querySelector(query)).backgroundColor"
    assert page.evaluate(of, "#rendered_cells") == page.evaluate(of, ".js-plotly-plot .main-svg")
    it_prints_whole_and_light(page)
    assert "bfcviz.cli" not in page.content()
    page.wait_for_function(
        "() => [...document.fonts].some(f => f.family.includes('Awesome') && f.status === 'loaded')"
    )

    kernels = children_of(viewer.process.pid)
    assert len(kernels) == 1
    page.goto("about:blank")  # a page that is left ends its kernel
    until = time.monotonic() + LIMIT_S
    while Path(f"/proc/{kernels[0]}").exists() and time.monotonic() < until:
        time.sleep(0.05)  # between two looks
    assert children_of(viewer.process.pid) == []
    assert viewer.end() == 0
    assert not any(Path(f"/proc/{kernel}").exists() for kernel in kernels)
    assert list(viewer.temporary.iterdir()) == []
    assert "Traceback" not in viewer.log.read_text()


QUICK = """const wait = setTimeout;
setTimeout = (react, ms, ...rest) => wait(react, ms === 15000 ? 300 : ms, ...rest);"""
"""A page that does not wait 15 s for a silent kernel."""


def test_a_page_that_hears_nothing_of_its_kernel_loads_itself_again(viewer, page):
    connections = []

    def connect(socket):
        connections.append(socket)
        if len(connections) > 1:  # the first one is never answered
            socket.connect_to_server()

    page.add_init_script(QUICK)
    page.route_web_socket(re.compile("channels"), connect)
    page.goto(f"{viewer.server}?token={viewer.token}")
    page.wait_for_selector(".bfcviz-dashboard .main-svg")
    assert len(connections) > 1
    assert page.evaluate('performance.getEntriesByType("navigation")[0].type') == "reload"
    viewer.end()


def test_a_page_whose_server_or_script_is_gone_says_so(viewer, browser):
    address = f"{viewer.server}?token={viewer.token}"
    told = "#bfcviz-first-screen [role=alert]"
    page, _, _ = watched_page(browser, viewer.server)
    page.set_default_timeout(PAGE_LIMIT_MS)
    page.goto(address)
    page.locator(".js-plotly-plot .main-svg").first.wait_for(state="attached")

    other, _, _ = watched_page(browser, viewer.server)
    other.set_default_timeout(PAGE_LIMIT_MS)
    whole = other.request.get(address).text()
    begin, *_ = whole.partition('<script id="jupyter-config-data"')
    other.route(address, lambda route: route.fulfill(body=begin, content_type="text/html"))
    other.goto(address)
    other.locator(f"{told}:has-text('the server ended')").wait_for()
    other.route(address, lambda route: route.fulfill(body=whole, content_type="text/html"))
    other.route("**/bfcviz/*.js", lambda route: route.abort())
    other.goto(address)
    other.locator(f"{told}:has-text('.js did not load')").wait_for()
    other.route("**/bfcviz/*.js", lambda _: None)  # it never comes
    other.clock.install()
    other.goto(address, wait_until="commit")
    again = other.locator("#bfcviz-first-screen [role=status] a")
    assert again.count() == 0
    other.clock.fast_forward(31_000)
    again.wait_for()
    assert again.evaluate("link => link.href") == other.url
    other.close()

    assert page.locator(".bfcviz-dead").count() == 0
    assert viewer.end() == 0
    page.locator(".bfcviz-dead:has-text('has lost its server')").wait_for()
    page.close()

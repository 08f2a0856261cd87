"""A dashboard in a page: user actions on it, and what the page shows; each action waits for a condition."""

from contextlib import contextmanager

import nbformat

_SHOWS = """([view, step, words]) => view.querySelector('.bfcviz-step-line')?.textContent.includes(words)
  && view.querySelector('.js-plotly-plot')?.data?.filter(t => t.name === 'this step' && t.visible === true
    && t.mode === 'lines' && t.x.length === 2).every(t => t.x[0] === step)"""

_STATE = """view => JSON.stringify({
  dashboards: document.querySelectorAll('.bfcviz-dashboard').length,
  header: view.querySelector('.bfcviz-step-line')?.textContent,
  figure: view.querySelector('.bfcviz-figure')?.dataset.bfcvizStep,
  download: view.querySelector('.bfcviz-download')?.textContent,
  sentences: [...view.querySelectorAll('.bfcviz-late, .bfcviz-figure-sentence, .bfcviz-dead')].map(e => e.textContent),
  lines: view.querySelector('.js-plotly-plot')?.data?.filter(t => t.name === 'this step').map(t => [t.visible, ...t.x]),
})"""


def write_notebook(path, *cells):
    """A notebook of these code cells."""
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(notebook, path)


class Board:
    """The dashboard `name` in the notebook; `number`: its index in the page."""

    def __init__(self, lab, name, number=0):
        self.lab, self.name, self.page = lab, name, lab.page
        self.view = lab.page.locator(".bfcviz-dashboard").nth(number)

    def wait_until_drawn(self):
        self.view.locator(".js-plotly-plot .nsewdrag").first.wait_for(state="attached")
        self.wait_for_step(self.step())
        return self

    def get(self, expression):
        """The value of an attribute, or of any expression after the name, in Python."""
        return self.lab.python(f"{self.name}.{expression}")

    def set(self, **traits):
        for name, value in traits.items():
            self.lab.python(f"setattr({self.name}, {name!r}, {value!r})")

    def step(self):
        return self.get("step")

    def go_to(self, step):
        """Set the step in Python, and wait until text and figure show it."""
        self.set(step=step)
        self.wait_for_step(step)

    def wait_for_step(self, step):
        """Wait until text and figure show it."""
        with self._state_if_late(f"waited for step {step}"):
            self.page.wait_for_function(_SHOWS, arg=[self.view.element_handle(), step, f"step {step:,} of"])

    @contextmanager
    def _state_if_late(self, doing):
        """An error that something took too long also says what the page and Python show."""
        from playwright.sync_api import TimeoutError as TookTooLong  # noqa: PLC0415  slow to import

        try:
            yield
        except TookTooLong as error:
            state = self.view.evaluate(_STATE)
            raise TookTooLong(f"{error} {doing}, Python is at {self.step()}: {state}") from error

    def plot(self):
        return self.view.locator(".js-plotly-plot").element_handle()

    def words(self):
        return self.view.locator(".bfcviz-step-line").inner_text()

    def chunk(self):
        return self.view.locator(".bfcviz-chunk").inner_text()

    def press(self, button):
        with self._state_if_late(f"pressed {button}"):
            self.view.locator(f".bfcviz-{button}").click()

    def key(self, key):
        """As when the dashboard has the focus."""
        self.view.focus()
        self.page.keyboard.press(key)

    def number(self, panel):
        """The number of the axes of the panel of this name."""
        return self.lab.python(f"list({self.name}.view.panels).index({panel!r}) + 1")

    def area(self, panel):
        """The box of the plot of the panel of this name: x, y, width, height in pixels of the page."""
        box = self.view.locator(f".js-plotly-plot .nsewdrag[data-subplot={subplot(self.number(panel))!r}]")
        box.scroll_into_view_if_needed()
        found = box.bounding_box()
        return found["x"], found["y"], found["width"], found["height"]

    def at(self, panel, across, down):
        """A point in a panel's plot, in shares of its width and height."""
        x, y, width, height = self.area(panel)
        return x + across * width, y + down * height

    def drag(self, panel, start, end):
        """Drag the mouse from one point of a panel to another, which zooms to the box between them."""
        self.page.mouse.move(*self.at(panel, *start))
        self.page.mouse.down()
        self.page.mouse.move(*self.at(panel, *end), steps=5)
        self.page.mouse.up()

    def trace(self, name, field):
        """A field of the first visible trace of this name."""
        return self.page.evaluate(
            "([plot, name, field]) => { const t = plot.data.find(t => t.name === name && t.visible !== false);"
            "return t === undefined ? null : Array.from(t[field], x => Number.isNaN(x) ? null : x); }",
            [self.plot(), name, field],
        )

    def wait_for(self, condition, *arguments):
        """Wait until a JavaScript condition on the plot and the arguments holds."""
        self.page.wait_for_function(f"([plot, ...args]) => {{ {condition} }}", arg=[self.plot(), *arguments])

    def drawing(self, name):
        """The SVG path of a trace in the page."""
        return self.page.evaluate(
            "([plot, name]) => {"
            "const index = plot.data.findIndex(t => t.name === name && t.visible !== false);"
            "const uid = plot._fullData[index].uid;"
            "return [...plot.querySelectorAll(`.trace${uid} path`)].map(p => p.getAttribute('d')).join(' ');}",
            [self.plot(), name],
        )


def subplot(panel):
    """3 -> x3y3"""
    suffix = "" if panel == 1 else str(panel)
    return f"x{suffix}y{suffix}"

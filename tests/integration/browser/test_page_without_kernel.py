"""The page without a kernel: its heap against the model, its answers against ours, and what a reader does on it."""

import random
from dataclasses import asdict

import numpy as np
import pytest
from conformance import compare
from heap_strategies import operations, run
from heaps import model_of
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import SHARED, needs_shared, sample_trace
from unit.figures.synthetic import KiB, PlainHeap, busy_trace

import bfcviz
from bfcviz.analysis.chunk_life import life_of, merge_words, next_user, source_words
from bfcviz.analysis.what_grew import what_grew
from bfcviz.analysis.would_fit import fit_of, in_the_way
from bfcviz.cli import main
from bfcviz.events.label_table import Labels
from bfcviz.exporters.interactive_page import heap_events, packed_heap, page_modules, save_page
from bfcviz.figures.theme import LIGHT, rgb
from bfcviz.model import Model
from bfcviz.model.filters import found_by
from bfcviz.model.grouping import grouping
from bfcviz.units import format_bytes

pytestmark = pytest.mark.browser

CHUNK = ("address", "size", "requested", "born", "handle", "label", "thread", "stream", "region", "in_use")
BINS = ("free_bytes", "free_chunks", "in_use_bytes", "in_use_chunks")

READ = """({heap, steps}) => Heap.read(heap).then((read) => steps.map((step) => {
    read.seek(read.place_of(step));
    return state_of(read);
}))"""

STATE = """
globalThis.state_of = (heap) => {
    const { chunks, handles } = heap;
    const names = ["address", "size", "requested", "born", "handle", "label", "thread", "stream", "region"];
    const value = (name, chunk) => (name === "handle" ? handles[chunk] : chunks[name][chunk]);
    return {
        chunks: [...heap.by_address()].map((each) => [
            ...names.map((name) => value(name, each)), chunks.state[each] === IN_USE]),
        regions: heap.regions_by_address().map(({ address, size, slot }) => [address, size, slot]),
        bins: heap.bins(),
        stats: heap.stats(),
    };
};
Object.assign(globalThis, { Heap });
"""


def state_of(model):
    stats = asdict(model.stats())
    stats.pop("bytes_limit")
    bins = model.bins()
    return {
        "chunks": [list(chunk) for chunk in model.chunks()[list(CHUNK)].tolist()],
        "regions": [list(region) for region in model.regions().tolist()],
        "bins": {name: bins[name].tolist() for name in BINS},
        "stats": stats,
    }


def check_states(page, trace, pool, first, steps):
    """The page's heap is that of the model at each of the steps, in this order."""
    model = Model(trace, pool)
    sent = {"heap": packed_heap(model, heap_events(trace, pool, first, len(trace)), first), "steps": steps}
    for step, found in zip(steps, page.evaluate(READ, sent), strict=True):
        model.seek(step)
        assert found == state_of(model), step


@pytest.fixture(scope="module")
def scripts(browser):
    """An empty page with the scripts."""
    page = browser.new_page()
    page.add_script_tag(content=page_modules() + STATE, type="module")
    page.wait_for_function("Boolean(globalThis.Heap)")
    yield page
    page.close()


@settings(max_examples=25)
@given(operations(), st.lists(st.integers(0, 10_000), max_size=12), st.integers(0, 10_000))
def test_the_heap_of_the_page_is_that_of_the_model(scripts, actions, places, begin):
    trace = run(actions).trace()
    first = begin % (len(trace) + 1) if begin % 2 else 0
    every = list(range(first, len(trace) + 1))
    steps = [*every, *reversed(every), *(first + place % len(every) for place in places)]
    for pool in range(2):
        check_states(scripts, trace, pool, first, steps)


@needs_shared
@pytest.mark.parametrize("name", ["10_gc_growth", "24_churn_200k_off"])
def test_the_heap_of_the_page_follows_tensorflows_own_traces(scripts, name):
    golden = compare.Trace(SHARED / "golden" / f"{name}.npz", 3000)
    golden.run()
    trace = model_of(golden.allocator).trace
    steps = random.Random(1).choices(range(len(trace) + 1), k=20)
    check_states(scripts, trace, 0, 0, [0, len(trace), *steps])


# -- the page itself ------------------------------------------------------------------------------------------------

EVIL = '</script><script>globalThis.evil = 1</script><img src=x onerror="globalThis.evil = 1">'


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return busy_trace(1500).save(tmp_path_factory.mktemp("page") / "busy.parquet")


@pytest.fixture(scope="module")
def tab(browser):
    """A page for one file after the other, and what went wrong on it."""
    page, wrong = browser.new_page(viewport={"width": 1400, "height": 1000}), []
    page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: request.url.startswith("http") and wrong.append(request.url))
    yield page, wrong
    page.close()


@pytest.fixture
def opened(tab):
    """Opens a page from a file; nothing on it may fail, or ask for something."""
    page, wrong = tab
    wrong.clear()

    def open_page(path):
        page.goto(path.as_uri())
        page.wait_for_selector("#app[data-ready]")
        return page

    yield open_page
    page.goto("about:blank")
    assert wrong == []


def told(page, step):
    """Wait until the page shows a step, and all that follows it."""
    page.wait_for_function(
        "(step) => document.getElementById('told').textContent.startsWith(step)", arg=f"Step {step:,}:"
    )


def test_a_reader_steps_searches_and_asks_on_the_page(file, opened, tmp_path):
    path = tmp_path / "page.html"
    assert main(["report", "--interactive", str(file), "-o", str(path)]) == 0
    page, model = opened(path), Model(bfcviz.open(file))
    told(page, len(model.trace))  # its last event is a failed request
    page.keyboard.press("ArrowLeft")
    told(page, len(model.trace) - 1)
    page.keyboard.press("Home")
    told(page, 0)
    page.fill("#step", "700")
    page.keyboard.press("Enter")
    told(page, 700)
    model.seek(700)
    assert page.evaluate("bfcviz.heap.stats().bytes_in_use") == model.stats().bytes_in_use

    chunks = model.chunks()
    used = chunks[chunks["in_use"]]
    large = used[used["size"] > 1 << 12]
    name = model.trace.labels.name(int(large[0]["label"]))
    size = int(large[0]["size"])
    for text in (">4KiB", f"<{size}", f"<={size}", f">={size}", f"={size}", name, f"{name} >4 KiB"):
        page.fill("#search", text)
        matching = np.count_nonzero(found_by(model.trace.labels, text)(used))
        assert page.inner_text("#hits").startswith(f"{matching:,} chunk"), text

    for size in (256, 5000, int(model.stats().largest_free_chunk) + 1, 1 << 40):
        page.fill("#fit", str(size))
        answer = fit_of(model, size)
        found = page.evaluate(
            "({takers: bfcviz.fit.takers.length, miss: bfcviz.fit.miss, grows: bfcviz.fit.grows})"
        )
        assert (found["takers"], found["grows"]) == (len(answer.takers), answer.grows)
        if answer.miss is not None:
            assert (found["miss"]["address"], found["miss"]["size"]) == (
                answer.miss.address,
                answer.miss.size,
            )
            if found["grows"]:
                way = in_the_way(answer, model.trace.labels)[0]
                assert f"In the way in the pool as it is: {way.name} (" in page.inner_text("#answer")

    box = page.locator("#canvas").bounding_box()
    page.mouse.click(box["x"] + 0.2 * box["width"], box["y"] + 0.5 * box["height"])
    chosen = page.evaluate("bfcviz.selected.address")
    assert chosen in chunks["address"]
    assert page.inner_text("#pane").find(hex(chosen)) > 0
    page.select_option("#colour", "size")
    page.click("#theme")
    picture = page.locator("#stats .main-svg").first
    wide, high = picture.get_attribute("width"), page.locator("#stats").bounding_box()["height"]
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(media="print")
    page.wait_for_selector(":root[data-theme=light]")
    page.set_viewport_size({"width": 760, "height": 1000})
    page.wait_for_selector(f"#stats .main-svg:not([width='{wide}'])")
    assert page.locator("#stats").bounding_box()["height"] == high
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.wait_for_selector(":root[data-theme=dark]")


def test_what_grew_between_two_moments_is_what_the_model_says(file, opened, tmp_path):
    trace = bfcviz.open(file)
    page, model = opened(save_page(trace, tmp_path / "grew.html")), Model(trace)
    names = ("grew", "new", "gone", "never_freed")
    for by in page.evaluate("bfcviz.data.groupings.map(({ name }) => name)"):
        page.select_option("#by", by)
        for first, last in ((0, 700), (300, 301), (300, 900), (700, len(trace))):
            model.seek(last)
            answer = what_grew(model, first, grouping(trace, 0, by))
            told = page.evaluate(
                """([first, last]) => { bfcviz.since = first; bfcviz.go(last); bfcviz.draw_all();
                return document.getElementById("growth").textContent; }""",
                [first, last],
            )
            assert told.startswith(answer.sentence)
            found = page.evaluate(
                """([first, last]) => bfcviz.growth_of(first, last).map((row) =>
                [row.path, row.grew, row.new, row.gone, row.never_freed])""",
                [first, last],
            )
            rows = answer.rows[list(names)].tolist()
            assert sorted(found) == sorted([name, *row] for name, row in zip(answer.names, rows, strict=True))
            assert page.evaluate("[bfcviz.step, bfcviz.heap.stats().bytes_in_use]") == [
                last,
                model.stats().bytes_in_use,
            ]
    page.click("#grew")
    assert (page.inner_text("#growth"), page.evaluate("bfcviz.since")) == ("", None)

    page.evaluate("bfcviz.go(900)")
    page.click("#grew")  # from the begin of the history to the step shown
    told_growth = "(words) => document.getElementById('growth').textContent.includes(words)"
    page.wait_for_function(told_growth, arg="from step 0 to 900:")
    page.locator("#stats").scroll_into_view_if_needed()
    box = page.locator("#stats .nsewdrag").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.25 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=5)
    page.mouse.up()
    page.wait_for_function("() => bfcviz.since > 0")
    first, last = page.evaluate("[bfcviz.since, bfcviz.step]")
    assert 0.2 * len(trace) < first < 0.3 * len(trace) < 0.45 * len(trace) < last < 0.55 * len(trace)
    page.wait_for_function(told_growth, arg=f"from step {first:,} to {last:,}:")


def test_the_pane_tells_where_a_chunk_came_from_and_who_follows(file, opened, tmp_path):
    trace = bfcviz.open(file)
    page, model = opened(save_page(trace, tmp_path / "lives.html")), Model(trace)
    page.evaluate("bfcviz.go(700); bfcviz.draw_all()")
    model.seek(700)
    seen = set()
    for chunk in model.in_use():
        life = life_of(model, int(chunk["address"]), int(chunk["born"]))
        history = page.evaluate(
            """(address) => { const chunk = [...bfcviz.heap.by_address()].find((each) =>
            bfcviz.heap.chunks.address[each] === address); bfcviz.choose(chunk);
            return Object.fromEntries(bfcviz.selected.history); }""",
            int(chunk["address"]),
        )
        expected = {"from": source_words(life).rstrip(".").partition("; the pool grew")[0] + "."}
        if life.ended is not None:
            expected["then"] = merge_words(life, life.ended).partition(", now in bin")[0]
            follower = next_user(life)
            if follower is not None:
                name = trace.labels.name(int(follower["label"])) or "no label"
                expected["next here"] = f"{name}, {format_bytes(int(follower['size']))}"
        assert history == expected
        assert expected["from"] in page.inner_text("#pane")
        seen |= set(expected)
    assert seen == {"from", "then", "next here"}


def test_a_search_marks_the_holders_that_it_finds(file, opened, tmp_path):
    trace = bfcviz.open(file)
    page, model = opened(save_page(trace, tmp_path / "marked.html")), Model(trace)
    page.evaluate("bfcviz.go(700); bfcviz.draw_all()")
    model.seek(700)
    used = model.in_use()
    name = trace.labels.name(int(used[used["size"].argmax()]["label"]))
    page.select_option("#by", "op")
    page.fill("#search", name)
    marked = page.locator("#holders .found button").all_inner_texts()
    assert name in marked
    assert all(name in each for each in marked)
    least = int(used["size"].max())
    page.fill("#search", f"{name} >={least}")
    assert page.inner_text("#hits") == f"1 chunk, {format_bytes(least)}"
    page.fill("#search", f"{name} >{least}")
    assert page.inner_text("#hits") == "0 chunks, 0 B"
    page.fill("#search", "")
    assert page.locator("#holders .found").count() == 0


def test_the_keys_choose_a_chunk_where_the_map_has_the_focus_and_step_elsewhere(file, opened, tmp_path):
    page, model = opened(save_page(bfcviz.open(file), tmp_path / "keys.html")), Model(bfcviz.open(file))
    page.evaluate("bfcviz.go(700)")
    told(page, 700)
    model.seek(700)
    chunks = model.chunks()
    page.focus("#canvas")
    place = page.evaluate("bfcviz.map.chunk_of(bfcviz.cursor) === bfcviz.heap.by_address()[0]")
    assert place  # the first one on screen
    for key, at in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        page.keyboard.press(key)
        address, size = (int(chunks[at][name]) for name in ("address", "size"))
        assert address <= page.evaluate("bfcviz.cursor") < address + size
        assert page.inner_text("#told").startswith(
            model.trace.labels.name(int(chunks[at]["label"])) or "free"
        )
    sorts = page.evaluate(
        """() => { // a mouse over the map does not read the chunks at each move
        const { heap, map } = bfcviz;
        const [{ width, height }, order] = [map.view, heap.by_address()];
        const found = Array.from({ length: 500 }, (_, at) => map.chunk_at((37 * at) % width, (17 * at) % height));
        return [new Set(found).size > 1, heap.by_address() === order]; }"""
    )
    assert sorts == [True, True]
    row = page.evaluate("bfcviz.map.place_of(bfcviz.cursor)[0]")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("bfcviz.map.place_of(bfcviz.cursor)[0]") > row
    assert page.evaluate("bfcviz.step") == 700
    pointed = page.evaluate("bfcviz.heap.chunks.address[bfcviz.map.chunk_of(bfcviz.cursor)]")
    page.keyboard.press("Enter")
    assert page.evaluate("bfcviz.selected.address") == pointed
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Space")
    assert page.evaluate("bfcviz.selected.address") != pointed
    page.keyboard.press("Escape")
    assert page.evaluate("[bfcviz.cursor, document.activeElement === document.body]") == [None, True]
    assert page.evaluate("bfcviz.selected !== null")
    page.keyboard.press("ArrowRight")
    told(page, 701)
    box = page.locator("#canvas").bounding_box()
    page.mouse.click(box["x"] + 0.2 * box["width"], box["y"] + 0.5 * box["height"])
    page.keyboard.press("ArrowLeft")  # a click does not give the map the focus
    told(page, 700)


def test_a_zoomed_map_follows_the_keys(file, opened, tmp_path):
    page = opened(save_page(bfcviz.open(file), tmp_path / "zoomed.html"))
    window = (
        "bfcviz.plotly.relayout('map-plot', {'xaxis.range': [0, bfcviz.map.rows.width / bfcviz.divisor / 9]})"
    )
    page.evaluate(window)
    page.focus("#canvas")
    seen = "(([, at]) => { const { left, right } = bfcviz.view(); return [left, at - left, right - at]; })"
    here = f"{seen}(bfcviz.map.place_of(bfcviz.cursor))"
    while page.evaluate(here)[0] == 0:
        page.keyboard.press("ArrowRight")
        assert min(page.evaluate(here)) >= 0


LIT = """(colour) => {
  const { canvas } = bfcviz.map;
  const context = canvas.getContext("2d");
  const ratio = canvas.width / bfcviz.map.view.width;
  return bfcviz.hits.map((chunk) => {
    const [row, offset] = bfcviz.map.place_of(bfcviz.map.middle_of(chunk));
    const [x, y, wide, high] = bfcviz.map.box(row, offset, offset);
    const { data } = context.getImageData(Math.floor(x * ratio), Math.floor((y + high / 2) * ratio) - 1, 1, 3);
    return [0, 4, 8].some((begin) => colour.every((part, at) => Math.abs(data[begin + at] - part) < 3));
  });
}"""
"""Of each match of the search, whether a pixel in its middle has a colour: several rows share one."""


def test_all_matches_light_up_in_rows_too_low_to_outline_them(opened, tmp_path):
    heap = PlainHeap(256 * KiB, regions=1000, gap=4 * KiB)
    for number in range(4000):
        heap.allocate(64 * KiB, "needle" if number % 8 == 0 else "hay")
    page = opened(save_page(heap.trace(), tmp_path / "many.html"))
    page.fill("#search", "needle")
    found = page.evaluate(LIT, list(rgb(LIGHT.search)))
    assert found == [True] * 500


def test_labels_and_names_of_files_stay_text(opened, tmp_path):
    labels = Labels()
    trace = busy_trace(60)
    events = trace.read(0, len(trace)).copy()
    events["label"][events["label"] > 0] = labels.intern(EVIL, stack=f"{EVIL} (train.py:7)", shape=EVIL)
    trace = bfcviz.Trace.from_events(events, labels, trace.origin)
    page = opened(save_page(trace, tmp_path / "evil.html"))
    page.fill("#search", "onerror")
    page.evaluate("bfcviz.choose(bfcviz.hits[0]); bfcviz.hover(30, 30)")
    assert EVIL in page.inner_text("#pane")
    assert page.evaluate("globalThis.evil") is None


def test_a_failed_request_leads_and_the_page_begins_there(opened, tmp_path):
    trace = sample_trace("oom_log")
    page = opened(save_page(trace, tmp_path / "oom.html"))
    assert page.evaluate("bfcviz.step") == bfcviz.why(trace).step + 1
    assert page.inner_text("#shown") == "failure"
    model = Model(trace)
    model.seek(page.evaluate("bfcviz.step"))
    answer = fit_of(model, bfcviz.why(trace).requested)  # of the request that failed
    assert page.evaluate("[bfcviz.fit.grows, bfcviz.fit.miss.address, bfcviz.fit.miss.size]") == [
        False,
        answer.miss.address,
        answer.miss.size,
    ]
    asked = format_bytes(bfcviz.why(trace).requested)  # not as the heap rounds it: the same digits everywhere
    assert page.inner_text("#answer").startswith(f"{asked} would not fit")
    page.wait_for_function(
        "text => document.getElementById('ladder').textContent.includes(text)", arg=f"asked: {asked}"
    )
    assert page.inner_text("#holders tr:first-child").startswith("chunks of 424.0 KiB")  # no chunk has a name


@pytest.mark.parametrize(("name", "asked"), [("oom_log", False), ("oom_dump", True)])
def test_numbers_that_the_file_does_not_have_are_unknown(opened, tmp_path, name, asked):
    page = opened(save_page(sample_trace(name), tmp_path / "state.html"))
    lines = page.evaluate(
        """() => { const chunk = [...bfcviz.heap.by_address()].find((each) => bfcviz.heap.chunks.requested[each]);
        bfcviz.choose(chunk); return bfcviz.chunk_lines(chunk).join("; "); }"""
    )
    assert "thread unknown, stream unknown" in lines
    assert ("requested unknown" in lines) != asked
    pane = page.inner_text("#pane")
    assert "unknown, unknown" in pane
    assert "steps ago" not in lines
    assert "at step" not in lines + pane


NAMES_BESIDE_ROWS = "[...document.querySelectorAll('#map-plot .ytick')].map((each) => each.textContent)"


def test_many_regions_are_named_by_their_size(opened, tmp_path):
    heap = PlainHeap(256 * KiB, regions=1000, gap=4 * KiB)
    for _ in range(1000):
        heap.allocate(256 * KiB, "hay")
    page = opened(save_page(heap.trace(), tmp_path / "many.html"))
    assert page.evaluate(NAMES_BESIDE_ROWS) == ["1,000 of256 KiB"]  # in two lines


WIDTHS = """() => [document.body, ...document.querySelectorAll("#app .main-svg, #canvas")].map(
  (each) => each.getBoundingClientRect().width)"""


def test_the_figures_fit_on_paper_and_then_the_screen_again(opened, tmp_path):
    page = opened(save_page(sample_trace("oom_log"), tmp_path / "oom.html"))
    before = page.evaluate(WIDTHS)
    page.evaluate(
        "dispatchEvent(new Event('beforeprint'))"
    )  # all is drawn by then, as the browser does not wait
    assert max(page.evaluate(WIDTHS)) <= 700  # A4 and Letter have more
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.wait_for_function(f"before => String(({WIDTHS})()) === before", arg=",".join(map(str, before)))


@needs_shared
def test_a_real_snapshot_is_equal_at_many_steps(opened, tmp_path):
    trace = bfcviz.open(SHARED / "real" / "snapshots" / "torch_cs336_ctx128_fullstep.pickle")
    path = save_page(trace, tmp_path / "cs336.html")
    assert path.stat().st_size < 3_000_000
    page, model = opened(path), Model(trace)
    names = list(CHUNK[:-1])
    for step in random.Random(2).choices(range(len(trace) + 1), k=10):
        model.seek(step)
        found = page.evaluate(
            """([step, names]) => { bfcviz.go(step); const { chunks, handles } = bfcviz.heap;
            return [...bfcviz.heap.by_address()].map((each) => names.map((name) =>
                name === "handle" ? handles[each] : chunks[name][each])); }""",
            [step, names],
        )
        assert found == [list(chunk) for chunk in model.chunks()[names].tolist()]

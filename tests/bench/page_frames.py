"""How many frames a second the page without a kernel draws while a reader moves on it.

    python tests/bench/page_frames.py [FILE ...] [--chunks 75000] [--seconds 4]

A FILE is one that `bfcviz report --interactive` reads. Then comes a heap that is recorded here: `--chunks` chunks are
allocated and a third of them freed. In each frame the page gets one more event of the keyboard, the mouse or the wheel;
headless Chromium has 60 frames a second at most. "Map" is what `draw_map` takes in the median frame, "size" what the
page weighs.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from dashboard_heap import record  # noqa: E402
from first_picture import FLAGS, LIMIT_S  # noqa: E402
from integration.browser.lab import find_browser  # noqa: E402
from playwright.sync_api import Browser, sync_playwright  # noqa: E402

import bfcviz  # noqa: E402
from bfcviz.exporters.interactive_page import save_page  # noqa: E402

MOVES = ("key", "scrub", "zoom", "pan")

MOVE = """([move, seconds]) => new Promise((done) => {
  const map = document.querySelector("#map"), slider = document.querySelector("#slider");
  const plot = map.querySelector(".nsewdrag"), box = plot.getBoundingClientRect();
  const [x, y] = [box.left + 0.4 * box.width, box.top + 0.4 * box.height];
  const draws = [], draw_map = bfcviz.draw_map;
  bfcviz.draw_map = function (...given) {
    const began = performance.now();
    draw_map.apply(this, given);
    draws.push(performance.now() - began);
  };
  const mouse = (type, on, at) => on.dispatchEvent(new MouseEvent(
    type, { clientX: at, clientY: y, buttons: 1, bubbles: true, cancelable: true }));
  const moves = {
    key: () => dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true })),
    scrub: (turn) => {
      const [least, most] = [Number(slider.min), Number(slider.max)];
      slider.value = least + (most - least) * (0.5 + 0.45 * Math.sin(turn / 40));
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    },
    zoom: (turn) => plot.dispatchEvent(new WheelEvent("wheel", {
      deltaY: turn % 120 < 60 ? -40 : 40, ctrlKey: true, clientX: x, clientY: y, bubbles: true, cancelable: true })),
    pan: (turn) => mouse("mousemove", document, x + 100 * Math.sin(turn / 20)),
  };
  if (move === "pan") mouse("mousedown", plot, x);
  let turn = 0;
  const began = performance.now();
  const frame = () => {
    const passed = (performance.now() - began) / 1000;
    if (passed < seconds) {
      moves[move](turn++);
      requestAnimationFrame(frame);
      return;
    }
    if (move === "pan") mouse("mouseup", document, x);
    bfcviz.draw_map = draw_map;
    draws.sort((one, other) => one - other);
    done([Math.min(draws.length, turn) / passed, draws[draws.length >> 1] ?? 0]);
  };
  requestAnimationFrame(frame);
})"""


def frames(browser: Browser, page_file: Path, seconds: float) -> dict[str, tuple[float, float]]:
    """For each move the frames a second in which the map was drawn, and the ms that one took."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(LIMIT_S * 1000)
    page.goto(page_file.as_uri())
    page.locator("#map .nsewdrag").first.wait_for(state="attached")
    page.wait_for_timeout(1000)
    found = {move: tuple(page.evaluate(MOVE, [move, seconds])) for move in MOVES}
    page.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--chunks", type=int, default=75_000)
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    print("| page | chunks | size | " + " | ".join(f"{move}, frames/s (map)" for move in MOVES) + " | load |")
    print("|---|---:|---:|" + "---:|" * (len(MOVES) + 1))
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
        recording = Path(home, "recording")
        record(recording, arguments.chunks, 6 * arguments.chunks)
        for file in [*arguments.files, recording]:
            trace = bfcviz.open(file)
            page_file = Path(save_page(trace, Path(home, "page.html"), overwrite=True))
            model = bfcviz.Model(trace)
            model.seek(len(trace))
            chunks = len(model.chunks())
            size = page_file.stat().st_size / 1e6
            found = frames(browser, page_file, arguments.seconds)
            told = " | ".join(f"{rate:.0f} ({ms:.1f} ms)" for rate, ms in found.values())
            print(
                f"| {file.name} | {chunks:,} | {size:.2f} MB | {told} | {os.getloadavg()[0]:.0f} |",
                flush=True,
            )
        browser.close()


if __name__ == "__main__":
    main()

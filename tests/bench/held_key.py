"""How many figures a second a held arrow key draws in `bfcviz view FILE`, and what they cost the kernel and the page.

    python tests/bench/held_key.py FILE ... [--key ArrowLeft] [--seconds 5]

The page gets a key of a keyboard that repeats 60 times a second. "Figures" are those that were shown, each of a step of
its own, by the page itself or by Python; "server" is the processor time of the server and the kernel.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from first_picture import FLAGS, LIMIT_S, environment, processor_time  # noqa: E402
from integration.browser.lab import find_browser  # noqa: E402
from playwright.sync_api import Browser, sync_playwright  # noqa: E402

HOLD = """([key, seconds]) => new Promise((done) => {
  const root = document.querySelector(".bfcviz-dashboard");
  const [steps, end] = [new Set(), performance.now() + 1000 * seconds];
  const look = () => { // the page shows a copy of the line behind Python's
    steps.add([...root.querySelectorAll(".bfcviz-step-line .widget-html-content")].at(-1).textContent);
    requestAnimationFrame(look);
  };
  look();
  let repeat = false;
  const timer = setInterval(() => {
    root.dispatchEvent(new KeyboardEvent("keydown", { key, repeat, bubbles: true }));
    repeat = true;
    if (performance.now() < end) return;
    clearInterval(timer);
    root.dispatchEvent(new KeyboardEvent("keyup", { key, bubbles: true }));
    done(steps.size);
  }, 16);
})"""


def held(browser: Browser, file: Path, key: str, seconds: float) -> tuple[float, float]:
    """Figures a second, and seconds of processor time of server and kernel for each second."""
    with tempfile.TemporaryDirectory() as home:
        log = Path(home) / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "bfcviz", "view", str(file), "--no-browser"],
                env=environment(home, ROOT),
                stdout=sink,
                stderr=sink,
                cwd=home,
            )
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        try:
            while not (found := re.search(r"http://\S+", log.read_text())):
                assert process.poll() is None, log.read_text()
                time.sleep(0.02)
            page.set_default_timeout(LIMIT_S * 1000)
            page.goto(found[0])
            page.locator(".js-plotly-plot .cartesianlayer .subplot").first.wait_for(state="attached")
            page.wait_for_timeout(3000)
            before, began = processor_time(process.pid), time.monotonic()
            steps = page.evaluate(HOLD, [key, seconds])
            took = time.monotonic() - began
            return steps / took, (processor_time(process.pid) - before) / took
        finally:
            page.close()
            process.send_signal(signal.SIGINT)
            process.wait(timeout=LIMIT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--key", default="ArrowLeft")
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    print("| file | figures/s | server, of a core | load |\n|---|---:|---:|---:|")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
        for file in arguments.files:
            figures, share = held(browser, file.resolve(), arguments.key, arguments.seconds)
            load = os.getloadavg()[0]
            print(f"| {file.name} | {figures:.1f} | {share:.2f} | {load:.0f} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()

"""How long `bfcviz view FILE` takes to its page and to its picture, and where the time goes.

    python tests/bench/first_picture.py [FILE ...] [--runs 5] [--slow 6] [--mbit 10] [--against CHECKOUT]
        [--memory-viz FOLDER --torch PYTHON]

The browser (headless Chromium) is open before the command starts. "Listening" is when the command prints its address,
"first screen" when the browser has painted verdict, numbers, map, timeline and holders ("from the page": since its
request), "complete" when the HTML has ended, "picture" when plotly has drawn every panel. `--slow` slows the page's
processor by a factor, `--mbit` its link, with 40 ms. With `--against` each run is done in turn with another
checkout, which needs compiled modules. The second table has the processor time of what the two processes do, each
measured in a process of its own.

With `--memory-viz` each run is done in turn with PyTorch's viewer, of which nothing is here: FOLDER has its scripts and
`d3.js`, one ES module of the whole of d3; PYTHON has torch. "Listening" is then when `trace_plot` has written the page.
The page and the scripts come compressed from this machine, and "first screen" is its timeline, painted.
"""

import argparse
import gzip
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from integration.browser.lab import find_browser  # noqa: E402
from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

LIMIT_S = 180
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
STAGES = ("listening", "first screen", "from the page", "complete", "picture")
PAINTED = "performance.getEntriesByName('first-contentful-paint').length > 0"
# The browser's own clock: a page that runs scripts at once after the paint answers late.
PAINTED_AT = (
    "(performance.timeOrigin + performance.getEntriesByName('first-contentful-paint')[0].startTime) / 1000"
)
LATENCY_MS = 40
VIEWER = "MemoryViz.js"


def processor_time(pid: int) -> float:
    """Seconds that a process and all its descendants have used; those that ended count with their parents."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) * TICK_S + sum(processor_time(int(child)) for child in children)


def environment(home: str, checkout: Path) -> dict[str, str]:
    """An environment with an empty home, in which Python imports the package of `checkout`."""
    folders = dict.fromkeys(("HOME", "TMPDIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"), home)
    found = {**os.environ, **folders, "PYTHONPATH": str(checkout)}
    found.pop("PYTHONDONTWRITEBYTECODE", None)  # a user has compiled modules
    return found


def slowed(page: Page, slow: float, mbit: float) -> None:
    """Slow the page's processor by a factor, and its link to so many Mbit/s; 0: as it is."""
    protocol = page.context.new_cdp_session(page)
    if slow:
        protocol.send("Emulation.setCPUThrottlingRate", {"rate": slow})
    if mbit:
        rate = mbit * 1e6 / 8
        protocol.send("Network.enable")
        link = {"latency": LATENCY_MS, "downloadThroughput": rate, "uploadThroughput": rate}
        protocol.send("Network.emulateNetworkConditions", {"offline": False, **link})


def first_picture(
    browser: Browser, checkout: Path, file: Path, slow: float = 0, mbit: float = 0
) -> dict[str, float]:
    """Seconds from the start of the command to each stage; and the processor time of its processes."""
    with tempfile.TemporaryDirectory() as home:
        log, began = Path(home) / "log", time.time()
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "bfcviz", "view", str(file), "--no-browser"],
                env=environment(home, checkout),
                stdout=sink,
                stderr=sink,
                cwd=home,
            )
        context = browser.new_context(viewport={"width": 1400, "height": 1000})
        try:
            while not (found := re.search(r"http://\S+", log.read_text())):
                assert process.poll() is None, log.read_text()
                time.sleep(0.005)
            seconds = {"listening": time.time() - began}
            page = context.new_page()
            page.set_default_timeout(LIMIT_S * 1000)
            slowed(page, slow, mbit)
            asked = time.time()
            page.goto(found[0], wait_until="commit")
            page.wait_for_function(PAINTED)
            painted = page.evaluate(PAINTED_AT)
            seconds |= {"first screen": painted - began, "from the page": painted - asked}
            page.wait_for_load_state("domcontentloaded")
            seconds["complete"] = time.time() - began
            page.locator(".js-plotly-plot .cartesianlayer .subplot").first.wait_for(state="attached")
            seconds["picture"] = time.time() - began
            return seconds | {"processor": processor_time(process.pid)}
        finally:
            context.close()
            process.send_signal(signal.SIGINT)
            process.wait(timeout=LIMIT_S)


@contextmanager
def served(files: Mapping[str, bytes]) -> Iterator[str]:
    """Serve these compressed files by their names; gives the address."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = files.get(self.path[1:])
            self.send_response(200 if body else 404)
            kind = "text/javascript" if self.path.endswith(".js") else "text/html"
            headers = {"Content-Type": kind, "Content-Encoding": "gzip", "Content-Length": len(body or b"")}
            for name, value in headers.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *words: object) -> None:
            """Write nothing among the tables."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def page_of_memory_viz(written: str, viewer: str) -> bytes:
    """The page that `trace_plot` has written, with its imports from the network led to `served` files."""
    at = dict.fromkeys(re.findall(rf'from "(https://[^"]*{VIEWER})"', written), f"/{VIEWER}")
    at |= dict.fromkeys(re.findall(r'from "(https://[^"]+)"', viewer), "/d3.js")
    assert at, "trace_plot writes other pages now"
    led = f'<head><script type="importmap">{json.dumps({"imports": at})}</script>'
    return gzip.compress(written.replace("<head>", led, 1).encode())


def memory_viz(
    browser: Browser, folder: Path, python: str, file: Path, *, slow: float = 0, mbit: float = 0
) -> dict[str, float]:
    """As `first_picture`, of PyTorch's viewer; what prepares its page for this machine does not count."""
    with tempfile.TemporaryDirectory() as home:
        command = ["-W", "ignore", "-m", "torch.cuda._memory_viz", "trace_plot"]
        words = [python, *command, str(file), "-o", "page.html"]
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(words, cwd=home, env=own, check=True)
        written, total = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        scripts = {path.name: path.read_bytes() for path in folder.glob("*.js")}
        files = {name: gzip.compress(script) for name, script in scripts.items()}
        files["page.html"] = page_of_memory_viz(Path(home, "page.html").read_text(), scripts[VIEWER].decode())
    with served(files) as address, browser.new_context(viewport={"width": 1400, "height": 1000}) as context:
        page = context.new_page()
        page.set_default_timeout(LIMIT_S * 1000)
        slowed(page, slow, mbit)
        asked = time.monotonic()
        page.goto(f"{address}/page.html", wait_until="commit")
        page.wait_for_function(f"{PAINTED} && document.querySelector('polygon')")
        drawn = time.monotonic() - asked
    whole = written + drawn
    processor = total.ru_utime + total.ru_stime - used.ru_utime - used.ru_stime
    found = {"listening": written, "from the page": drawn, "processor": processor}
    return dict.fromkeys(STAGES, whole) | found


def imports(code: str, checkout: Path) -> tuple[float, Counter[str]]:
    """The ms of importing what `code` imports, and of each top-level package; without the time of compiling."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-X", "importtime", "-c", code]
        for _ in range(2):  # the first one may have to compile modules
            done = subprocess.run(
                command,
                env=environment(home, checkout),
                cwd=home,
                capture_output=True,
                text=True,
                check=True,
            )
    own: Counter[str] = Counter()
    for line in done.stderr.splitlines():
        if found := re.match(r"import time: +(\d+) \| +\d+ \| *(\S+)", line):
            own[found[2].partition(".")[0]] += int(found[1]) / 1000
    return sum(own.values()), own


SERVER = """
import bfcviz.cli.view
try:
    import bfcviz.cli.page_server
except ImportError:
    import bfcviz.cli.page_server  # where it was
"""
KERNEL = "import ipykernel.kernelapp, bfcviz; bfcviz.Inspector"
WHERE = {
    "plotly": ("plotly", "_plotly_utils", "narwhals", "kaleido", "choreographer"),
    "nbformat and jsonschema": (
        *(
            "nbformat",
            "jsonschema",
            "rfc3987_syntax",
            "lark",
            "jsonschema_specifications",
            "referencing",
            "rpds",
        ),
        *(
            "arrow",
            "dateutil",
            "isoduration",
            "fqdn",
            "webcolors",
            "uri_template",
            "rfc3986_validator",
            "fastjsonschema",
        ),
    ),
    "pandas": ("pandas",),
    "IPython, ipykernel, ipywidgets": (
        "IPython",
        "ipykernel",
        "ipywidgets",
        "jupyter_client",
        "debugpy",
        "zmq",
        "jedi",
    ),
    "Voila, Jupyter's server, nbconvert": (
        *("voila", "jupyter_server", "jupyterlab_server", "nbconvert", "nbclient", "jupyter_events", "bs4"),
        *(
            "requests",
            "tornado",
            "mistune",
            "jinja2",
            "jupyter_core",
            "urllib3",
            "pygments",
            "html5lib",
            "lxml",
        ),
    ),
    "numpy and pyarrow": ("numpy", "pyarrow"),
    "bfcviz": ("bfcviz",),
}


def shares(checkouts: dict[str, Path]) -> None:
    """Print the ms of imports by package, in the server and in the kernel."""
    for what, code in (("server", SERVER), ("kernel", KERNEL)):
        found = {name: imports(code, checkout) for name, checkout in checkouts.items()}
        print(f"\n| imports of the {what}, ms | {' | '.join(checkouts)} |\n|---|{'---:|' * len(checkouts)}")
        for group, packages in WHERE.items():
            print(
                f"| {group} | {' | '.join(f'{sum(own[p] for p in packages):.0f}' for _, own in found.values())} |"
            )
        listed = {package for packages in WHERE.values() for package in packages}
        rest = [sum(ms for name, ms in own.items() if name not in listed) for _, own in found.values()]
        print(f"| all others | {' | '.join(f'{ms:.0f}' for ms in rest)} |")
        print(f"| all | {' | '.join(f'{ms:.0f}' for ms, _ in found.values())} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="default: the sample `conv`")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--slow", type=float, default=0, help="factor by which the page's processor is slower"
    )
    parser.add_argument("--mbit", type=float, default=0, help="Mbit/s of the page's link")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--memory-viz", type=Path, metavar="FOLDER")
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON")
    arguments = parser.parse_args()
    checkouts = ({"before": arguments.against.resolve()} if arguments.against else {}) | {"now": ROOT}
    files = [file.resolve() for file in arguments.files] or [ROOT / "bfcviz/samples/conv.xplane.pb.gz"]
    runs: dict[tuple[Path, str], list[dict[str, float]]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
        ways: dict[str, Callable[..., dict[str, float]]] = {
            name: partial(first_picture, browser, checkout) for name, checkout in checkouts.items()
        }
        if arguments.memory_viz:
            ways["memory_viz"] = partial(memory_viz, browser, arguments.memory_viz, arguments.torch)
        columns = [(file, name) for file in files for name in ways]
        for way in ways.values():
            way(files[0])  # compiles modules
        for _ in range(arguments.runs):
            for file, name in columns:
                found = ways[name](file, slow=arguments.slow, mbit=arguments.mbit)
                runs.setdefault((file, name), []).append(found)
        browser.close()
    conditions = f"processor / {arguments.slow:g}, {arguments.mbit:g} Mbit/s (0: as it is)"
    print(f"{conditions}; median (worst) of {arguments.runs}, load {os.getloadavg()[0]:.0f}\n")
    names = [f"{file.name} {name}" if len(ways) > 1 else file.name for file, name in columns]
    print(f"| seconds until | {' | '.join(names)} |\n|---|{'---:|' * len(columns)}")
    for stage in (*STAGES, "processor"):
        seconds = [[run[stage] for run in runs[column]] for column in columns]
        print(f"| {stage} | {' | '.join(f'{statistics.median(s):.1f} ({max(s):.1f})' for s in seconds)} |")
    if not (arguments.slow or arguments.mbit):
        shares(checkouts)


if __name__ == "__main__":
    main()

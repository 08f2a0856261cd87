"""The plugin for pytest: limits for the memory of a test, a table of the largest tests, a trace of each that failed.

::

    @pytest.mark.bfc_limit("2 GiB")                        # at most so much in use at any moment
    @pytest.mark.bfc_no_leaks                              # what the test allocates is freed at its end
    @pytest.mark.bfc_fragmentation(0.3)                    # external fragmentation at the peak is at most this
    @pytest.mark.bfc_fits_in("8 GiB", policy="torch")      # the same requests fit a pool of this size

    pytest --bfc                                           # watch every test, not only those with a mark
    pytest --bfc --bfc-save base.json                      # and later: pytest --bfc --bfc-compare base.json

A test is watched as by `bfcviz.watch`: CuPy where there is a GPU, else NumPy; PyTorch if it is imported and has a GPU.
The option `bfc_frameworks` of pytest's configuration names others. Fixtures are not watched, only the test itself.
pytest finds this module by its entry point; nothing else of bfcviz is imported before a test is watched.
"""

import gc
import json
import re
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from bfcviz.events.trace import Trace
    from bfcviz.watching.watch_session import Watch

MARKS: Final = {
    "bfc_limit": "bfc_limit(size): fail the test if a heap has more than this in use, such as '2 GiB'",
    "bfc_no_leaks": "bfc_no_leaks(most=0): fail the test if it leaves more than these bytes in use at its end",
    "bfc_fragmentation": "bfc_fragmentation(most): fail the test if more of the free memory is in pieces at its peak: "
    "1 - largest free chunk / free bytes",
    "bfc_fits_in": "bfc_fits_in(size, policy='bfc'): fail the test if its requests do not fit a pool of this size "
    "under these rules",
    "bfc_unwatched": "bfc_unwatched: do not watch this test",
}
_PROPERTY: Final = "bfcviz"
_MOST_NAMES: Final = 3


@dataclass(frozen=True)
class MemoryUse:
    """What a test used of its largest heap.

    Attributes:
        heap: the name of the heap, such as `numpy`.
        peak: the most bytes in use.
        pool: bytes of the pool at that moment.
        fragmentation: 1 - largest free chunk / free bytes at that moment, 0..1.
        leaked: bytes that the test allocated, in use at its end, in all heaps.
    """

    heap: str
    peak: int
    pool: int
    fragmentation: float
    leaked: int


def memory_use(traces: "list[Trace]") -> MemoryUse:
    """What the traces of one test say; all 0 where it allocated nothing."""
    from bfcviz.analysis.leaks import leaks  # noqa: PLC0415  a test that is not watched loads nothing
    from bfcviz.model import Model  # noqa: PLC0415
    from bfcviz.model.find_steps import peak  # noqa: PLC0415
    from bfcviz.model.fragmentation import external  # noqa: PLC0415

    largest, leaked = MemoryUse("", 0, 0, 0.0, 0), 0
    for trace in traces:
        if not len(trace):
            continue
        model = Model(trace)
        model.seek(peak(trace, 0))
        stats = model.stats()
        leaked += leaks(trace).bytes
        if stats.bytes_in_use > largest.peak:
            name = trace.origin.pools[0].name
            largest = MemoryUse(name, stats.bytes_in_use, stats.pool_bytes, external(stats), 0)
    return replace(largest, leaked=leaked)


# ------------------------------------------------------------------------------
# One test: watch it, and hold its memory against its marks.


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch the test, if it has a mark or `--bfc` was given."""
    marks = [each for each in item.iter_markers() if each.name in MARKS]
    is_wanted = bool(marks) or item.config.getoption("bfc")
    if not is_wanted or any(each.name == "bfc_unwatched" for each in marks):
        return (yield)
    import bfcviz  # noqa: PLC0415

    frameworks: dict[str, Any] = dict.fromkeys(item.config.getini("bfc_frameworks"), True)
    with tempfile.TemporaryDirectory(prefix="bfcviz-test-") as folder:
        watched = bfcviz.watch(path=Path(folder) / "recording", dashboard=False, **frameworks)
        try:
            with watched:
                result = yield
                gc.collect()  # what only cycles hold is no leak
        except BaseException:
            _save_failed_test_traces(item, watched)
            raise
        used = memory_use(watched.traces)
        item.user_properties.append((_PROPERTY, asdict(used)))
        broken = [line for each in marks for line in _broken_test_mark_lines(each, used, watched)]
        if broken:
            pytest.fail("\n".join([*broken, *_save_failed_test_traces(item, watched)]), pytrace=False)
        return result


def _broken_test_mark_lines(mark: pytest.Mark, used: MemoryUse, watched: "Watch") -> Iterator[str]:
    """How a test broke a mark, with its numbers."""
    from bfcviz.units import format_bytes  # noqa: PLC0415

    if mark.name == "bfc_limit":
        most = _test_mark_size(mark, _test_mark_argument(mark))
        if used.peak > most:
            yield (
                f"bfc_limit: {used.heap} had {format_bytes(used.peak)} in use at its peak, the mark allows "
                f"{format_bytes(most)}"
            )
            yield from _test_holder_lines(watched, used.heap)
    elif mark.name == "bfc_no_leaks":
        most = _test_mark_size(mark, mark.kwargs.get("most", mark.args[0] if mark.args else 0))
        if used.leaked > most:
            yield (
                f"bfc_no_leaks: {format_bytes(used.leaked)} that the test allocated are in use at its end, the mark "
                f"allows {format_bytes(most)}"
            )
            yield from _test_leak_lines(watched)
    elif mark.name == "bfc_fragmentation":
        if used.fragmentation > (most_in_pieces := _test_mark_share(mark)):
            yield (
                f"bfc_fragmentation: at the peak of {used.heap} {used.fragmentation:.0%} of the free memory were not "
                f"in the largest free chunk, the mark allows {most_in_pieces:.0%}"
            )
    elif mark.name == "bfc_fits_in":
        yield from _test_not_fitting_lines(mark, watched)


def _test_mark_argument(mark: pytest.Mark) -> Any:
    if not mark.args:
        pytest.fail(f"the mark lacks its argument: {MARKS[mark.name]}", pytrace=False)
    return mark.args[0]


def _test_mark_size(mark: pytest.Mark, value: Any) -> int:
    """A size in a mark in bytes; the test fails where it is none."""
    from bfcviz.units import parse_bytes  # noqa: PLC0415

    try:
        return parse_bytes(value, mark.name)
    except (TypeError, ValueError) as error:
        pytest.fail(f"{error}; {MARKS[mark.name]}", pytrace=False)


def _test_mark_share(mark: pytest.Mark) -> float:
    """The share in a mark; the test fails where it is none."""
    value = _test_mark_argument(mark)
    try:
        return float(value)
    except (TypeError, ValueError):
        pytest.fail(f"{mark.name}={value!r} is not a share, 0 to 1; {MARKS[mark.name]}", pytrace=False)


def _test_not_fitting_lines(mark: pytest.Mark, watched: "Watch") -> Iterator[str]:
    from bfcviz.units import format_bytes  # noqa: PLC0415
    from bfcviz.whatif.policy_replay import replay  # noqa: PLC0415

    policy = mark.kwargs.get("policy", "bfc")
    size = _test_mark_size(mark, _test_mark_argument(mark))
    for trace in watched.traces:
        outcome = replay(trace, policy, size, stop_at_failure=True)
        if not outcome.fits:
            yield (
                f"bfc_fits_in: under {outcome.policy} the requests of {trace.origin.pools[0].name} do not fit "
                f"{format_bytes(outcome.limit or 0)}: one failed, after a peak of {format_bytes(outcome.peak_in_use)}"
            )


def _test_holder_lines(watched: "Watch", heap: str) -> Iterator[str]:
    """Who held the heap at the peak of a test."""
    from bfcviz.watching.watch_reports import report  # noqa: PLC0415

    for trace in watched.traces:
        if trace.origin.pools[0].name == heap:
            for each in report(trace).holders[:_MOST_NAMES]:
                yield _test_report_line(each.num_bytes, each.name)


def _test_leak_lines(watched: "Watch") -> Iterator[str]:
    from bfcviz.analysis.leaks import leaks  # noqa: PLC0415

    for trace in watched.traces:
        found = leaks(trace, by="stack") if len(trace) else None
        if found is not None:
            rows = list(zip(found.rows["bytes"].tolist(), found.names, strict=True))
            for size, name in rows[:_MOST_NAMES]:
                yield _test_report_line(size, name.rpartition(" > ")[2])  # the innermost call


def _test_report_line(size: int, name: str) -> str:
    from bfcviz.terminal import printable  # noqa: PLC0415
    from bfcviz.units import format_bytes  # noqa: PLC0415

    return f"  {format_bytes(size):>12}  {printable(name)}"


def _save_failed_test_traces(item: pytest.Item, watched: "Watch") -> list[str]:
    """Save the traces of a failed test; where they are."""
    folder = item.config.getoption("bfc_traces")
    lines = []
    if folder is not None:
        for number, trace in enumerate(watched.traces):
            name = re.sub(r"[^\w.-]+", "-", item.nodeid)[-120:].strip("-")
            path = Path(folder) / f"{name}{f'-{number}' if number else ''}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            lines.append(f"  trace: {trace.save(path, overwrite=True)}")
        item.add_report_section("call", "bfcviz", "\n".join(lines))
    return lines


# ------------------------------------------------------------------------------
# All tests: the table, and the comparison with an earlier run.


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, and the setting `bfc_frameworks`."""
    group = parser.getgroup("bfcviz", "memory of the tests")
    group.addoption("--bfc", action="store_true", help="watch the memory of every test")
    group.addoption("--bfc-most", type=int, default=10, metavar="N", help="tests in the table (default: 10)")
    group.addoption("--bfc-traces", metavar="FOLDER", help="save a trace of each watched test that fails")
    group.addoption("--bfc-save", metavar="FILE", help="write the memory of each test as JSON")
    more = "fail if a test needs more than in this file of --bfc-save"
    group.addoption("--bfc-compare", metavar="FILE", help=more)
    tolerance = "with --bfc-compare: how much more is no failure (default: 0.05)"
    group.addoption("--bfc-tolerance", type=float, default=0.05, metavar="SHARE", help=tolerance)
    parser.addini("bfc_frameworks", "frameworks to watch, as for bfcviz.watch", type="args", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks, and what collects the results: with pytest-xdist that is in the main process."""
    for text in MARKS.values():
        config.addinivalue_line("markers", text)
    config.pluginmanager.register(_Results(config), "bfcviz-results")


class _Results:
    """The memory of each watched test of this run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._used: dict[str, MemoryUse] = {}
        self._more: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the memory of a test from its report."""
        for name, value in report.user_properties if report.when == "call" else ():
            if name == _PROPERTY and isinstance(value, dict):
                self._used[report.nodeid] = MemoryUse(**value)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Save, and compare; a test that needs more fails the run."""
        option = self._config.getoption
        if hasattr(self._config, "workerinput"):
            return
        if (saved := option("bfc_save")) is not None:
            text = json.dumps({name: asdict(used) for name, used in sorted(self._used.items())}, indent=1)
            Path(saved).write_text(text + "\n")
        if (base := option("bfc_compare")) is not None:
            self._more = list(self._increases(_read_saved_test_results(Path(base)), option("bfc_tolerance")))
            if self._more and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _increases(self, base: dict[str, MemoryUse], tolerance: float) -> Iterator[str]:
        from bfcviz.units import format_bytes  # noqa: PLC0415

        for name, used in sorted(self._used.items()):
            before = base.get(name)
            if before is not None and used.peak > before.peak * (1 + tolerance):
                times = used.peak / before.peak - 1 if before.peak else float("inf")
                yield (
                    f"{name}: {format_bytes(used.peak)} at its peak, {format_bytes(before.peak)} before (+{times:.0%})"
                )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table of the largest tests, and what needs more than before."""
        from bfcviz.units import format_bytes  # noqa: PLC0415

        by_peak = sorted(self._used.items(), key=lambda each: -each[1].peak)
        largest = by_peak[: self._config.getoption("bfc_most")]
        if largest:
            terminalreporter.section("memory of the largest tests")
            terminalreporter.line(f"{'peak':>12} {'pool':>12} {'in pieces':>9} {'left':>12}  test (heap)")
        for name, used in largest:
            sizes = f"{format_bytes(used.peak):>12} {format_bytes(used.pool):>12}"
            rest = f"{used.fragmentation:>9.0%} {format_bytes(used.leaked):>12}"
            terminalreporter.line(f"{sizes} {rest}  {name} ({used.heap or 'nothing allocated'})")
        if self._more:
            terminalreporter.section("more memory than before", red=True)
            for line in self._more:
                terminalreporter.line(line)


def _read_saved_test_results(path: Path) -> dict[str, MemoryUse]:
    """The results of tests that an earlier run saved.

    Raises:
        pytest.UsageError: it is no such file.
    """
    try:
        return {name: MemoryUse(**used) for name, used in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise pytest.UsageError(f"--bfc-compare {path}: is no file that --bfc-save wrote ({error})") from None

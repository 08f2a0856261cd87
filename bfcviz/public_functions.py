"""`explain`, `why`, `account`, `holders`, `leaks`, `draw` and others for any source: a path, a trace, or a live heap.

The functions in `model` and `figures` that they call take a `Trace`. May import everything but cli.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bfcviz.analysis import event_text, recording_comparison
from bfcviz.analysis import leaks as leak_search
from bfcviz.analysis import pool_growths as growth_search
from bfcviz.analysis import what_grew as growth_between
from bfcviz.analysis.account import Account, account_at, account_of, figures_of_facts
from bfcviz.analysis.diagnosis import Diagnosis, without_failure
from bfcviz.analysis.failures import diagnose, growing_sentence
from bfcviz.analysis.growth_forecast import limit_forecast
from bfcviz.analysis.leaks import Leaks
from bfcviz.analysis.message_answer import StatedAnswer
from bfcviz.analysis.pool_growths import Growths
from bfcviz.analysis.ranks import Rank, RankPlace, RankSet, rank_of, rank_of_text, rank_set
from bfcviz.analysis.recording_comparison import RecordingComparison, paired_heaps
from bfcviz.analysis.what_grew import WhatGrew, moments_between
from bfcviz.analysis.would_fit import would_fit
from bfcviz.errors import BfcvizError, FileError, NoMessage, TraceError
from bfcviz.events.trace import Trace
from bfcviz.importers.file_format import READABLE
from bfcviz.importers.message_reader import (
    StatedFailures,
    is_pasted,
    last_line,
    read_message_file,
    read_pasted,
)
from bfcviz.importers.open_trace import open_source, open_trace
from bfcviz.importers.rank_files import rank_files
from bfcviz.importers.remote_file import is_url, local_copy
from bfcviz.model import find_steps
from bfcviz.model import holders as holder_tree
from bfcviz.model.find_steps import NAMED_STEPS, failed_steps, failing_pool, opening
from bfcviz.model.grouping import grouping
from bfcviz.model.holders import Holders
from bfcviz.model.memory_kinds import KindRules, use_rules
from bfcviz.model.model import Model
from bfcviz.model.trace_from_source import trace_of
from bfcviz.units import parse_bytes
from bfcviz.unwatched import unwatched

if TYPE_CHECKING:
    import pyarrow as pa

    from bfcviz.figures import Picture


@unwatched()
def explain(source: Any, event: int | None = None) -> str:
    """Explain in a sentence what one event did, or why a request failed.

    Args:
        source: a path that `bfcviz.open` reads, a Trace, a Recording, an EventLog, a live heap, or the result of
            `bfcviz.watch` or of a `serve_...` function.
        event: its index, 0..len(trace) - 1; None: the last event.

    Raises:
        TraceError: the trace has no such event, or its events contradict each other.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    trace = trace_from(source)
    if event is None and len(trace) == trace.first:
        raise TraceError("the trace has no event yet: give a trace with events, or record some first")
    return event_text.explain_event(trace, len(trace) - 1 if event is None else event)


@unwatched()
def why(  # noqa: PLR0913  an event, or a question about a moment
    source: Any,
    event: int | None = None,
    *,
    step: int | None = None,
    size: int | str | None = None,
    limit: int | str | None = None,
    pool: int = 0,
) -> Diagnosis | StatedAnswer:
    """Find out why a request failed and what would have helped, or whether a request would fit.

    Args:
        source: as for `explain`; of a folder or a pattern with several ranks (see `open_all`) the worst one; also the
            text of an error, or the path of a text file that has one.
        event: index of an OOM event; None: the last request that failed.
        step: with `size`: the state after that many events; None: the last state.
        size: bytes, or text such as `500MiB`: find out whether a request of this size would fit.
        limit: with `size`: the most bytes that the pool may have; None: as the file says.
        pool: with `size`, and for a trace without a failure: index of the heap among `trace.origin.pools`.

    Returns:
        The verdict with its numbers; `print` it for the report. Its verdict is `no_failure` where none failed.
        For a text without a heap: every failure that it tells of.

    Raises:
        TraceError: the trace has no such event or step, or the event is not an OOM.
        ValueError: a size is needed, or it is not one.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    if event is None and step is None and size is None and (stated := stated_answer_of(source)) is not None:
        return stated
    ranks = source if isinstance(source, RankSet) else None
    if isinstance(source, str | os.PathLike):
        ranks = open_several([source])
    if ranks is not None and event is None and step is None and size is None and not ranks.worst.has_heap:
        return replace(why(ranks.worst.place.file), among=ranks.described(ranks.worst))
    trace = trace_from(source if ranks is None else ranks)
    among = "" if ranks is None else ranks.described(ranks.worst_heap)
    if size is not None:
        if event is not None:
            raise ValueError("give an event, or the size of a request and a step, not both")
        at = len(trace) if step is None else step
        most = None if limit is None else parse_bytes(limit, "limit")
        asked = parse_bytes(size, "size")
        found = would_fit(trace, at, asked, pool=pool, limit=most)
        drawn = partial(draw, "failure", trace, at, pool=pool, wanted=asked)
    elif step is not None or limit is not None:
        raise ValueError("give the size of the request that may fit at this step, such as size='500MiB'")
    elif steps := failed_steps(trace) if event is None else [event + 1]:
        found = diagnose(trace, steps[-1] - 1)
        drawn = partial(draw, "failure", trace, steps[-1], pool=found.pool)
    else:
        lead = lead_without_failure(trace, growth_search.growths(trace, pool))
        found = replace(without_failure(trace, pool), lead=lead)
        drawn = partial(draw, "region_map", trace, found.step, pool=pool)
    return replace(found, among=among).drawn_by(drawn)


def growths_lead(trace: Trace, found: Growths) -> tuple[str, ...]:
    """What `why` says of a pool's growths: the report, and what a setting of PyTorch's would save, by a replay."""
    report = tuple(growth_search.growths_report(found))
    if found.worst is None:
        return report
    from bfcviz.whatif.tuning import replayed_saving  # noqa: PLC0415  only a growth needs the rules

    saving = replayed_saving(trace, found)
    return (*report, f"  {saving}") if saving else report


def lead_without_failure(trace: Trace, found: Growths) -> tuple[str, ...]:
    """What `why` says where no request failed: what grows with every step, until when, and `growths_lead`."""
    model, last = Model(trace, found.pool), len(trace)
    grown = leak_search.growth_until(model, last)
    lead = growths_lead(trace, found)
    if grown is None:
        return lead
    sentence = growing_sentence(trace, grown, limit_forecast(model, grown, last))
    if found.worst is None:  # the pool did not grow in vain: what leaks comes first
        return (f"{found.pool_name}: {sentence}", *lead)
    return (*lead, f"  {sentence}")


@unwatched()
def growths(source: Any, pool: int = 0) -> Growths:
    """Each time a pool of any source grew while enough was free: what was requested, and what was in the way.

    Args:
        source: as for `explain`.
        pool: index of the heap among `trace.origin.pools`.

    Returns:
        The growths with their numbers; `print` it for the report.

    Raises:
        BfcvizError: `source` cannot be read.
    """
    return growth_search.growths(trace_from(source), pool)


def stated_answer_of(source: Any) -> StatedAnswer | None:
    """What public functions answer for a text that states failures and holds no heap; None for other sources."""
    if isinstance(source, str) and is_pasted(source):
        return StatedAnswer.of(*read_pasted(source))
    if not isinstance(source, str | os.PathLike) or not os.path.isfile(source):  # noqa: PTH113  any PathLike
        return None
    found = read_message_file(Path(source))
    return None if found is None else StatedAnswer.of(*found)


@unwatched()
def account(source: Any = None, step: int | None = None, *, pool: int = 0) -> Account:
    """Where the memory of a device went, now or by any source: other processes, this one outside its pools, each pool.

    Args:
        source: None: this process now, all its devices, from the driver, NVML and the frameworks that are loaded; or a
            mapping of the facts of a failure, as in `bfcviz why --json`; or as for `why`.
        step: of a trace: the state after that many events; None: the last failed request of which the trace has
            figures of the device, else the last state.
        pool: of a trace: index of the heap among `trace.origin.pools`.

    Returns:
        One account for each device; `print` it for a table. A trace without figures of the device gives the account of
        the heap's limit.

    Raises:
        ValueError: a step was given without a trace.
        TraceError: the trace has no such step.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    if step is not None and (source is None or isinstance(source, Mapping)):
        raise ValueError("a step is a moment of a trace: give a trace, or no step")
    if source is None:
        from bfcviz.live.device_account import account_now  # noqa: PLC0415  of a process that has devices

        return account_now()
    if isinstance(source, Mapping):
        return Account((account_of(figures_of_facts(source)),))
    if (stated := stated_answer_of(source)) is not None:
        if step is not None:
            raise ValueError("a step is a moment of a trace, and this text has none: give no step")
        return stated.account
    return Account((account_at(trace_from(source), step, pool),))


@unwatched()
def open_all(
    *sources: str | os.PathLike[str],
    by: str = "op",
    step: int | str | None = None,
    progress: Callable[[int, int], object] | None = None,
    executor: Executor | None = None,
) -> RankSet:
    """Open the files of all ranks or workers of one job as one thing: the worst first, each failure once.

    Two files are open at a time, and only their summaries are kept. Of a recording, mostly its index is read. An
    interrupt ends it with the ranks that were read.

    Args:
        sources: a folder with snapshots, logs or recordings; patterns such as `snapshots/*.pickle`; or the files. Also
            URLs that fsspec reads, such as `s3://bucket/job/*.bfc`.
        by: what holders are found by, as for `holders`.
        step: of the holders: a number of events, `peak`, `worst` (highest external fragmentation) or `last`; None:
            before the first failed request of each rank, else at its peak.
        progress: called with the number of files read and of all files.
        executor: reads the files, such as a `ProcessPoolExecutor`, or Dask's `client.get_executor()`, whose workers
            must see the same paths; None: two threads.

    Returns:
        The ranks; `print` it for the report. A file that does not exist or cannot be read is a rank with a `problem`.
        Given as a source, as for `explain`, it stands for the worst rank.

    Raises:
        FileError: a path is empty, or a folder has too many files.
        TraceError: no file has such a step.
        ValueError: `by` is no grouping, or `step` no step.
    """
    if not sources:
        raise ValueError("give a folder, a pattern such as 'snapshots/*.pickle', or the files of the ranks")
    found = open_several(sources, by=by, step=step, progress=progress, executor=executor)
    if found is not None:
        return found
    path = str(sources[0]) if is_url(sources[0]) else Path(sources[0])
    rank = _rank_of_opened_file(RankPlace(path, Path(path).name), by=by, step=step)
    return _with_step(rank_set([rank], str(path), open_trace, by), step)


def _with_step(ranks: RankSet, step: int | str | None) -> RankSet:
    """The same ranks, if any trace of them has the step that was asked for.

    Raises:
        TraceError: none has.
    """
    without = [rank for rank in ranks.ranks if rank.problem and rank.format]
    if without and not any(rank.has_heap for rank in ranks.known):
        raise TraceError(
            f"step={step} was given, and no trace of {ranks.source} has this step: {without[0].name} "
            f"{without[0].problem}"
        )
    return ranks


@unwatched()
def open_several(
    sources: Sequence[str | os.PathLike[str]],
    *,
    by: str = "op",
    step: int | str | None = None,
    progress: Callable[[int, int], object] | None = None,
    executor: Executor | None = None,
) -> RankSet | None:
    """Open the files of all ranks, as `open_all`; None where the sources name one file, or nothing."""
    if isinstance(step, str) and step not in {"peak", "worst", "last"}:
        raise ValueError(f"step={step!r} was given: give a number of events, 'peak', 'worst' or 'last'")
    files = rank_files(sources)
    if files is None:
        return None
    ranks: list[Rank] = []
    # Threads suffice: decoding a block releases the interpreter's lock.
    with suppress(KeyboardInterrupt), ThreadPoolExecutor(_FILES_AT_ONCE) as threads:
        told = [files.stated.get(place.file) for place in files.places]
        read = partial(_rank_of_opened_file, by=by, step=step)
        for rank in (executor or threads).map(read, files.places, told):
            ranks.append(rank)
            if progress is not None:
                progress(len(ranks), len(files.places))
    name = os.fspath(sources[0]) if len(sources) == 1 else f"{len(sources):,} files"
    left_out = len(files.places) - len(ranks)
    found = replace(rank_set(ranks, name, open_trace, by), left_out=left_out, others=files.others)
    return _with_step(found, step)


_FILES_AT_ONCE: Final = 2


@unwatched()
def _rank_of_opened_file(
    place: RankPlace, told: StatedFailures | None = None, *, by: str, step: int | str | None
) -> Rank:
    """The summary of one file, or of what its text tells, if it was read; where it cannot be read, why."""
    try:
        if is_url(place.file):
            with local_copy(str(place.file)) as copy:
                found = _rank_of_opened_file(replace(place, file=copy), by=by, step=step)
            return replace(found, place=replace(found.place, file=place.file))
        stated = stated_answer_of(place.file) if told is None else StatedAnswer.of(*told)
        if stated is not None:
            found = rank_of_text(stated, place)
            return found if stated.failures else replace(found, last_line=last_line(Path(place.file)))
        trace = open_trace(place.file)
        if not isinstance(step, int) or trace.first <= step <= len(trace):
            return rank_of(trace, place, by, step)
        problem = f"has the steps {trace.first:,} to {len(trace):,}, and not {step:,}"
        found = Rank(place, problem, str(trace.origin.format))
    except NoMessage:  # the log of a rank that tells of no failure
        found = replace(rank_of_text(StatedAnswer((), ()), place), last_line=last_line(Path(place.file)))
    except FileError as error:
        found = Rank(place, problem=error.cause.removesuffix(f"; {READABLE}"))
    except BfcvizError as error:
        found = Rank(place, problem=str(error))
    return found


@unwatched()
def peak(source: Any, pool: int = 0) -> int:
    """The first step of any source with the most bytes in use; a step is the state after that many events.

    Args:
        source: as for `explain`.
        pool: index of the heap among `trace.origin.pools`.
    """
    return find_steps.peak(trace_from(source), pool)


@unwatched()
def worst_fragmentation(source: Any, pool: int = 0) -> int:
    """The first step of any source with the highest external fragmentation (1 - largest_free_chunk / free_bytes).

    Args:
        source: as for `explain`.
        pool: index of the heap among `trace.origin.pools`.
    """
    return find_steps.worst_fragmentation(trace_from(source), pool)


@unwatched()
def holders(
    source: Any,
    step: int | str | None = None,
    by: str = "op",
    *,
    pool: int | None = None,
    kinds: Mapping[str, str] | None = None,
) -> Holders:
    """Who holds the memory in use at a step of any source: a tree of holders, with `to_arrow` and `to_pandas`.

    Args:
        source: as for `explain`.
        step: number of events applied, 0..len(trace), or `"peak"` (the first one with the most bytes in use), `"worst"`
            (highest external fragmentation), `"oom"` (the first failed request) or `"last"`. None: of a file the peak,
            as `bfcviz holders`; of what is in memory, such as a live heap, all events.
        by: `op` (the name of the label, split at its slashes), `line` (the line of code, where a stack was recorded),
            `stack`, `shape`, `data_type`, `thread`, `stream`, `phase`, `size`, `lifetime` (in steps of the
            program where marks tell them, else in events), or `kind` (parameters, gradients, optimizer state,
            activations, inputs, KV cache, workspace).
        pool: index of the heap among `trace.origin.pools`; None: the one whose request failed first, else the first.
        kinds: with `kind`: rules of your own, a kind and a regular expression that is searched in the name and the
            stack of an allocation, such as `{"experts": "moe|router"}`. They come before the built-in ones, from now on
            in every view of this trace.

    Raises:
        ValueError: `by` or `step` is none of these.
        TraceError: the trace has no such step, or not the chunks of the heap.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    trace = trace_from(source)
    if step is None:
        step = "peak" if _is_of_file(trace) else "last"
    pool = failing_pool(trace) if pool is None else pool
    holder_tree.require_chunks(trace, pool)
    step = _step_of_source(trace, step, pool)
    if kinds is not None:
        use_rules(trace, KindRules.of(kinds))
    model = Model(trace, pool)
    model.seek(len(trace) if step is None else step)
    return holder_tree.holders(model, by).drawn_by(partial(_draw_holders, model, by))


def _draw_holders(model: Model, by: str, **look: Any) -> "Picture":
    from bfcviz.figures.holder_icicle import draw_holders  # noqa: PLC0415  plotly, which a table does not need
    from bfcviz.figures.view_options import Look  # noqa: PLC0415

    return draw_holders(model, by, Look(**look))


def _step_of_source(trace: Trace, step: int | str | None, pool: int) -> int | None:
    if not isinstance(step, str):
        return step
    if step not in NAMED_STEPS:
        raise ValueError(
            f"step={step!r} was given: give a number of events, {', '.join(map(repr, NAMED_STEPS))} or None"
        )
    return NAMED_STEPS[step](trace, pool)


@unwatched()
def leaks(  # noqa: PLR0913  the range, and what is compared
    source: Any,
    start: int | None = None,
    stop: int | None = None,
    *,
    phase: str | None = None,
    by: str = "op",
    mark: str | None = None,
    warm_up: int | None = None,
    pool: int | None = None,
) -> Leaks:
    """What the events [start, stop) allocated and what is in use after the last event; and what grows with every step.

    Args:
        source: as for `explain`.
        start: the first event; None: the first of the trace.
        stop: one past the last event; None: the end of the trace.
        phase: count only what was allocated in phases of this name; None: all.
        by: as for `holders`.
        mark: name of the marks, or of the phase, that comes once a step of the program; None: one with `step`,
            `iteration`, `batch` or `epoch` in its name.
        warm_up: steps of the program to leave out at the beginning; None: a quarter of them, at least one.
        pool: index of the heap among `trace.origin.pools`; None: as for `holders`.

    Raises:
        ValueError: `by` is no grouping.
        TraceError: the trace has no such events or phase, or no history.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    trace = trace_from(source)
    pool = failing_pool(trace) if pool is None else pool
    found = leak_search.leaks(trace, pool, start, stop, phase=phase, by=by, mark=mark, warm_up=warm_up)
    return found.drawn_by(partial(draw, "region_map", trace, found.until, pool=pool, since=found.start))


@unwatched()
def what_grew(
    source: Any,
    first: int | str | None = None,
    last: int | str | None = None,
    *,
    by: str = "op",
    pool: int | None = None,
) -> WhatGrew:
    """What grew between two moments of any source: what is new, gone, and never freed, by holder.

    Args:
        source: as for `explain`.
        first: number of events applied, or the name of a mark or phase: its first occurrence. None: where the
            recorded history begins.
        last: the same, or `"peak"`, as for `holders`; of a mark the last occurrence, of a phase its end. None: the last
            step; where `first` is a phase, its end.
        by: as for `holders`.
        pool: index of the heap among `trace.origin.pools`; None: as for `holders`.

    Raises:
        ValueError: `by` is no grouping.
        TraceError: the trace has no such moments in this order, or no history.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    trace = trace_from(source)
    pool = failing_pool(trace) if pool is None else pool
    if isinstance(last, str) and last in NAMED_STEPS:
        last = _step_of_source(trace, last, pool)
    begin, end = moments_between(trace, pool, first, last)
    model = Model(trace, pool)
    model.seek(end)
    found = growth_between.what_grew(model, begin, grouping(trace, pool, by))
    return found.drawn_by(partial(draw, "region_map", trace, end, pool=pool, since=begin))


@unwatched()
def compare_recordings(  # noqa: PLR0913  two sources, and how they are compared
    a: Any,
    b: Any,
    pool: int | tuple[int, int] | None = None,
    *,
    by: str = "op",
    align: str | None = None,
    mark: str | None = None,
) -> RecordingComparison:
    """Compare two recordings, such as before and after a change: who needs more memory, where, and what leaks now.

    Args:
        a: as for `explain`: the recording before.
        b: the recording after.
        pool: index of the heap among `trace.origin.pools`, or that of `a` and that of `b`; None: the heaps of the same
            name, see `paired_heaps`: with the first failed request of `b`, else of `a`, else the first that both have.
        by: as for `holders`.
        align: how steps of both are paired: by `marks` of the same name, by equal `steps` of the program, by `labels`
            of allocations, or by the `share` of all events. None: the first of these that works.
        mark: name of the marks, or of the phase, that comes once a step of the program; None: as for `leaks`.

    Returns:
        The comparison, as tables; `print` it for the report.

    Raises:
        ValueError: `by` or `align` is unknown.
        TraceError: a trace has no such heap, or the recordings cannot be aligned as asked.
        BfcvizError: `a` or `b` is no source, or cannot be read.
    """
    first, second = trace_from(a), trace_from(b)
    if pool is None:
        pool = paired_heaps(first, second)
    pools = pool if isinstance(pool, tuple) else (pool, pool)
    found = recording_comparison.compare_recordings(
        (first, pools[0]), (second, pools[1]), by, align_by=align, mark=mark
    )
    return found.drawn_by(partial(_draw_compared_recordings, found))


def _draw_compared_recordings(found: RecordingComparison, theme: Any = "light") -> "Picture":
    from bfcviz.figures.compared_recordings import recordings_compared  # noqa: PLC0415  plotly

    return recordings_compared(found, theme)


@unwatched()
def draw(
    name: Any, source: Any = None, step: int | str | None = None, *, pool: int | None = None, **look: Any
) -> "Picture":
    """Draw the picture `name` of one heap at a step: a plotly figure with its numbers in `table`.

    `draw(source)` draws the region map.

    Args:
        name: one of `bfcviz.figures.FIGURES`, such as `region_map`; without `source`: the source.
        source: as for `explain`.
        step: number of events applied, 0..len(trace), or a name as for `holders`. None: of a file where the Inspector
            opens, at the first failed request, else at the peak; of what is in memory, such as a live heap, all events.
        pool: index of the heap among `trace.origin.pools`; None: the one whose request failed, else the first.
        look: fields of `bfcviz.figures.Look`, such as `theme="dark"`; `wanted` may be text, such as `64MiB`.

    Raises:
        ValueError: no picture has this name; the message lists the names.
        TraceError: the trace has no such step.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    from bfcviz import figures  # noqa: PLC0415  plotly, which explanations do not need

    if source is None:
        name, source = "region_map", name
    elif isinstance(source, str) and source in figures.FIGURES:  # in the other order
        name, source = source, name
    trace = trace_from(source)
    if step is None and _is_of_file(trace):
        pool, step = opening(trace, pool)
    pool = failing_pool(trace) if pool is None else pool
    return figures.draw(name, trace, _step_of_source(trace, step, pool), pool=pool, **look)


@unwatched()
def export(figure: Any, path: str | os.PathLike[str], **options: Any) -> Path:
    """Write a figure, or the events of a trace, to a file in the format of its suffix; return the path.

    Args:
        figure: what `bfcviz.draw` returns, or any plotly figure: `.html`, `.png`, `.svg`, `.pdf`, and the numbers that
            it shows as `.csv` or `.parquet`. Or a trace, what else has one, or the path of one: its events as
            `.parquet`, `.csv`, Chrome counters (`.json`) or a snapshot of PyTorch (`.pickle`), a page that steps
            through them without a kernel (`.html`), or its region map, as of `draw` (`.png`, `.svg`, `.pdf`).
        path: the file to write.
        options: of a figure: `style="paper"` and `width_mm`; of a trace: `start` and `stop` (steps) and `overwrite`.

    Raises:
        BfcvizError: the suffix is unknown, or the file cannot be written; see `bfcviz.figures.export` and
            `bfcviz.exporters.convert`.
        MissingExtra: kaleido is not installed, and the picture needs it.
    """
    opened = trace_from(figure) if isinstance(figure, str | os.PathLike) else figure
    trace = opened if isinstance(opened, Trace) else getattr(opened, "trace", None)
    suffix = Path(path).suffix.lower()
    if isinstance(trace, Trace) and suffix == ".html":
        from bfcviz.exporters.interactive_page import save_page  # noqa: PLC0415

        return save_page(trace, path, **options)
    from bfcviz.exporters.convert import SUFFIXES, convert  # noqa: PLC0415

    if not isinstance(trace, Trace) or suffix not in SUFFIXES:
        from bfcviz.figures.export import IMAGES  # noqa: PLC0415  plotly, which the events of a trace do not need
        from bfcviz.figures.export import export as export_figure  # noqa: PLC0415

        if not isinstance(trace, Trace):
            return export_figure(figure, path, **options)
        if suffix in IMAGES:
            return export_figure(draw(trace), path, **options)
    convert(trace, path, **options)
    return Path(path)


@unwatched()
def sql(source: Any, query: str, step: int | str | None = None, by: str = "op") -> "pa.Table":
    """The answer to a question in SQL: a table of Arrow, with `to_pandas` and `to_pylist`.

    The tables are events, allocations, chunks, holders, failures and timelines; `select * from columns` lists their
    columns with units and meanings. A query can read these and nothing else: no file, and no variable of Python.

    Args:
        source: as for `explain`.
        query: a SELECT statement in DuckDB's SQL.
        step: of chunks and holders: a number of events, or a name as for `holders`, of the first heap; None: of each
            heap the first failed request, else its peak.
        by: of holders: as for `holders`.

    Raises:
        MissingExtra: DuckDB is not installed.
        InvalidRequest: the query is no SELECT statement, or DuckDB refuses it.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    from bfcviz.exporters import sql as tables  # noqa: PLC0415  only a query needs them

    trace = trace_from(source)
    return tables.query(trace, query, _step_of_source(trace, step, 0), by)


def _is_of_file(trace: Trace) -> bool:
    """Whether a public function got the trace of a file: at its end most programs have freed all."""
    return trace.path is not None and not trace.following


def trace_from(source: Any) -> Trace:
    """The trace of what a public function takes as its `source`: see `explain`."""
    if isinstance(source, Trace):
        return source
    if isinstance(source, str | os.PathLike):
        return open_source(source)
    if isinstance(found := getattr(source, "trace", None), Trace):  # a Watch, a LiveDashboard, a Model
        return found
    heaps = getattr(source, "heaps", None)
    return trace_of(heaps[0] if isinstance(heaps, list) and heaps else source)

"""Find the setting of a job's own allocator that saves most memory, and write it as the line to set."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from bfcviz.analysis.heap_settings import Family
from bfcviz.analysis.pool_growths import Growths
from bfcviz.answers import Answer
from bfcviz.errors import InvalidRequest
from bfcviz.events.trace import Trace
from bfcviz.formats import cupy, rmm, tensorflow, torch, xla
from bfcviz.units import MiB, counted, format_bytes
from bfcviz.whatif.best_options import TriedOptions, best_options
from bfcviz.whatif.own_rules import OwnRules, own_or_bfc_rules, own_rules
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import on_device, other_than_default, policy_of, policy_text, uncompared
from bfcviz.whatif.requests import RequestStream, are_failed, stream_of
from bfcviz.whatif.search import SearchControl, SearchStopped, Trial, TrialRunner, trial_cache

ENOUGH: Final = 0.01
"""Settings within this share of the least memory count as equal: the one with the fewest options is proposed."""

SPACES: Final[Mapping[str, Sequence[tuple[Mapping[str, Any], tuple[str, ...]]]]] = {
    # Two spaces: with expandable segments PyTorch cannot return the blocks that max_split_size keeps whole.
    "torch": (
        ({}, ("max_split_size", "roundup_power2_divisions")),
        ({"expandable_segments": True}, ("roundup_power2_divisions",)),
    ),
    "bfc": (({}, ("allow_growth", "garbage_collection", "fragmentation_fraction")),),
}
"""Policy -> the options that are fixed and those that are varied, for each part of the search."""

REFINED: Final[Mapping[str, Sequence[Any]]] = {
    "roundup_power2_divisions": tuple(
        text
        for size in (4, 32, 256)
        for text in (f"[{size}:4,>:1]", f"[{size}:1,>:4]", f"[{size}:1,>:8]", f"[{size}:8,>:2]")
    )
}
"""PyTorch's divisions by size in MiB, varied after the rest, from the best settings on."""

NEWEST: Final[Mapping[str, Sequence[Any]]] = {
    "large_segment_size": (12 * MiB, 32 * MiB, 64 * MiB),
    "max_non_split_rounding": (64 * MiB, 256 * MiB, 1024 * MiB),
}
"""Options that only new versions of PyTorch know, varied last: an older one refuses to start with them."""

INITIAL_SHARES: Final = (0.0, 1.0, 1.02, 1.05, 1.1, 1.25, 1.5)
"""Initial sizes of RMM's pool, as shares of the most requested bytes in use at once."""

_SET_RMM: Final = "rmm.mr.set_current_device_resource({})"

_CHOSEN: Final = ("expandable_segments", "max_split_size", "roundup_power2_divisions", *NEWEST)
_OF_TORCH: Final[Mapping[str, Callable[[Any], str]]] = {
    "expandable_segments": "expandable_segments:{}".format,
    "max_split_size": lambda value: f"max_split_size_mb:{value // MiB}",
    "roundup_power2_divisions": "roundup_power2_divisions:{}".format,
    "max_non_split_rounding": lambda value: f"max_non_split_rounding_mb:{value // MiB}",
    "large_segment_size": lambda value: f"large_segment_size_mb:{value // MiB}",
    "garbage_collection_threshold": "garbage_collection_threshold:{}".format,
}
_OF_TENSORFLOW: Final = {
    "allow_growth": tensorflow.FORCE_GROWTH,
    "garbage_collection": tensorflow.COLLECTION,
}


@dataclass(frozen=True, repr=False)
class Tuned(Answer):
    """The result of `tune`; sizes in bytes.

    Attributes:
        own: the rules of the job.
        limit: memory of the device, or what a fraction leaves of it; None: no limit.
        now: the numbers of the job's own settings; None: they cannot be served so, `why_not` says why.
        best: those of the proposed settings; None: none of those tried fits.
        line: the line to set first; empty: none saves more than `ENOUGH`.
        graph_pools: what sharing one graph pool would save; None: the file has no two of them.
        newest: the numbers with options of `NEWEST`, too; None: these save no more than `ENOUGH` beside `best`.
        tried: how many settings were served.
        failed: how many requests failed in the trace: they were left out.
        failed_fit: whether the proposed settings serve these, too, under the limit; None: none failed, or no limit.
        complete: whether the search was not stopped.
        notes: of the requests.
    """

    own: OwnRules
    limit: int | None
    now: Trial | None
    best: Trial | None
    line: str
    tried: int
    failed: int = 0
    failed_fit: bool | None = None
    complete: bool = True
    why_not: str = ""
    notes: tuple[str, ...] = field(default=(), repr=False)
    newest: Trial | None = None
    graph_pools: "TunedGraphPools | None" = None

    def __str__(self) -> str:
        return "\n".join(tuned_lines(self))


class TunedGraphPools(NamedTuple):
    """What `tune` finds of the private pools of PyTorch that CUDA graphs are captured into; peaks in bytes.

    Attributes:
        number: how many there are.
        apart: peak of all memory if no pool serves the requests of another, as in the file.
        shared: the same if all graphs are captured into one pool.
    """

    number: int
    apart: int
    shared: int


def tune(
    stream: RequestStream,
    limit: int | None = None,
    *,
    device: int | None = None,
    with_failed: bool = False,
    control: SearchControl | None = None,
) -> Tuned:
    """Search the settings of the job's own allocator for those with the least memory at its peak.

    Args:
        stream: the requests.
        limit: in bytes; None: that of the trace, or none.
        device: bytes of the device, of which the limit is a share; None: the limit is that of the device.
        with_failed: whether requests that failed in the trace are served.
        control: progress and stop.

    Raises:
        InvalidRequest: the file does not say which allocator the job had, or that one has no options to choose.
    """
    asked = stream if with_failed else stream.without_failed()
    own = own_or_bfc_rules(asked)
    resources = _tunable_resources(asked)
    spaces = () if resources else _tunable_option_spaces(stream, own)
    num_bytes = stream.limit if limit is None else limit
    runner = TrialRunner(trial_cache(None), control or SearchControl())
    now, why_not, complete, pools = None, "", True, None
    rows: list[TriedOptions] = []
    try:
        if own.role:
            now = runner.run(asked, on_device(own.policy, device), num_bytes, "the job's own settings")
        else:
            why_not = "a log of RMM does not say which resource served the requests"
        for policy in resources:
            trial = runner.run(asked, policy, num_bytes, policy.name)
            rows.append(TriedOptions(policy.options, trial))
        if own.policy.name == "torch":
            pools = _graph_pools(asked, own.policy)
    except InvalidRequest as error:
        why_not = str(error)
    except (SearchStopped, KeyboardInterrupt):
        complete = False
    for fixed, choices in spaces if complete else ():
        # JAX lets a user set growth only.
        names = ("allow_growth",) if stream.family == Family.JAX else choices
        varied = {*names, *(_CHOSEN if own.policy.name == "torch" else ())}
        kept = {key: value for key, value in own.policy.options.items() if key not in varied}
        policy = on_device(policy_of(own.policy.name, **kept, **fixed), device)
        found = best_options(
            asked, policy_text(policy.name, policy.options), num_bytes, options=names, control=control
        )
        rows += found.table
        if not found.complete:
            complete = False
            break
    best = _proposed_setting([row.trial for row in rows if row.trial is not None], now)
    newest = None
    if complete and own.policy.name == "torch" and best is not None:
        best, complete = _refined_setting(asked, best, REFINED, num_bytes, control, rows)
        if complete:
            newest, complete = _refined_setting(asked, best, NEWEST, num_bytes, control, rows)
    saves = best is not None and (
        now is None or not now.fits or best.peak_reserved < (1 - ENOUGH) * now.peak_reserved
    )
    failed = int(are_failed(stream.rows).sum()) // 2
    return Tuned(
        own=own,
        limit=num_bytes,
        now=now,
        best=best if saves else now,
        line=setting_line(best, stream.family, own.policy) if saves and best is not None else "",
        tried=len(rows),
        failed=0 if with_failed else failed,
        failed_fit=_setting_serves_failed(stream, best if saves else now, num_bytes)
        if failed and not with_failed
        else None,
        complete=complete,
        why_not=why_not,
        notes=asked.notes,
        newest=newest if newest != best else None,
        graph_pools=pools,
    )


def _tunable_option_spaces(
    stream: RequestStream, own: OwnRules
) -> Sequence[tuple[Mapping[str, Any], tuple[str, ...]]]:
    """What is searched of the options of the job's own allocator.

    Raises:
        InvalidRequest: it is not known, or has no options to choose.
    """
    if not own.role:
        raise InvalidRequest(
            f"{stream.source or 'the file'} does not say which allocator the job had, so that there is no setting to "
            "propose; `bfcviz whatif` compares allocators"
        )
    if own.policy.name not in SPACES:
        raise InvalidRequest(
            f"the allocator of {stream.source or 'the file'} is {own.policy.name}, which has no option that changes "
            "where requests are placed; `bfcviz whatif` compares it with others"
        )
    return SPACES[own.policy.name]


def _tunable_resources(stream: RequestStream) -> list[Policy]:
    """The allocators that a user of CuPy or RMM can choose from; none for other frameworks."""
    if stream.family == Family.CUPY:
        return [policy_of("cupy"), policy_of("stream_ordered")]
    if stream.family == Family.RMM:
        most = int(stream.live_bytes.max(initial=0))
        sizes = [-(-int(share * most) // MiB) * MiB for share in INITIAL_SHARES]
        return [
            *(policy_of("rmm_pool", initial_pool_size=size) for size in dict.fromkeys(sizes)),
            policy_of("stream_ordered"),
        ]
    return []


def _graph_pools(stream: RequestStream, policy: Policy) -> TunedGraphPools | None:
    """What tuning finds of graph pools: serves the requests with each pool apart, and with one for all."""
    names = [
        label.details.get("private_pool", "") for label in map(stream.labels.__getitem__, stream.label_names)
    ]
    pools = sorted({name for name in names if name})
    if len(pools) < 2:
        return None
    number_of = dict(
        zip(stream.label_names, (pools.index(name) + 1 if name else 0 for name in names), strict=True)
    )
    numbers = np.array([number_of.get(label, 0) for label in stream.rows["label"].tolist()])
    peaks = []
    for pool in (numbers, np.minimum(numbers, 1)):
        rows = stream.rows.copy()
        # Each pair of a pool and a stream becomes a stream of its own.
        pairs, stream_of = np.unique((pool << 16) + stream.rows["stream"], return_inverse=True)
        if len(pairs) > np.iinfo(rows["stream"].dtype).max:
            return None
        rows["stream"] = stream_of
        peaks.append(policy.serve(replace(stream, rows=rows)).peak_reserved)
    return TunedGraphPools(len(pools), *peaks)


def _refined_setting(  # noqa: PLR0913, PLR0917  what is searched, and where
    stream: RequestStream,
    best: Trial,
    options: Mapping[str, Sequence[Any]],
    limit: int | None,
    control: SearchControl | None,
    rows: list[TriedOptions],
) -> tuple[Trial, bool]:
    """The best trial of a setting after these options were varied in turn, and whether the search was not stopped.

    The search begins at `best`; `rows` gets what was tried.
    """
    for name, values in options.items():
        if name == "max_non_split_rounding" and best.options.get("max_split_size") is None:
            continue  # it is of blocks that are not split
        kept = {key: value for key, value in best.options.items() if key != name}
        found = best_options(
            stream, policy_text(best.policy, kept), limit, options={name: values}, control=control
        )
        rows += found.table
        best = _proposed_setting([row.trial for row in found.table if row.trial is not None], best) or best
        if not found.complete:
            return best, False
    return best, True


def _proposed_setting(trials: Sequence[Trial], now: Trial | None) -> Trial | None:
    """The setting to propose: of trials with about the least memory, that with the fewest options; None: none fits."""
    fitting = [trial for trial in (*trials, *([now] if now else [])) if trial.fits]
    if not fitting:
        return None
    most = (1 + ENOUGH) * min(trial.peak_reserved for trial in fitting)
    near = [trial for trial in fitting if trial.peak_reserved <= most]
    return min(
        near,
        key=lambda trial: (
            len(other_than_default(trial.policy, trial.options)),
            trial.peak_reserved,
            trial.driver_calls,
        ),
    )


def _setting_serves_failed(stream: RequestStream, chosen: Trial | None, limit: int | None) -> bool | None:
    if chosen is None or limit is None:
        return None
    return policy_of(chosen.policy, **chosen.options).serve(stream, limit, stop_at_failure=True).fits


def setting_line(found: Trial | Policy, family: str, own: Policy | None = None) -> str:
    """The options of a policy as the line that sets them; for the shell where variables do.

    The line of PyTorch also turns off the expandable segments of the job's `own` rules: a program that turns them on
    itself, and a reader who adds the line to what the variable has, would keep them.
    """
    name = found.policy if isinstance(found, Trial) else found.name
    options = {
        key: value for key, value in other_than_default(name, found.options).items() if key != "device"
    }
    if name == "torch":
        if own is not None and own.options.get("expandable_segments"):
            options.setdefault("expandable_segments", False)
        words = [write(options[key]) for key, write in _OF_TORCH.items() if key in options]
        text = shlex.quote(",".join(words))
        return f"export {torch.CONF}={text}" if words else f"unset {torch.NEW_CONF} {torch.CONF}"
    if name == "bfc" and family == Family.JAX:
        return f"export {xla.PREALLOCATE}={str(not options.get('allow_growth', False)).lower()}"
    if name == "bfc" and family == Family.OWN:
        return f"AllocatorOptions({', '.join(f'{key}={value!r}' for key, value in options.items())})"
    if name == "bfc" and family == Family.TENSORFLOW:
        words = [f"{name}={str(options.get(key, False)).lower()}" for key, name in _OF_TENSORFLOW.items()]
        fraction = options.get("fragmentation_fraction")
        rest = f"  # and {tensorflow.WORDS.fraction.format(fraction=fraction)}" if fraction else ""
        return f"export {' '.join(words)}{rest}"
    return _resource_line(name, options, family) or policy_text(name, options)


def _resource_line(name: str, options: Mapping[str, Any], family: str) -> str:
    """The Python line that makes CuPy or RMM use an allocator; empty for others."""
    if name == "rmm_pool":
        size = options.get("initial_pool_size", 0)
        return _SET_RMM.format(
            f"rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size={size})"
        )
    if name != "stream_ordered":
        return ""
    if family == Family.RMM:
        return _SET_RMM.format(rmm.WORDS.other)
    return str(cupy.WORDS.other) if family == Family.CUPY else ""


def _current_setting_line(found: Tuned) -> str:
    now = found.now
    if now is None:
        text = (
            f"{found.own.text}: {found.why_not or 'not served'}"
            if found.own.role
            else f"not known: {found.why_not}"
        )
        return f"now: {text}"
    result = "fits" if now.fits else f"request {now.failed_at:,} fails"
    return (
        f"now: {found.own.text}: peak {format_bytes(now.peak_reserved)}, {now.driver_calls:,} driver calls, "
        f"{result}{_tuned_limit_text(found.limit)} ({found.own.why})"
    )


def _graph_pool_lines(found: Tuned) -> list[str]:
    """What `tuned_lines` says of the private pools of CUDA graphs."""
    if found.own.policy.name != "torch":
        return []
    pools = found.graph_pools
    if pools is None:
        return ["graph pools: the file has no two of them, so there is none to share"]
    line = (
        f"graph pools: {pools.number} in the file, each apart: peak {format_bytes(pools.apart)}; if all graphs share "
        "one (torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()), the same handle for all): "
        f"{format_bytes(pools.shared)}"
    )
    return [line]


def tuned_lines(found: Tuned) -> list[str]:
    """What `tune` found: the line to set and what it saves, first; then what was tried and what is not known."""
    lines, now, best = [], found.now, found.best
    if found.line and best is not None:
        before = "" if now is None or not now.fits else f" instead of {format_bytes(now.peak_reserved)}"
        served = " (the job's own settings fail)" if now is not None and not now.fits else ""
        lines.append(f"{found.line}   # {format_bytes(best.peak_reserved)}{before}{served}")
    elif best is not None and best.fits:
        lines.append(
            f"keep {found.own.text}: no setting tried needs {100 * ENOUGH:g} % less than its "
            f"{format_bytes(best.peak_reserved)}"
        )
    else:
        lines.append("no setting tried serves the job" + _tuned_limit_text(found.limit))
    if found.line.startswith("export " + torch.CONF):
        lines.append(
            f"from PyTorch 2.9 on the variable is {torch.NEW_CONF}; this older name is still read, too"
        )
    if found.newest is not None:
        size = format_bytes(found.newest.peak_reserved)
        lines.append(
            f"{setting_line(found.newest, '', found.own.policy)}   # {size}, with {_pytorch_for_setting(found.newest)}"
        )
    lines.append("")
    lines.append(_current_setting_line(found))
    if found.line and best is not None:
        lines.append(
            f"proposed: {policy_text(best.policy, other_than_default(best.policy, best.options))}: peak "
            f"{format_bytes(best.peak_reserved)}, {best.driver_calls:,} driver calls"
        )
    lines += _graph_pool_lines(found)
    if found.failed:
        word = {True: "would be served, too", False: "would fail, too", None: "no limit is known"}
        lines.append(
            f"left out: {counted(found.failed, 'request')} that failed in the file (--with-failed includes all): "
            f"{word[found.failed_fit]}"
        )
    lines += [f"note: {note}" for note in found.notes if "left out" not in note]
    lines += uncompared([found.own.policy.name if found.best is None else found.best.policy])
    lines.append(f"{found.tried:,} settings tried")
    return lines if found.complete else [*lines, "the search was stopped: another setting may need less"]


def _pytorch_for_setting(trial: Trial) -> str:
    """The PyTorch that knows the setting of a trial."""
    changed = other_than_default(trial.policy, trial.options)
    return "PyTorch 2.11 or later" if "large_segment_size" in changed else "PyTorch 2.6 or later"


def _tuned_limit_text(limit: int | None) -> str:
    """The limit that a setting was searched for, in a line of `tuned_lines`."""
    return " without a limit" if limit is None else f" under {format_bytes(limit)}"


# ------------------------------------------------------------------------------
# What one setting would save of a pool that grew while enough was free, as `why` and `report` say.


_MOST_REPLAYED: Final = 2_000_000
"""Events of a trace whose requests are served again to measure a saving: about a second."""

_LEAST_SAVED: Final = 0.01
"""A smaller share of the pool is no reason to change a setting."""


def replayed_saving(trace: Trace, found: Growths) -> str:
    """What the setting `expandable_segments` would save of a pool that grew in vain; empty where it is not known."""
    if found.worst is None or len(trace) > _MOST_REPLAYED:
        return ""
    stream = stream_of(trace, found.pool)
    rules = own_rules(stream, None)
    if rules is None or rules.policy.name != "torch" or rules.policy.options.get("expandable_segments"):
        return ""
    options = {**rules.policy.options, "expandable_segments": True}
    before, after = (
        int(policy.serve(stream).reserved.max(initial=0))
        for policy in (rules.policy, policy_of("torch", **options))
    )
    asked = torch.setting("expandable_segments", "True")
    if before - after < _LEAST_SAVED * before:
        return f"{asked} would save less than 1 % of the pool here, replayed from this file."
    sizes = f"{format_bytes(after)} instead of {format_bytes(before)}"
    return f"To do: {asked}: {sizes} at the peak, replayed from this file (Linux)."

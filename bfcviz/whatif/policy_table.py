"""The table of policies: their names, their options with defaults, and the text `name:option=value,...`."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

from bfcviz import native
from bfcviz.errors import InvalidRequest
from bfcviz.formats.tensorflow import VERSIONS
from bfcviz.formats.torch import LARGE_SEGMENT, divisions_of
from bfcviz.units import GiB, KiB, MiB, parse_bytes
from bfcviz.whatif.bfc_policy import BFC_OPTIONS, MEMORY_OPTIONS, BFCPolicy
from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.planner import LIVE_OPTIONS, PACKED_OPTIONS, LiveBytesPolicy, PackedPolicy
from bfcviz.whatif.policy import NO_LIMIT, Policy, PoolPolicy
from bfcviz.whatif.xla_policy import XLA_OPTIONS, XLAPolicy

MEANINGS: Final[Mapping[str, str]] = {
    "allow_growth": "true: the pool grows region by region; false: it takes the whole limit at once",
    "garbage_collection": "true: return wholly free regions before a request fails; TensorFlow on GPUs has true",
    "fragmentation_fraction": "share of the limit at which the rest of a chunk is split off; 0: at 128 MiB",
    "first_region": "bytes of the first region; each later one has twice as many",
    "exact_growth": "true: where the driver refuses, the last request is for no more than needed, as of bfcviz's heaps",
    "mode": "where the driver puts regions: gapped (apart), contiguous, or descending (each below the one before)",
    "capacity": "most bytes that the driver grants at one time; none: no limit of its own",
    "granule": "the driver grants multiples of this",
    "supports_coalescing": "true: adjacent regions become one",
    "gap": "bytes of addresses between regions, for mode=gapped",
    "regions": "simulated; recorded (those of recorded sizes get the recorded addresses); or exact (the driver "
    "grants and refuses as in the trace)",
    "backs_off_once": "only after the first refusal smaller regions are tried, as up to TensorFlow 2.7",
    "expandable_segments": "true: segments grow in place",
    "max_split_size": "larger blocks are not split; none: all are",
    "roundup_power2_divisions": "sizes are rounded up to so many steps between powers of two; 0 or 1: they are not",
    "garbage_collection_threshold": "share of the limit above which old segments are returned; 0: none is",
    "device": "bytes of the device: the limit is then that of set_per_process_memory_fraction; none: the limit is that "
    "of the device",
    "addresses": "of new segments: ascending, descending; lowest or highest: those of returned segments first; or "
    "shuffled1 to shuffled256; of free blocks of one size the lowest is taken",
    "max_non_split_rounding": "a block that is not split serves requests that leave less of it (PyTorch 2.6); "
    "none: large_segment_size",
    "large_segment_size": "bytes of a segment for requests of 1 to 10 MiB; of what expandable ones map (PyTorch 2.11)",
    "ties": "of free chunks of one size, 0: the lowest address; else any, chosen by this seed",
    "seconds": "how long a plan below the greedy ones is searched at most",
    "initial_pool_size": "bytes that are asked for at the start; 0: the first request decides",
    "unit": "sizes are rounded up to a multiple of this",
    "release_threshold": "bytes that the pool keeps; none: all",
    "reuse_across_streams": "a block that one stream freed may serve another",
    "segment": "the pool grows by multiples of this; the driver's own number is not public",
    "min_block": "bytes of the smallest block",
    "arena": "bytes of each arena; 0: one arena for all, which grows",
}
"""Option -> what its values mean, the same for all policies that have it; `bfcviz whatif --list` says it."""

XLA_MEANINGS: Final[Mapping[str, str]] = {
    "collectives": "the end that serves them: upper, as in the first form of 2026; or lower, which changes the "
    "defaults of both ends",
    "collective_labels": "requests with one of these parts of labels, between |, are collectives",
    "collective_from": "so are requests of this size and more; none: no size is",
    "collective_alignment": "of collectives: the granularity of their memory",
    "lower_order": "of the lower end: ascending, or descending",
    "upper_order": "of the upper end: ascending, or descending",
    "lower_split": "of chunks of the lower end: bfc (a small rest stays with the chunk), or exact",
    "upper_split": "of chunks of the upper end: bfc, or exact",
    "lower_gap_split": "of the central gap for the lower end: bfc, or exact",
    "upper_gap_split": "of the central gap for the upper end: bfc, or exact",
    "fragmentation_fraction": MEANINGS["fragmentation_fraction"],
    "preallocated": "bytes taken at the start; with collectives=lower the upper end lets the pool grow to the limit, "
    "as with XLA_PYTHON_CLIENT_MEM_FRACTION=0.75+; none: the whole limit",
}


def meaning_of(name: str, option: str) -> str:
    """What the values of an option of this policy mean; empty: not known."""
    if option == "version":
        return f"the defaults of a TensorFlow: {', '.join(VERSIONS)}; from 2.21 on none differs"
    return XLA_MEANINGS.get(option, "") if name == "xla" else MEANINGS.get(option, "")


# ------------------------------------------------------------------------------
# The table of policies: their names, their options with defaults, and the text `name:option=value,...`.


@dataclass(frozen=True)
class PolicyEntry:
    """One policy of the table.

    Attributes:
        what: the rules in a few words.
        pool: module of `bfcviz.whatif` and name of its pool; empty: `policy` makes it.
        options: the default of each option; its type is that of the values. A default of None is a size in bytes.
        policy: makes the policy of these options, if it is no simulated pool.
        lists: options whose value can also be a list in brackets, and what checks it.
        compared: whether its outcomes were compared with those of the real allocator, on the same requests.
    """

    what: str
    pool: tuple[str, str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Callable[[Mapping[str, Any]], Policy] | None = None
    lists: Mapping[str, Callable[[str], object]] = field(default_factory=dict)
    compared: bool = False


POLICIES: Final[Mapping[str, PolicyEntry]] = {
    "bfc": PolicyEntry(
        "best fit with coalescing (TensorFlow, XLA); plain `bfc`: growth is off, the whole limit is taken at once",
        options={"version": "2.21", **BFC_OPTIONS, **MEMORY_OPTIONS},
        policy=BFCPolicy,
        compared=True,
    ),
    "xla": PolicyEntry(
        "best fit from both ends of one address range (XLA 2026)", options=XLA_OPTIONS, policy=XLAPolicy
    ),
    "buddy": PolicyEntry(
        "binary buddies", ("pools", "BuddyPool"), {"min_block": 256, "arena": 0, "granule": 2 << 20}
    ),
    "live_bytes": PolicyEntry(
        "lower bound, no allocator: the requested bytes in use; with another unit than 1 no bound",
        options=LIVE_OPTIONS,
        policy=LiveBytesPolicy,
    ),
    "packed": PolicyEntry(
        "a plan, no allocator and no bound: one region, its places planned with all lifetimes known",
        options=PACKED_OPTIONS,
        policy=PackedPolicy,
    ),
    "first_fit": PolicyEntry("first fit in one pool", ("pools", "FirstFitPool"), {"granule": 2 << 20}),
    "torch": PolicyEntry(
        "PyTorch's caching allocator",
        ("torch_caching", "TorchCachingPool"),
        {
            "expandable_segments": False,
            "max_split_size": None,
            "roundup_power2_divisions": 0,
            "garbage_collection_threshold": 0.0,
            "device": None,
            "addresses": "ascending",
            "max_non_split_rounding": None,
            "large_segment_size": LARGE_SEGMENT,
        },
        lists={"roundup_power2_divisions": divisions_of},
        compared=True,
    ),
    "cupy": PolicyEntry("CuPy's memory pool", ("pools", "CupyPool"), {"ties": 0}, compared=True),
    "exact_size": PolicyEntry(
        "a pool that reuses only blocks of the same size", ("pools", "ExactSizePool"), {"unit": 512}
    ),
    "rmm_pool": PolicyEntry(
        "RMM's PoolMemoryResource: best fit in a pool that doubles",
        ("pools", "RmmPool"),
        {"initial_pool_size": 0},
    ),
    "stream_ordered": PolicyEntry(
        "the driver's pool of cudaMallocAsync; its rules are not public, its segments of 32 MiB are assumed",
        ("pools", "StreamOrderedPool"),
        {"release_threshold": None, "reuse_across_streams": True, "segment": 32 << 20},
    ),
}

PLANS: Final = ("packed",)
"""Policies that are plans, made with all lifetimes known: no allocators, and no bounds, since one may need less."""

BOUNDS: Final = ("live_bytes",)
"""Policies that no allocator can be, and that none can beat: the least memory that one could need."""

_NONE: Final = PolicyEntry("not of the table")

_COMMA: Final = re.compile(r",(?![^\[\]]*\])")
"""A comma between two options, not inside of a list."""


def policy_of(text: str | Policy, **options: Any) -> Policy:
    """The policy of a text such as `bfc:allow_growth=true,fragmentation_fraction=0.1`, or of a name and options.

    Raises:
        InvalidRequest: there is no such policy or option, the value is not one of this option, or an object is no
            policy.
    """
    if not isinstance(text, str):
        _check_policy(text)
        return text
    name, _, rest = text.partition(":")
    entry = POLICIES.get(name)
    if entry is None:
        raise InvalidRequest(
            f"there is no policy {name!r}{_policy_word_hint(name, POLICIES)}; there are: {', '.join(POLICIES)}"
        )
    given = {
        key.strip(): value.strip()
        for key, _, value in (part.partition("=") for part in _COMMA.split(rest))
        if key
    }
    chosen = {
        key: _policy_option_value(name, entry, key, value) for key, value in {**given, **options}.items()
    }
    if entry.pool is None:
        assert entry.policy is not None
        return entry.policy(chosen)
    module, pool = entry.pool
    make = getattr(import_module(f"bfcviz.whatif.{module}"), pool)
    make(DriverMemory(NO_LIMIT), **chosen)  # a pool refuses options that its allocator refuses
    return PoolPolicy(name, make, chosen)


def on_device(policy: str | Policy, device: int | None) -> Policy:
    """The policy under a share of a device of so many bytes: `torch` checks both; for others only the limit counts."""
    made = policy_of(policy)
    if device is None or made.options.get("device") or "device" not in POLICIES.get(made.name, _NONE).options:
        return made
    return policy_of(made.name, **{**made.options, "device": device}) if is_of_table(made) else made


def is_compared(name: str) -> bool | None:
    """Whether a policy's rules (a name, or a text) were compared with the real allocator's; None: no rules of one."""
    name = name.partition(":")[0]
    return POLICIES[name].compared if name in POLICIES and name not in (*PLANS, *BOUNDS) else None


def uncompared(names: Iterable[str]) -> list[str]:
    """A line that names the policies, of these names or texts, whose rules no real one was compared with."""
    named = dict.fromkeys(name.partition(":")[0] for name in names)
    alone = [name for name in named if is_compared(name) is False]
    return [f"not compared with a real allocator: {', '.join(alone)}"] if alone else []


def is_of_table(policy: Policy) -> bool:
    """Whether the name and options of a policy say all of its rules: it is one of the table, and no class of a user."""
    try:
        same = policy_of(policy.name, **policy.options)
    except InvalidRequest:
        return False
    return type(same) is type(policy) and getattr(same, "make", None) is getattr(policy, "make", None)


def policy_key(policy: str | Policy) -> str:
    """The text of a policy, options in the order of their names: equal for equal rules.

    Raises:
        InvalidRequest: as `policy_of`.
    """
    made = policy_of(policy)
    return policy_text(made.name, dict(sorted(made.options.items())))


def policy_text(name: str, options: Mapping[str, Any]) -> str:
    """A policy as `policy_of` reads it, such as `first_fit:granule=2MiB`; options that are None have no text."""
    known = POLICIES[name].options if name in POLICIES else {}
    given = ",".join(
        f"{key}={option_text(value, known.get(key))}" for key, value in options.items() if value is not None
    )
    return f"{name}:{given}" if given else name


def option_text(value: Any, default: Any) -> str:
    """The value of an option with this default as `policy_of` reads it; sizes in the largest unit that is exact."""
    if isinstance(value, bool):
        return str(value).lower()
    if type(value) is int and (default is None or type(default) is int):
        for unit, name in ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")):
            if value and value % unit == 0:
                return f"{value // unit}{name}"
    return "none" if value is None else str(value)


def other_than_default(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that change something: without those that are None, or equal to the default of the table.

    The option `version` changes the defaults: with it, all options stay that are not None.
    """
    defaults = POLICIES[name].options if name in POLICIES and "version" not in options else {}
    return {
        key: value
        for key, value in options.items()
        if value is not None and (key not in defaults or value != defaults[key])
    }


def _check_policy(given: object) -> None:
    """Raise InvalidRequest, if an object is no `Policy`."""
    found = {
        "name": isinstance(getattr(given, "name", None), str),
        "options": isinstance(getattr(given, "options", None), Mapping),
        "serve": callable(getattr(given, "serve", None)),
    }
    wrong = [name for name, is_right in found.items() if not is_right]
    if wrong:
        raise InvalidRequest(
            f"{given!r:.80} is no policy: its {' and '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} missing or "
            "of another type; give a text such as 'torch', or an object with name (text), options (a mapping) and "
            "serve()"
        )


_FRAMEWORK_POLICIES: Final = {
    "tensorflow": "bfc",
    "tf": "bfc",
    "jax": "xla",
    "pytorch": "torch",
    "rmm": "rmm_pool",
}
"""What a user may call the rules of a framework -> the name of the policy."""


def _policy_word_hint(word: str, known: Iterable[str]) -> str:
    """A hint at the known policy or option that is meant by, or most like, a wrong one; empty if none is."""
    found = [each for each in known if each == _FRAMEWORK_POLICIES.get(word.lower())]
    found = found or get_close_matches(word, list(known), 1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _policy_option_value(name: str, entry: PolicyEntry, key: str, value: Any) -> Any:
    """The value of a policy's option in the type of its default."""
    if key not in entry.options:
        known = ", ".join(entry.options) or "none"
        raise InvalidRequest(
            f"policy {name!r} has no option {key!r}{_policy_word_hint(key, entry.options)}; it has: {known}"
        )
    default = entry.options[key]
    if key in entry.lists and isinstance(value, str) and value.startswith("["):
        try:
            entry.lists[key](value)
        except ValueError as error:
            raise InvalidRequest(f"option {key!r} of policy {name!r}: {error}") from None
        return value
    try:
        found = _parsed_policy_option(key, value, default) if isinstance(value, str) else value
        if _is_policy_option_value(found, default):
            return found
    except (KeyError, ValueError):
        pass
    raise InvalidRequest(
        f"option {key!r} of policy {name!r} is {value!r}; give {_wanted_policy_option(default)}"
    )


def _parsed_policy_option(key: str, value: str, default: Any) -> Any:
    if default is None and value.lower() == "none":
        return None
    if isinstance(default, bool):
        return {"true": True, "false": False, "1": True, "0": False}[value.lower()]
    if isinstance(default, float):
        return float(value)
    return value if isinstance(default, str) else parse_bytes(value, key)


def _is_policy_option_value(value: Any, default: Any) -> bool:
    """Whether a value can be one of a policy's option with this default."""
    if default is None or type(default) is int:
        if value is None:
            return default is None
        return isinstance(value, int) and (1 if default else 0) <= value < native.MAX_REQUEST
    if isinstance(default, float):
        return isinstance(value, int | float) and 0 <= value < native.MAX_REQUEST
    return isinstance(value, type(default))


def _wanted_policy_option(default: Any) -> str:
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, float):
        return "a number of 0 or more"
    if isinstance(default, str):
        return "a text"
    return "a size in bytes, 1 or more" if default else "a size in bytes, 0 or more"

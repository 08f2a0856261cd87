"""The table of policies: their names, their options with defaults, and the text `name:option=value,...`."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

from bfcviz import native
from bfcviz.errors import InvalidRequest
from bfcviz.formats.torch import divisions_of
from bfcviz.units import GiB, KiB, MiB, parse_bytes
from bfcviz.whatif.planner import LIVE_OPTIONS, LiveBytesPolicy, PackedPolicy
from bfcviz.whatif.policies.bfc import BFC_OPTIONS, MEMORY_OPTIONS, VERSIONS, BFCPolicy
from bfcviz.whatif.policies.xla_policy import XLA_OPTIONS, XLAPolicy
from bfcviz.whatif.policy import Policy, PoolPolicy

# ------------------------------------------------------------------------------
# What the options of policies mean and which values they take, in a few words; `bfcviz whatif --list` prints them.

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
    "unit": "sizes are rounded up to a multiple of this",
    "release_threshold": "bytes that the pool keeps; none: all",
    "reuse_across_streams": "a block that one stream freed may serve another",
    "segment": "the pool grows by multiples of this; the driver's own number is not public",
    "min_block": "bytes of the smallest block",
    "arena": "bytes of each arena; 0: one arena for all, which grows",
}
"""Option -> what its values mean, with the same meaning for all policies that have it."""

XLA_MEANINGS: Final[Mapping[str, str]] = {
    "upper_labels": "requests with one of these parts of labels, between |, go to the upper end",
    "upper_from": "so do requests of this size and more; none: no size does",
    "lower_order": "of the lower end: ascending, or descending",
    "upper_order": "of the upper end: ascending, or descending",
    "lower_split": "of chunks of the lower end: bfc (a small rest stays with the chunk), or exact",
    "upper_split": "of chunks of the upper end: bfc, or exact",
    "lower_alignment": "of chunks of the lower end, in bytes",
    "upper_alignment": "of chunks of the upper end, in bytes",
    "fragmentation_fraction": MEANINGS["fragmentation_fraction"],
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
        pool: module of `bfcviz.whatif.policies` and name of its pool; empty: `policy` makes it.
        options: the default of each option; its type is that of the values. A default of None is a size in bytes.
        policy: makes the policy of these options, if it is no simulated pool.
        lists: options whose value can also be a list in brackets, and what checks it.
    """

    what: str
    pool: tuple[str, str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Callable[[Mapping[str, Any]], Policy] | None = None
    lists: Mapping[str, Callable[[str], object]] = field(default_factory=dict)


POLICIES: Final[Mapping[str, PolicyEntry]] = {
    "bfc": PolicyEntry(
        "best fit with coalescing (TensorFlow, XLA); plain `bfc`: growth is off, the whole limit is taken at once",
        options={"version": "2.21", **BFC_OPTIONS, **MEMORY_OPTIONS},
        policy=BFCPolicy,
    ),
    "xla": PolicyEntry(
        "best fit from both ends of one address range (XLA 2026)", options=XLA_OPTIONS, policy=XLAPolicy
    ),
    "buddy": PolicyEntry(
        "binary buddies", ("buddy", "BuddyPool"), {"min_block": 256, "arena": 0, "granule": 2 << 20}
    ),
    "live_bytes": PolicyEntry(
        "lower bound, no allocator: the requested bytes in use; with another unit than 1 no bound",
        options=LIVE_OPTIONS,
        policy=LiveBytesPolicy,
    ),
    "packed": PolicyEntry(
        "a plan, no allocator and no bound: one region, its places planned with all lifetimes known",
        policy=PackedPolicy,
    ),
    "first_fit": PolicyEntry("first fit in one pool", ("first_fit", "FirstFitPool"), {"granule": 2 << 20}),
    "torch": PolicyEntry(
        "PyTorch's caching allocator",
        ("torch_caching", "TorchCachingPool"),
        {
            "expandable_segments": False,
            "max_split_size": None,
            "roundup_power2_divisions": 0,
            "garbage_collection_threshold": 0.0,
        },
        lists={"roundup_power2_divisions": divisions_of},
    ),
    "cupy": PolicyEntry("CuPy's memory pool", ("cupy_pool", "CupyPool")),
    "exact_size": PolicyEntry(
        "a pool that reuses only blocks of the same size", ("exact_size", "ExactSizePool"), {"unit": 512}
    ),
    "stream_ordered": PolicyEntry(
        "the driver's pool of cudaMallocAsync; its rules are not public, its segments of 32 MiB are assumed",
        ("stream_ordered", "StreamOrderedPool"),
        {"release_threshold": None, "reuse_across_streams": True, "segment": 32 << 20},
    ),
}


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
            f"there is no policy {name!r}{_nearest(name, POLICIES)}; there are: {', '.join(POLICIES)}"
        )
    given = {
        key.strip(): value.strip()
        for key, _, value in (part.partition("=") for part in _COMMA.split(rest))
        if key
    }
    chosen = {key: _value(name, entry, key, value) for key, value in {**given, **options}.items()}
    if entry.pool is None:
        assert entry.policy is not None
        return entry.policy(chosen)
    module, pool = entry.pool
    return PoolPolicy(name, getattr(import_module(f"bfcviz.whatif.policies.{module}"), pool), chosen)


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


def _nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that is most like a wrong one; empty if none is."""
    found = get_close_matches(word, list(known), 1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _value(name: str, entry: PolicyEntry, key: str, value: Any) -> Any:
    """The value of an option in the type of its default."""
    if key not in entry.options:
        known = ", ".join(entry.options) or "none"
        raise InvalidRequest(
            f"policy {name!r} has no option {key!r}{_nearest(key, entry.options)}; it has: {known}"
        )
    default = entry.options[key]
    if key in entry.lists and isinstance(value, str) and value.startswith("["):
        try:
            entry.lists[key](value)
        except ValueError as error:
            raise InvalidRequest(f"option {key!r} of policy {name!r}: {error}") from None
        return value
    try:
        found = _parsed(key, value, default) if isinstance(value, str) else value
        if _is_possible(found, default):
            return found
    except (KeyError, ValueError):
        pass
    raise InvalidRequest(f"option {key!r} of policy {name!r} is {value!r}; give {_wanted(default)}")


def _parsed(key: str, value: str, default: Any) -> Any:
    if default is None and value.lower() == "none":
        return None
    if isinstance(default, bool):
        return {"true": True, "false": False, "1": True, "0": False}[value.lower()]
    if isinstance(default, float):
        return float(value)
    return value if isinstance(default, str) else parse_bytes(value, key)


def _is_possible(value: Any, default: Any) -> bool:
    """Whether a value can be one of an option with this default."""
    if default is None or type(default) is int:
        if value is None:
            return default is None
        return isinstance(value, int) and (1 if default else 0) <= value < native.MAX_REQUEST
    if isinstance(default, float):
        return isinstance(value, int | float) and 0 <= value < native.MAX_REQUEST
    return isinstance(value, type(default))


def _wanted(default: Any) -> str:
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, float):
        return "a number of 0 or more"
    if isinstance(default, str):
        return "a text"
    return "a size in bytes, 1 or more" if default else "a size in bytes, 0 or more"

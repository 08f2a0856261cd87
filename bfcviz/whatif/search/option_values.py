"""The values of options that a search tries."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policies.bfc import MEMORY_OPTIONS
from bfcviz.whatif.policy_table import POLICIES, policy_of

VALUES: Final[Mapping[str, Mapping[str, Sequence[Any]]]] = {
    "bfc": {"fragmentation_fraction": (0.0, 0.1, 0.25, 0.5)},
    "xla": {
        "lower_order": ("ascending", "descending"),
        "lower_split": ("bfc", "exact"),
        "fragmentation_fraction": (0.0, 0.1, 0.25, 0.5),
    },
    "torch": {
        "max_split_size": (32 << 20, 64 << 20, 128 << 20, 512 << 20),
        "roundup_power2_divisions": (1, 2, 4, 8, 16),
    },
    "stream_ordered": {"release_threshold": (0, 64 << 20, 1 << 30)},
}
"""Policy -> option -> the values to try, where those of `values_of` would not do."""

NOT_CHOSEN: Final[Mapping[str, frozenset[str]]] = {
    "bfc": frozenset({*MEMORY_OPTIONS, "version", "first_region", "exact_growth"}),
    "xla": frozenset({"lower_alignment", "upper_alignment"}),
    "torch": frozenset({"garbage_collection_threshold"}),  # works only with set_per_process_memory_fraction
    "live_bytes": frozenset({"unit"}),
    "stream_ordered": frozenset({"segment"}),
}
"""Options that say what the device, its driver, a version or the program is like: no setting alone changes them."""

_FACTORS: Final = (0.25, 0.5, 1, 2, 4)
_LEAST_SIZE: Final = 512


def option_values(
    policy: str, chosen: Mapping[str, Iterable[Any]] | Iterable[str] | None = None
) -> dict[str, list[Any]]:
    """Each option to vary and its values, the default first.

    Args:
        policy: a name of the table of policies.
        chosen: the options to vary, with or without their values; values can be texts such as `64MiB`. None: all that a
            user can choose.

    Raises:
        InvalidRequest: there is no such policy or option, an option has no value to vary, or a value is not one of it.
    """
    policy_of(policy)
    entry = POLICIES[policy]
    if chosen is None:
        names = [name for name in entry.options if name not in NOT_CHOSEN.get(policy, ())]
        found = {name: values_of(policy, name) for name in names}
        return {name: values for name, values in found.items() if len(values) > 1}
    given = chosen if isinstance(chosen, Mapping) else dict.fromkeys(chosen)
    return {name: _checked(policy, name, values) for name, values in given.items()}


def values_of(policy: str, option: str) -> list[Any]:
    """The values to try of one option, the default first."""
    default = POLICIES[policy].options[option]
    own = VALUES.get(policy, {}).get(option)
    if own is not None:
        values = list(own)
    elif isinstance(default, bool):
        values = [False, True]
    elif isinstance(default, int) and default >= _LEAST_SIZE:
        values = [int(default * factor) for factor in _FACTORS]
    else:
        values = []
    return [default, *(value for value in values if value != default)]


def _checked(policy: str, option: str, values: Iterable[Any] | None) -> list[Any]:
    if values is None:
        policy_of(
            policy, **{option: POLICIES[policy].options.get(option)}
        )  # raises, if there is no such option
        found = values_of(policy, option)
        if len(found) < 2:
            raise InvalidRequest(
                f"there are no values to try of option {option!r} of policy {policy!r}: give them, such as "
                f"{{{option!r}: [...]}}"
            )
        return found
    found = [policy_of(policy, **{option: value}).options[option] for value in values]
    if not found:
        raise InvalidRequest(f"option {option!r} has no value to try; give one or more")
    return found

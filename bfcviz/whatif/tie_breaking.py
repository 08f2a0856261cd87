"""Ties: between free blocks of one size something decides that no trace says, so that a result is a range."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import is_of_table, policy_of
from bfcviz.whatif.torch_caching import MOST_SHUFFLED

MOST_REQUESTS: Final = 6_000_000
"""Requests that the other orders of a stream serve together; one order is always tried."""

MARGIN: Final = 8
"""This part of the range of all orders tried is added at each end, for orders that were not tried."""

LEAST_ORDERS: Final = 64
"""Orders that are tried where none of them changes anything; else all are: the highest peak may need a rare one."""


class Ties(NamedTuple):
    """What breaks ties between free blocks of one size, where the requests do not.

    Attributes:
        by: what decides, in a few words of the singular.
        orders: options of the policy with which it may decide otherwise than by default.
    """

    by: str
    orders: tuple[Mapping[str, Any], ...]


_SHUFFLED: Final = tuple(f"shuffled{seed}" for seed in range(1, MOST_SHUFFLED + 1))

TIES: Final[Mapping[str, Ties]] = {
    "torch": Ties(
        "the order of the driver's addresses",
        tuple({"addresses": order} for order in ("descending", "highest", "lowest", *_SHUFFLED)),
    ),
    "cupy": Ties("the order of CuPy's chunk objects", tuple({"ties": seed} for seed in range(1, 257))),
}
"""By policy."""


class InOrder(NamedTuple):
    """What one order of tied blocks leads to.

    Attributes:
        fits: whether all requests are served.
        amount: the number that is asked for, in bytes.
    """

    fits: bool
    amount: int


@dataclass(frozen=True)
class Orders:
    """What the ways to break ties change.

    Attributes:
        by: what decides, in a few words.
        found: with each order that was tried, the default first.
    """

    by: str
    found: tuple[InOrder, ...]

    @property
    def tried(self) -> int:
        """How many orders of tied blocks were tried."""
        return len(self.found)

    @property
    def fitting(self) -> int:
        """With how many orders of tied blocks all requests are served."""
        return sum(each.fits for each in self.found)

    @property
    def least(self) -> int:
        """The least amount: with any order of ties that was tried, and a margin below."""
        low, high = self._seen()
        return max(low - (high - low) // MARGIN, 0)

    @property
    def most(self) -> int:
        """The largest amount: with any order of ties that was tried, and a margin above."""
        low, high = self._seen()
        return high + (high - low) // MARGIN

    @property
    def decide(self) -> bool:
        """Whether the order of tied blocks changes the result."""
        return len(set(self.found)) > 1

    def _seen(self) -> tuple[int, int]:
        amounts = [each.amount for each in self.found]
        return min(amounts), max(amounts)


def in_orders(policy: Policy, first: InOrder, serve: Callable[[Policy], InOrder], *, requests: int) -> Orders:
    """Try the orders of a policy's ties: all, unless they serve more than `MOST_REQUESTS`; few where none matters.

    Args:
        policy: the rules.
        first: what they lead to by default.
        serve: finds what other rules lead to.
        requests: that each order will serve; the more, the fewer orders are tried.
    """
    by, orders = TIES.get(policy.name, ("", ()))
    found, decide = [first], False
    if any(key in policy.options for order in orders for key in order) or not is_of_table(policy):
        return Orders(by, (first,))
    for order in orders[: max(MOST_REQUESTS // max(requests, 1), 1)]:
        if not decide and len(found) > LEAST_ORDERS:
            break
        found.append(serve(policy_of(policy.name, **policy.options, **order)))
        decide = decide or found[-1] != first
    return Orders(by, tuple(found))

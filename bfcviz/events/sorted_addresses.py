"""SortedAddresses: a sorted set of addresses, with search for the nearest address below or above."""

from collections.abc import Iterator


class SortedAddresses:
    """Distinct addresses, 0 or more, in short sorted lists: an insert into one long list would move its whole tail.

    Args:
        longest: maximum length of a list.
    """

    def __init__(self, longest: int = 1024) -> None:
        self._longest = longest
        self._lists: list[list[int]] = [[]]
        self._lowest = [0]  # lower bound of each list; all addresses of the list before are below it

    def add(self, address: int) -> None:
        """Add an address that is not in the set."""
        at = self._list_of(address)
        addresses = self._lists[at]
        addresses.insert(_up_to(addresses, address), address)
        if len(addresses) > self._longest:
            half = len(addresses) // 2
            self._lists.insert(at + 1, addresses[half:])
            self._lowest.insert(at + 1, addresses[half])
            del addresses[half:]

    def remove(self, address: int) -> None:
        """Remove an address that is in the set."""
        at = self._list_of(address)
        addresses = self._lists[at]
        del addresses[_up_to(addresses, address) - 1]
        if not addresses and at:
            del self._lists[at], self._lowest[at]

    def at_or_before(self, address: int) -> int:
        """The highest address in the set that is not above `address`; -1 if there is none."""
        if address < 0:
            return -1
        at = self._list_of(address)
        while at >= 0:
            addresses = self._lists[at]
            place = _up_to(addresses, address)
            if place:
                return addresses[place - 1]
            at -= 1
        return -1

    def at_or_after(self, address: int) -> Iterator[int]:
        """The addresses from `address` (0 or more) up, ascending; the set must not change during iteration."""
        first = self._list_of(address)
        place = _up_to(self._lists[first], address - 1)
        for at in range(first, len(self._lists)):
            addresses = self._lists[at]
            for index in range(place, len(addresses)):
                yield addresses[index]
            place = 0

    def _list_of(self, address: int) -> int:
        return _up_to(self._lowest, address) - 1 if len(self._lowest) > 1 else 0


def _up_to(addresses: list[int], address: int) -> int:
    """How many are not above `address`: `bisect_right`, whose call alone takes longer than this search, compiled."""
    low, high = 0, len(addresses)
    while low < high:
        middle = (low + high) >> 1
        here = addresses[middle]
        if here <= address:
            low = middle + 1
        else:
            high = middle
    return low

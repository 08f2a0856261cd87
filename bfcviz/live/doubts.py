"""Doubts: what was seen of another allocator that cannot be, and what had to be concluded."""

from dataclasses import dataclass, fields


@dataclass
class Doubts:
    """How often something was seen that cannot be, and so was left out of the events, or was only concluded.

    Attributes:
        unknown_frees: frees of addresses where nothing known to be in use begins; left out.
        overlaps: allocations over memory that is in use; left out.
        overlapping_grants: grants over memory that is in use; left out.
        unknown_releases: releases of what is no grant, or still in use; left out.
        no_slot: allocations and grants that would need more regions than a trace can number; left out.
        unseen_releases: grants over wholly free older ones, which must have been released unseen; carried out.
        in_pieces: allocations written as several chunks, because they lie across regions.
    """

    unknown_frees: int = 0
    overlaps: int = 0
    overlapping_grants: int = 0
    unknown_releases: int = 0
    no_slot: int = 0
    unseen_releases: int = 0
    in_pieces: int = 0

    @property
    def left_out(self) -> int:
        """How much was seen that is not in the events."""
        return (
            self.unknown_frees
            + self.overlaps
            + self.overlapping_grants
            + self.unknown_releases
            + self.no_slot
        )

    def words(self) -> str:
        """All that is not 0, in words; empty where there is no doubt."""
        told = [(getattr(self, each.name), _WORDS[each.name]) for each in fields(self)]
        return "; ".join(f"{count:,} {words}" for count, words in told if count)


_WORDS = {
    "unknown_frees": "frees of memory that nobody saw allocated (left out)",
    "overlaps": "allocations over memory whose free nobody saw (left out)",
    "overlapping_grants": "grants over memory that is in use (left out)",
    "unknown_releases": "releases of what is no grant or is in use (left out)",
    "no_slot": "requests that need more regions than a trace can number (left out)",
    "unseen_releases": "releases concluded from later grants of the same memory",
    "in_pieces": "allocations drawn as several chunks, for they lie across regions",
}

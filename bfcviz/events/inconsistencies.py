"""Inconsistencies: counts of impossible reports about another allocator, and of inferred events."""

from dataclasses import dataclass, fields


@dataclass
class Inconsistencies:
    """Counts of reports that the events do not show as reported.

    Attributes:
        unknown_frees: frees of addresses where no known allocation begins; ignored.
        overlaps: allocations over memory in use; ignored.
        overlapping_grants: grants over memory in use; ignored.
        unknown_releases: releases of an address where no grant begins, or of a grant in use; ignored.
        too_many_regions: reports that need more regions than a trace can number; ignored.
        too_high: allocations and grants that do not end below 2^63; ignored.
        unseen_releases: releases that were not reported, but inferred from a grant over a wholly free older one.
        unseen_frees: frees that were not reported, but inferred: the memory went back to the sub-allocator.
        in_pieces: allocations written as several chunks, because they span several regions.
    """

    unknown_frees: int = 0
    overlaps: int = 0
    overlapping_grants: int = 0
    unknown_releases: int = 0
    too_many_regions: int = 0
    too_high: int = 0
    unseen_releases: int = 0
    unseen_frees: int = 0
    in_pieces: int = 0

    @property
    def left_out(self) -> int:
        """Number of ignored reports."""
        return (
            self.unknown_frees
            + self.overlaps
            + self.overlapping_grants
            + self.unknown_releases
            + self.too_many_regions
            + self.too_high
        )

    def words(self) -> str:
        """All counts above 0 as text; empty if all are 0."""
        counts = [(getattr(self, each.name), _WORDS[each.name]) for each in fields(self)]
        return "; ".join(f"{count:,} {words}" for count, words in counts if count)


_WORDS = {
    "unknown_frees": "frees of memory whose allocation was not seen (left out)",
    "overlaps": "allocations over memory whose free was not seen (left out)",
    "overlapping_grants": "grants over memory in use (left out)",
    "unknown_releases": "releases of memory that was not granted or is in use (left out)",
    "too_many_regions": "requests that need more regions than a trace can number (left out)",
    "too_high": "allocations and grants at impossible addresses (left out)",
    "unseen_releases": "releases concluded from later grants of the same memory",
    "unseen_frees": "frees concluded from the release of the memory",
    "in_pieces": "allocations drawn as several chunks, because they lie across regions",
}

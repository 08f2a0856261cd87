"""A comparison of two recordings as JSON values: sizes in bytes, null for unknown."""

from typing import Any

from bfcviz.model.comparison.holder_changes import HolderVerdict
from bfcviz.model.comparison.recording_comparison import RecordingComparison


def comparison_json(found: RecordingComparison) -> dict[str, Any]:
    """All tables of a comparison; of the holders only those that are not the same at a moment."""
    parts, left = found.parts
    return {
        "headline": found.headline,
        "a": _recording(found, "a"),
        "b": _recording(found, "b"),
        "by": found.by,
        "alignment": {
            "by": str(found.alignment.by),
            "reason": found.alignment.reason,
            "pairs": max(len(found.alignment.a) - 2, 0),
        },
        "totals": {row.pop("measure"): row for row in found.totals.to_pylist()},
        "peak_parts": [{"holder": name, "bytes_change": change} for name, change, _ in parts],
        "peak_others": left,
        "moments": found.moments.to_pylist(),
        "holders": [row for row in found.holders.to_pylist() if row["change"] != HolderVerdict.SAME],
        "growth": {
            "holders": found.growth.to_arrow().to_pylist(),
            "a_reason": found.growth.reasons[0],
            "b_reason": found.growth.reasons[1],
        },
        "notes": list(found.notes),
    }


def _recording(found: RecordingComparison, letter: str) -> dict[str, Any]:
    facts = getattr(found, letter)
    return {
        "name": facts.name,
        "allocator": facts.heap,
        "pool": facts.pool,
        "events": facts.last - facts.first,
        "status": str(facts.status),
        "reasons": list(facts.reasons),
    }

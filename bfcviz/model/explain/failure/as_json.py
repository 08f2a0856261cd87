"""A diagnosis as JSON values: sizes in bytes, null for unknown."""

from typing import Any, Final

from bfcviz.model.explain.failure.diagnosis import Diagnosis, RunWithPins
from bfcviz.model.explain.failure.pins import Pin

_SOURCES: Final = {
    "free_chunks": "chunks_free",
    "largest_region": "regions",
    "wholly_free_regions": "regions",
}
"""Names here -> the number in `Diagnosis.unknown` that they depend on; the others have the same name in both."""


def diagnosis_json(found: Diagnosis) -> dict[str, Any]:
    """The entry of `bfcviz why --json`."""
    return {
        "verdict": str(found.verdict),
        "event": found.event,
        "step": found.step,
        "pool": found.pool,
        "allocator": found.pool_name,
        "label": found.label,
        "requested_bytes": found.requested,
        "rounded_bytes": found.rounded,
        "exact": found.recorded.is_exact,
        **_heap(found),
        "bytes_limit": found.bytes_limit,
        "device_bytes_in_use": found.device_used,
        "device_bytes_free": found.recorded.device_free,
        "device_bytes": found.recorded.device_total,
        "pinned_by": [_pin(pin) for pin in found.pinned_by],
        "runs": [_run(run) for run in found.runs],
        "advice": [
            {"kind": str(each.kind), "text": each.text, "numbers": dict(each.numbers)}
            for each in found.advice
        ],
        "op": found.recorded.op,
        "tensor": found.recorded.tensor,
        "message": found.recorded.message,
    }


def _heap(found: Diagnosis) -> dict[str, Any]:
    """What the chunks say; null where the file does not have them, or cannot give a number."""
    heap = {
        "free_bytes": found.free_bytes,
        "largest_free_chunk": found.largest_free_chunk,
        "external_fragmentation": found.external_fragmentation,
        "free_chunks": found.free_chunks,
        "pool_bytes": found.pool_bytes,
        "bytes_in_use": found.bytes_in_use,
        "chunks_in_use": found.chunks_in_use,
        "wasted_bytes": found.wasted,
        "regions": found.regions.count,
        "largest_region": found.regions.largest,
        "wholly_free_regions": [
            {"address": address, "size": size} for address, size in found.regions.wholly_free
        ],
    }
    return {name: value if found.knows(_SOURCES.get(name, name)) else None for name, value in heap.items()}


def _run(run: RunWithPins) -> dict[str, Any]:
    return {
        "address": run.address,
        "size": run.size,
        "region": run.region,
        "bytes_in_use": run.bytes_in_use,
        "chunks_in_use": run.chunks_in_use,
        "pinned_by": [_pin(pin) for pin in run.pins],
    }


def _pin(pin: Pin) -> dict[str, Any]:
    return {
        "address": pin.address,
        "size": pin.size,
        "label": pin.label,
        "requested": pin.requested,
        "details": pin.details,
        "stream": pin.stream,
        "age_events": pin.age,
        "age_s": pin.age_s,
        "freed_at_event": pin.freed,
    }

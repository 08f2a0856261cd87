"""A report as one JSON object: sizes in bytes, null for unknown."""

from dataclasses import asdict
from typing import Any, Final

from bfcviz.model.explain.failure.as_json import diagnosis_json
from bfcviz.model.holders.holders import Holders
from bfcviz.report.content import HeapReport, largest
from bfcviz.terminal import json_text

_HOLDERS: Final = 100
_SERIES: Final = ("bytes_in_use", "pool_bytes", "free_bytes", "largest_free_chunk")


def as_json(report: HeapReport) -> str:
    """The report as JSON text."""
    return json_text(report_json(report)) + "\n"


def report_json(report: HeapReport) -> dict[str, Any]:
    """The report as JSON values."""
    origin = report.origin
    return {
        "file": origin.source,
        "format": str(origin.format),
        "status": report.status,
        "reasons": list(origin.reasons),
        "checks": report.checks,
        "events": report.length,
        "steps": list(report.steps),
        "seconds": list(report.times),
        "shown": {
            "because": "failure" if report.has_failure else "peak",
            "pool": report.pool,
            "step": report.shown.step,
            **diagnosis_json(report.shown),
        },
        "totals": asdict(report.stats),
        "failures": [diagnosis_json(each) for each in report.failures],
        "failed_requests": report.failed,
        "heaps": [
            {"name": heap.name, "regions": heap.regions, **asdict(heap.stats)} for heap in report.heaps
        ],
        "settings": {"bytes_limit": origin.pools[report.pool].limit, **report.options},
        "holders": {found.by: _holders(found) for found in report.holders},
        "timeline": _timeline(report),
    }


def _holders(found: Holders) -> list[dict[str, Any]]:
    rows = found.rows
    return [
        {
            "holder": found.path(row),
            "bytes": int(rows["own_bytes"][row]),
            "chunks": int(rows["own_chunks"][row]),
            "requested": int(rows["own_requested"][row]) if found.requested_known else None,
        }
        for row in largest(found, _HOLDERS)
    ]


def _timeline(report: HeapReport) -> list[dict[str, Any]]:
    series = report.series
    if not len(series):
        return []
    fields = {"step": "step", "time_ns": "time", **{name: f"{name}_last" for name in _SERIES}}
    fields["external_fragmentation"] = "external_fragmentation_last"
    columns = [series[field].tolist() for field in fields.values()]
    return [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]

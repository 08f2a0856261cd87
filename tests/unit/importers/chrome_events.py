"""A Chrome trace as PyTorch's profiler writes it."""

import json

BASE = 0x7F0000000000


def event(ts: float, address: int, num_bytes: int, allocated: int, *, device: int = 0, pid: int = 1) -> dict:
    args = {
        "Addr": address, "Bytes": num_bytes, "Total Allocated": allocated, "Total Reserved": 2 << 20,
        "Device Type": 1, "Device Id": device, "Ev Idx": 3,
    }  # fmt: skip
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": pid,
        "tid": 5,
        "ts": ts,
        "args": args,
    }


EVENTS = [
    event(1000.5, BASE, 1024, 1024),
    event(1001.25, BASE + 1024, 512, 1536),
    event(1002.0, BASE, -1024, 512),
    event(1003, BASE, 512, 1024),
]


OTHER = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::mm",
    "pid": 1,
    "tid": 5,
    "ts": 999.0,
    "dur": 4.0,
    "args": {"x": [1, [2]]},
}


def text_of(events: list[dict], **more: object) -> str:
    return json.dumps(
        {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0}],
            **more,
            "traceEvents": [OTHER, *events],
            "traceName": "x",
        }
    )

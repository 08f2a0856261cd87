"""Logs of requests as each version of RMM wrote them."""

Row = tuple[str, int, int, int]
"""Action, address, size, stream."""


ROWS: list[Row] = [
    ("allocate", 0x7F0000001000, 1000, 0),
    ("allocate", 0x7F0000001400, 256, 0x55AA),
    ("free", 0x7F0000001000, 1000, 0),
    ("allocate failure", 0, 1 << 30, 0),
    ("allocate", 0x7F0000001000, 300, 0x2),
]


def clock(second: int, separator: str) -> str:
    return f"{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}{separator}{second % 10:06}"


def current(rows: list[Row], start: int = 50_000) -> str:
    """RMM since 2024-11: dots in times, `(nil)`, streams `0` or `0x..`."""
    lines = ["Thread,Time,Action,Pointer,Size,Stream"]
    for at, (action, address, size, stream) in enumerate(rows):
        pointer, handle = hex(address) if address else "(nil)", hex(stream) if stream else "0"
        lines.append(f"{13_395 + at % 2},{clock(start + at, '.')},{action},{pointer},{size},{handle}")
    return "\n".join(lines) + "\n"


def of_2020(rows: list[Row], start: int = 50_000) -> str:
    """RMM 0.15: colons in times; pointers and streams with `0x`."""
    lines = ["Thread,Time,Action,Pointer,Size,Stream"]
    lines += [
        f"7,{clock(start + at, ':')},{action},{address:#x},{size},{stream:#x}"
        for at, (action, address, size, stream) in enumerate(rows)
    ]
    return "\n".join(lines) + "\n"


def without_thread(rows: list[Row]) -> str:
    return current(rows).replace("Thread,", "").replace("13395,", "").replace("13396,", "")


def thread_not_in_header(rows: list[Row]) -> str:
    return current(rows).replace("Thread,", "")


def of_the_docs(rows: list[Row]) -> str:
    """The example in the documentation: seconds, `deallocate`, and decimal numbers."""
    lines = ["Thread,Time,Action,Pointer,Size,Stream"]
    for at, (action, address, size, stream) in enumerate(rows):
        name = "deallocate" if action == "free" else action
        lines.append(f"1,{1_582_062_034 + at}.250000,{name},{address},{size},{stream}")
    return "\n".join(lines) + "\n"


def of_cnmem(rows: list[Row], location: bool = True) -> str:
    """RMM up to 0.13: sizes of frees are 0, and there are no failures."""
    header = "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs"
    header += ",Start,End,Elapsed"
    lines = [header + ",Location" * location]
    for at, (action, address, size, stream) in enumerate(rows):
        if action == "allocate failure":
            continue
        name = {"allocate": "Alloc", "free": "Free"}[action]
        end = ",/a/driver.py:683" * location
        lines.append(
            f"{name},0,{address:#x},{stream},{size if name == 'Alloc' else 0},{1000 - at},16000,1,"
            f"{at}.10549,1.1074,0.0019{end}"
        )
    return "\n".join(lines) + "\n"


ERAS = {
    make.__name__: make
    for make in (current, of_2020, without_thread, thread_not_in_header, of_the_docs, of_cnmem)
}

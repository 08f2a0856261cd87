"""Any event in plain words: what happened, to which memory, for whom, and what is left."""

import numpy as np

from bfcviz.events.schema import Flag, Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.model.explain.oom import diagnose
from bfcviz.model.explain.scene import Scene, short_address
from bfcviz.model.explain.text.oom import why
from bfcviz.model.state.model import Model
from bfcviz.units import format_bytes


def explain(trace: Trace, event: int, model: Model | None = None) -> str:
    """A sentence or two about one event.

    SPLIT and ALLOCATE of one allocation, FREE and its MERGEs, each tell of the whole operation.

    Args:
        trace: the events.
        event: its index (its `seq`), 0..len(trace) - 1.
        model: one of this trace and pool to look with; it is brought back to where it stands.

    Raises:
        TraceError: the trace has no such event, or it or those before it contradict each other.
    """
    record = trace.read(event, event + 1)[0]
    pool = int(record["pool"])
    if model is None or model.trace is not trace or model.pool != pool:
        model = Model(trace, pool)
    with model.visiting(event + 1):  # an event that contradicts the state it met is not explained but refused
        pass
    return _TELLERS[Kind(int(record["kind"]))](Scene(trace, event, record, model))


def _place(chunk: np.void) -> str:
    return f"{short_address(int(chunk['address']))} ({format_bytes(int(chunk['size']))})"


def _extend(scene: Scene) -> str:
    size, slot = scene.number("size"), scene.number("region")
    where = short_address(scene.number("address"))
    if scene.number("flags") & Flag.GREW:
        what = f"lengthened region {slot} by {format_bytes(size)}, from {where}"
    else:
        what = f"granted region {slot}, {format_bytes(size)} at {where}"
    asked = scene.number("requested")
    reason = f" for a request of {format_bytes(asked)}" if asked else ""
    before = scene.pool_bytes()
    return f"The sub-allocator {what}{reason}: the pool grew {_from_to(scene, before, before + size)}."


def _release(scene: Scene) -> str:
    size, before = scene.number("size"), scene.pool_bytes()
    region = f"Region {scene.number('region')}, {format_bytes(size)}"
    return (
        f"{region} at {short_address(scene.number('address'))}, was wholly free and went back to the "
        f"sub-allocator: the pool shrank {_from_to(scene, before, before - size)}."
    )


def _from_to(scene: Scene, before: int, after: int) -> str:
    limit = scene.trace.origin.pools[scene.number("pool")].limit
    of_limit = "" if limit is None else f" of a limit of {format_bytes(limit)}"
    return f"from {format_bytes(before)} to {format_bytes(after)}{of_limit}"


def _split(scene: Scene) -> str:
    parent = scene.chunk(scene.number("chunk"))
    size = scene.number("size")
    rest, front = format_bytes(size), format_bytes(int(parent["size"]) - size)
    told = f"Chunk {_place(parent)} was split: "
    if scene.number("flags") & Flag.PADDING:
        padding = f"{told}{front} of alignment padding stay free at its start"
        taken = _allocation(scene, scene.number("other"))
        if taken is None:
            return f"{padding}, {rest} lie behind it."
        part = rest if taken["size"] == size else f"{format_bytes(int(taken['size']))} of the {rest}"
        return f"{padding}, {part} behind it handed to {scene.name(int(taken['label']))}."
    taken = _allocation(scene, scene.number("chunk"))
    stays = "stay where it begins" if taken is None else f"handed to {scene.name(int(taken['label']))}"
    return f"{told}{front} {stays}, {rest} back to bin {bin_of(size)}."


def _allocation(scene: Scene, chunk: int) -> np.void | None:
    """The ALLOCATE of this chunk that ends the operation a SPLIT is of; None where none follows."""
    for event in scene.following():
        if event["chunk"] != chunk or event["kind"] not in (Kind.SPLIT, Kind.ALLOCATE):
            return None
        if event["kind"] == Kind.ALLOCATE:
            found: np.void = event
            return found
    return None


def _allocate(scene: Scene) -> str:
    size, requested = scene.number("size"), scene.number("requested")
    fit = "which asked for just that" if size == requested else f"which asked for {_less(requested, size)}"
    name = scene.name(scene.number("label"))
    return f"Chunk {_place(scene.record)} was handed to {name}, {fit}; {_source(scene)}."


def _less(requested: int, size: int) -> str:
    """`requested` as text, in bytes where it would read like `size`."""
    text = format_bytes(requested)
    return text if text != format_bytes(size) else f"{size - requested} bytes less"


def _source(scene: Scene) -> str:
    """What an ALLOCATE took its chunk from: the SPLITs just before it tell."""
    whole = scene.number("size")
    told = []
    for event in scene.preceding():
        padding = int(event["flags"]) & Flag.PADDING
        if event["kind"] != Kind.SPLIT or event["other" if padding else "chunk"] != scene.record["chunk"]:
            break
        rest = int(event["size"])
        if padding:
            front = int(scene.chunk(int(event["chunk"]), int(event["seq"]))["size"]) - rest
            whole += front
            told.append(f"{format_bytes(front)} of alignment padding stay free before it")
            break
        whole += rest
        told.append(f"{format_bytes(rest)} went back to bin {bin_of(rest)}")
    if not told:
        return "it is a whole free chunk, not split"
    return f"it was cut from a free chunk of {format_bytes(whole)}, " + " and ".join(told)


def _free(scene: Scene) -> str:
    size = scene.number("size")
    since = scene.event - ((scene.event - scene.number("other")) & 0xFFFFFFFF) + 1
    name = scene.name(scene.number("label"))
    told = f"Chunk {_place(scene.record)} came back from {name}, in use since step {since}"
    if scene.number("flags") & Flag.HELD:
        return f"{told}; it is free, but held back from merging until its timestamp is safe."
    grown, sides = _merged(scene)
    if not sides:
        return f"{told}; it is free now, in bin {bin_of(size)}."
    neighbours = f"neighbour{'s' * (len(sides) > 1)} {' and '.join(sides)} it"
    return (
        f"{told}; it merges with its free {neighbours}: one free chunk of {format_bytes(grown)}, "
        f"in bin {bin_of(grown)}."
    )


def _merged(scene: Scene) -> tuple[int, list[str]]:
    """Size after the MERGEs of this FREE's operation, and on which sides they are."""
    size, chunk = scene.number("size"), scene.number("chunk")
    sides = []
    for event in scene.following():
        if event["kind"] != Kind.MERGE or chunk not in (event["chunk"], event["other"]):
            break
        if event["other"] == chunk:
            size += int(scene.chunk(int(event["chunk"]), int(event["seq"]))["size"])
            chunk = int(event["chunk"])
            sides.append("before")
        else:
            size += int(event["size"])
            sides.append("after")
    return size, sides


def _merge(scene: Scene) -> str:
    survivor = scene.chunk(scene.number("chunk"))
    size = int(survivor["size"]) + scene.number("size")
    return (
        f"Free chunk {_place(survivor)} absorbed the free chunk after it, {_place(scene.record)}: one chunk "
        f"of {format_bytes(size)}, in bin {bin_of(size)}."
    )


def _oom(scene: Scene) -> str:
    label = scene.number("label")
    who = f"A request by {scene.name(label)}" if label else "An unnamed request"
    return why(diagnose(scene.trace, scene.event, scene.model), who, scene.name)


def _mark(scene: Scene) -> str:
    label = scene.number("label")
    name = f"Mark: {scene.name(label)}" if label else "An unnamed mark"
    return f"{name} ({scene.number('size')})." if scene.number("size") else f"{name}."


_TELLERS = {
    Kind.EXTEND: _extend,
    Kind.SPLIT: _split,
    Kind.ALLOCATE: _allocate,
    Kind.FREE: _free,
    Kind.MERGE: _merge,
    Kind.RELEASE: _release,
    Kind.OOM: _oom,
    Kind.MARK: _mark,
}

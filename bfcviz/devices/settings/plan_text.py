"""A device plan in words: how much memory each device takes, when, and why."""

from collections.abc import Sequence

from bfcviz.devices.settings.plan import PlannedDevice
from bfcviz.units import MiB, format_bytes


class Explanation(str):
    """Text that a notebook shows without quotes."""

    __slots__ = ()

    def _repr_pretty_(self, printer: "object", cycle: bool) -> None:  # noqa: ARG002, FBT001  IPython's call
        printer.text(str(self))  # type: ignore[attr-defined]


def explain(planned: Sequence[PlannedDevice], hidden: Sequence[str], notes: Sequence[str]) -> Explanation:
    """One paragraph per device, and one for hidden devices.

    Args:
        planned: the devices.
        hidden: names of physical devices that are not visible.
        notes: the origin of the settings.
    """
    paragraphs = [*notes]
    paragraphs += [_cpu(each) if each.name.device_type == "CPU" else _gpu(each) for each in planned]
    if all(each.name.device_type != "GPU" for each in planned):
        paragraphs.append("No GPU is visible: no GPU memory is taken.")
    if hidden:
        paragraphs.append(f"Not visible and not used: {', '.join(hidden)}.")
    paragraphs += dict.fromkeys(sentence for each in planned for sentence in each.ignored)
    return Explanation("\n\n".join(paragraphs))


def _cpu(each: PlannedDevice) -> str:
    return (
        f"{each.name.short} takes host memory as tensors need it, up to {format_bytes(each.memory_limit)}; a "
        "second pool holds memory for transfers to and from a GPU."
    )


def _gpu(each: PlannedDevice) -> str:
    gpu = each.physical
    how_much = (
        f"{each.name.short} takes {'up to ' if each.options.allow_growth else ''}{format_bytes(each.memory_limit)} "
        f"of {gpu.name} ({gpu.description}{_ordinal(each)})."
    )
    sentences = [how_much, _when(each), f"Why: {' '.join(each.because)}"]
    if each.unified:
        over = max(0, each.memory_limit - gpu.total_bytes)
        sentences.append(
            f"The memory is unified: it may exceed the GPU's memory by {format_bytes(over)}; pages move between the "
            "GPU and the host, which is slow."
            if over
            else "The memory is unified: pages move between the GPU and the host as they are used."
        )
    return " ".join(sentences)


def _ordinal(each: PlannedDevice) -> str:
    gpu = each.physical
    return "" if gpu.name.endswith(f":{gpu.ordinal}") else f", number {gpu.ordinal} of the machine"


def _when(each: PlannedDevice) -> str:
    if not each.options.allow_growth:
        return "When: all at once with the first tensor; it is kept until the session ends."
    first = min(each.memory_limit, 2 * MiB)
    back = (
        "free regions are released only when a request would fail"
        if each.options.garbage_collection
        else "no region is released before the session ends"
    )
    return f"When: {format_bytes(first)} with the first tensor, then twice as much each time more is needed; {back}."

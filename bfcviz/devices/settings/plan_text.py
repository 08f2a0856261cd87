"""Words for a plan: how much a device will take, when, and why."""

from collections.abc import Sequence

from bfcviz.devices.settings.plan import Planned
from bfcviz.units import MiB, format_bytes


class Explanation(str):
    """Text that a notebook shows as it is."""

    __slots__ = ()

    def _repr_pretty_(self, printer: "object", cycle: bool) -> None:  # noqa: ARG002, FBT001  IPython's call
        printer.text(str(self))  # type: ignore[attr-defined]


def explain(planned: Sequence[Planned], hidden: Sequence[str], notes: Sequence[str]) -> Explanation:
    """A paragraph for each device, and one for what cannot be seen.

    Args:
        planned: the devices.
        hidden: names of physical devices that are not visible.
        notes: where the settings came from.
    """
    paragraphs = [*notes]
    paragraphs += [_cpu(each) if each.name.device_type == "CPU" else _gpu(each) for each in planned]
    if all(each.name.device_type != "GPU" for each in planned):
        paragraphs.append("There is no GPU to take memory of.")
    if hidden:
        paragraphs.append(f"Not visible, and not touched: {', '.join(hidden)}.")
    paragraphs += dict.fromkeys(sentence for each in planned for sentence in each.ignored)
    return Explanation("\n\n".join(paragraphs))


def _cpu(each: Planned) -> str:
    return (
        f"{each.name.short} takes memory of the machine ({format_bytes(each.memory_limit)}) as tensors need it, and "
        "from a pool beside it what a GPU copies from or to."
    )


def _gpu(each: Planned) -> str:
    gpu = each.physical
    how_much = (
        f"{each.name.short} takes {'up to ' if each.options.allow_growth else ''}{format_bytes(each.memory_limit)} "
        f"of {gpu.name} ({gpu.description}{_ordinal(each)})."
    )
    sentences = [how_much, _when(each), f"Why: {' '.join(each.because)}"]
    if each.unified:
        over = max(0, each.memory_limit - gpu.total_bytes)
        sentences.append(
            f"The memory is unified: {format_bytes(over)} more than the GPU has may be used, and pages move between it "
            "and the host, slowly."
            if over
            else "The memory is unified: pages move between the GPU and the host as they are used."
        )
    return " ".join(sentences)


def _ordinal(each: Planned) -> str:
    gpu = each.physical
    return "" if gpu.name.endswith(f":{gpu.ordinal}") else f", number {gpu.ordinal} of the machine"


def _when(each: Planned) -> str:
    if not each.options.allow_growth:
        return "When: all of it at once, with the first tensor, and until the session ends."
    first = min(each.memory_limit, 2 * MiB)
    back = (
        "free regions go back only where a request would fail otherwise"
        if each.options.garbage_collection
        else "none goes back before the session ends"
    )
    return f"When: {format_bytes(first)} with the first tensor, twice as much each time that is not enough; {back}."

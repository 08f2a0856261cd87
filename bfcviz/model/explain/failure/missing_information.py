"""What the trace does not say, and what to run again to know it."""

from collections.abc import Iterator

from bfcviz.model.explain.failure.diagnosis import Advice, AdviceKind, Diagnosis, Verdict
from bfcviz.model.explain.failure.framework_words import WORDS


def missing_information(found: Diagnosis) -> Iterator[Advice]:
    """One advice for each gap that matters to this diagnosis."""
    words = WORDS[found.settings.family]
    if not found.recorded.has_heap:
        yield _rerun(
            f"The chunks of that moment are not in the file. Run again with {words.heap} to record them.",
            heap=0,
        )
        return
    if found.verdict is Verdict.UNKNOWN and not found.knows("largest_free_chunk"):
        yield _rerun(
            f"The file does not say what was free. Run again with {words.heap} to record the chunks of a failure.",
            heap=0,
        )
    elif found.verdict is Verdict.UNKNOWN:
        yield _rerun(
            "The file does not show why a free chunk that is large enough was not taken. Run again with "
            f"{words.history} to record every event before the failure.",
            largest_free_chunk=found.largest_free_chunk,
        )
    pins = [pin for run in found.runs for pin in run.pins]
    unnamed = sum(not pin.label for pin in pins)
    lacking = [
        *(["how old they are"] if pins and found.is_state_only else []),
        *([f"who holds {unnamed:,} of them"] if unnamed else []),
    ]
    if lacking:
        yield _rerun(
            f"The file does not say of the {len(pins):,} chunks in the way {' and '.join(lacking)}. Run again with "
            f"{words.history}.",
            chunks=len(pins),
            unnamed=unnamed,
        )
    if (
        found.bytes_limit is None
        and found.verdict is not Verdict.NO_FAILURE
        and found.recorded.device_free is None
    ):
        yield _rerun(
            "The file states neither a limit nor the free memory of the device, so it is not known whether the pool "
            "could grow. Record with bfcviz, or print the device's free memory beside the failure (nvidia-smi).",
            pool_bytes=found.pool_bytes,
        )


def _rerun(text: str, **numbers: float) -> Advice:
    return Advice(AdviceKind.RERUN, text, numbers)

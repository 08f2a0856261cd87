"""Read a profile of TensorFlow or XLA (`xplane.pb`, plain or gzip)."""

from pathlib import Path

from bfcviz.events.origin import Origin, Status
from bfcviz.events.trace import Trace
from bfcviz.importers.file_content import read_content
from bfcviz.importers.file_format import Format
from bfcviz.importers.limits import Limits
from bfcviz.importers.protobuf_wire import Wire
from bfcviz.importers.tensorflow.memory_events import collect_requests
from bfcviz.importers.tensorflow.profile_messages import read_space
from bfcviz.importers.tensorflow.reconstruct import reconstruct


def read_profile(path: Path) -> Trace:
    """The trace in a profile of TensorFlow or XLA; `origin.details` holds the checks of its reconstruction.

    Raises:
        FileError: it cannot be read, is corrupt, or holds no events of a BFC heap.
    """
    limits = Limits.of(path)
    content = read_content(path)
    space = read_space(Wire(path, content.data, limits))
    missing = tuple(cut for cut in (content.cut, space.cut) if cut is not None)
    recorded = collect_requests(space, path)
    rebuilt = reconstruct(recorded)
    left_out = tuple(f"left out: {count} {what}" for what, count in recorded.left_out.items())
    problems = left_out + rebuilt.reasons
    status = Status.DEGRADED if problems else Status.TRUNCATED if missing else Status.COMPLETE
    origin = Origin(
        format=Format.XPLANE.value,
        source=path.name,
        status=status,
        reasons=missing + problems,
        pools=rebuilt.pools,
        details={
            "checks": list(rebuilt.checks),
            "facts": list(rebuilt.facts),
            "threads": {str(number): name for number, name in recorded.threads.items()},
        },
    )
    return Trace.from_events(rebuilt.events, recorded.labels, origin)

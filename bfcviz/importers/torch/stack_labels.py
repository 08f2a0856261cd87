"""StackLabels: the labels of a snapshot's allocations, each made once."""

from collections.abc import Mapping
from typing import Any, Final

from bfcviz.code_places import CodePlace
from bfcviz.events.labels import MAX_LABEL_BYTES, Labels
from bfcviz.importers.limits import TEXT
from bfcviz.importers.torch.allocation_history import EntrySource, TraceRows, number_of, pool_words, words_in
from bfcviz.live.torch.segments_and_blocks import with_frames
from bfcviz.live.torch.stack_names import stack_words

_LONGEST: Final = MAX_LABEL_BYTES // 8  # JSON escapes a character with up to 6 bytes


class StackLabels:
    """Interns where entries and blocks come from: name, stack, compile context, private pool.

    Args:
        labels: the table.
        rows: has the stacks.
        file_size: bytes; the text of all stacks together has a limit in proportion.

    Attributes:
        without_stack: labels whose stack was left out, because of the limit.
    """

    def __init__(self, labels: Labels, rows: TraceRows, file_size: int) -> None:
        self.without_stack = 0
        self._labels = labels
        self._rows = rows
        self._most = TEXT.most(file_size)
        self._characters = 0
        self._numbers: dict[EntrySource, int] = {}

    def of_block(self, block: Mapping[str, Any], segment: Mapping[str, Any]) -> int:
        """The label of a block in use."""
        stack = number_of(with_frames(block).get("frames"))
        metadata, context = words_in(block.get("user_metadata")), words_in(block.get("compile_context"))
        return self.of(EntrySource(stack, metadata, context, pool_words(segment.get("segment_pool_id"))))

    def of_row(self, source: int, pool: str = "") -> int:
        """The label of an entry, by its `TraceRows.source`; `pool`: of its segment, if the entry does not say it."""
        found = self._rows.sources[source]
        return self.of(found if found.pool or not pool else found._replace(pool=pool))

    def of(self, source: EntrySource) -> int:
        """The label of a source; 0 if nothing is known of it."""
        known = self._numbers.get(source)
        if known is None:
            known = self._numbers[source] = self._intern(source)
        return known

    def _intern(self, source: EntrySource) -> int:
        metadata, context = source.metadata, source.context
        lines = [
            CodePlace(frame.name, frame.filename, frame.line) for frame in self._rows.stacks[source.stack]
        ]
        if not self._fits(lines, metadata, context):
            self.without_stack += 1
            lines = lines[:1]
            if not self._fits(lines, metadata, context):
                lines, metadata, context = [], "", ""
        name, stack = stack_words(metadata, lines)
        details = {"stack": stack, "compile_context": context, "private_pool": source.pool}
        details = {key: text for key, text in details.items() if text}
        return self._labels.intern(name, **details) if name or details else 0

    def _fits(self, lines: list[CodePlace], *texts: str) -> bool:
        """Count the characters of a label, if the limits allow them."""
        length = sum(len(line.file) + len(line.function) + 16 for line in lines) + sum(map(len, texts))
        if length > _LONGEST or self._characters + length > self._most:
            return False
        self._characters += length
        return True

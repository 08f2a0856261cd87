"""Every text of every framework about memory that ran out, in one table."""

from typing import Final

from bfcviz.formats import cupy, driver, ggml, onnxruntime, paddle, rmm, tensorflow, torch, vllm, xla
from bfcviz.formats.messages import Message

TABLES: Final[tuple[Message, ...]] = (
    *driver.MESSAGES,
    *torch.MESSAGES,
    *xla.MESSAGES,
    *onnxruntime.MESSAGES,
    *tensorflow.MESSAGES,
    *cupy.MESSAGES,
    *rmm.MESSAGES,
    *ggml.MESSAGES,
    *paddle.MESSAGES,
    *vllm.MESSAGES,
)
"""Of two texts that begin at one place, the first counts."""

ENTRIES: Final = {entry.name: entry for entry in TABLES}
"""Name of an entry -> the entry."""


def counts(message: str, fact: str) -> str:
    """What a number of a text counts; "" where no table says it.

    Args:
        message: name of the entry that told the failure.
        fact: name of the number.
    """
    mine = ENTRIES[message]
    near = [mine, *(entry for entry in TABLES if entry.family and entry.family == mine.family), *TABLES]
    return next((number.counts for entry in near for number in entry.numbers if number.name == fact), "")


def page() -> str:
    """The page on what each text means, as Markdown."""
    lines = []
    for framework in dict.fromkeys(entry.framework for entry in TABLES):
        lines += [f"### {framework}", ""]
        for entry in TABLES:
            if entry.framework == framework:
                lines += _section(entry)
    return "\n".join(lines).rstrip() + "\n"


def _section(entry: Message) -> list[str]:
    begins = " or ".join(f"`{_shown(text)}`" for text in entry.begins[:3])
    lines = [f"**{begins}** ({entry.source}). {entry.means}", ""]
    if entry.numbers:
        lines += ["| number | what it counts | name in `--json` |", "| --- | --- | --- |"]
        lines += [
            f"| `{_shown(number.texts[0])}` | {number.counts} | `{number.name}` |" for number in entry.numbers
        ]
        lines.append("")
    return lines


def _shown(text: str) -> str:
    """A template as a person reads it."""
    for place in ("{size}", "{number}", "{skip}", "{word}"):
        text = text.replace(place, "...")
    return text.replace("{sep}", ": ").replace("|", r"\|")

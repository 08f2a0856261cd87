"""The command line of a recorded process, with the values masked that look like keys, tokens or passwords."""

import re
from collections.abc import Sequence
from typing import Final

MASK: Final = "***"

_NAME: Final = (
    r"(?:api|access|auth|secret|private|encryption|account|license|wandb|client)[-_.]?(?:key|secret)(?:[-_.]?id)?"
    r"|(?:[a-z]+[-_.])?(?:token|password|passwd|passphrase|secret|secrets|credential|credentials|pwd|apikey)"
)
"""The end of the name of an option, variable or parameter with a secret."""

_OPTION: Final = re.compile(rf"--?(?:[\w.]+[-_.])*(?:{_NAME}|key|pass|auth|bearer)", re.IGNORECASE)
"""An option whose value is the next word."""

_NEXT_OPTION: Final = re.compile(r"--|-\w$")

_ASSIGNED: Final = re.compile(
    rf"""((?:{_NAME}|(?<!\w)key)["']?\s*[=:]\s*["']?)(?![\s"'])[^\s"'&;,)}}\]]+""", re.IGNORECASE
)
"""`--token=X`, `PASSWORD=X`, `wandb.api_key=X`, `?token=X&`, `"secret": "X"`, `login(key='X')` with such a name."""

_QUOTED: Final = re.compile(
    rf"""((?:{_NAME}|(?<!\w)key)["']?\s*[=:]\s*(["'])).+?(?=\2)""", re.IGNORECASE | re.DOTALL
)
"""The same with a value in quotes, which may hold blanks and commas."""

_WHOLE: Final = re.compile(
    rf"((?:--?)?(?:[\w.-]*(?:{_NAME})|(?:[\w.]+[-_.])*key)=).+", re.IGNORECASE | re.DOTALL
)
"""A word that is an option or variable with such a name, and its value: all of it, whatever is in it."""

_SAFE_URL: Final = re.compile(r"(?<=://)(?:[^/\s@'\"]+|[^/\s@'\":]+:[^\s@'\"]+)(?=@)")
_BEARER: Final = re.compile(r"\b(bearer|basic|token)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_KEY: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:hf|gh[opsur]|github_pat|glpat|pypi|npm|sk|pk|rk|xox[a-z]|dckr_pat|wandb_v1|nvapi|gsk|r8)[-_][\w-]{8,}"
    r"|A[KS]IA[0-9A-Z]{12,}|AIza[\w-]{20,}|eyJ[\w-]{10,}(?:\.[\w-]+)+|[0-9a-f]{32,}"
    r"|(?=[A-Z0-9]*[a-z])(?=[a-z0-9]*[A-Z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{32,}"
    r")(?![A-Za-z0-9])"
)
"""Keys by their form: those of Hugging Face, GitHub, GitLab, OpenAI, AWS, Google and others, JSON web tokens, and long
words of random characters."""


def without_secrets(words: Sequence[str]) -> list[str]:
    """The words of a recorded command; a value is `***` if it looks like a secret, or its option's name says so."""
    found = []
    is_secret = False
    for word in words:
        is_value = is_secret and not _NEXT_OPTION.match(word)
        found.append(MASK if is_value else _masked_command_word(word))
        is_secret = _OPTION.fullmatch(word) is not None
    return found


def _masked_command_word(word: str) -> str:
    """A word of the recorded process's command, with the secrets in it masked."""
    if whole := _WHOLE.fullmatch(word):
        return f"{whole[1]}{MASK}"
    word = _SAFE_URL.sub(MASK, word)
    word = _BEARER.sub(rf"\1 {MASK}", word)
    word = _ASSIGNED.sub(rf"\1{MASK}", _QUOTED.sub(rf"\1{MASK}", word))
    return _KEY.sub(MASK, word)

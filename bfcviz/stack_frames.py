"""The frames of a stack, as text: the one that names an allocation, and those that explain it.

The rank of a frame decides: the reader's own Python code, then Python code of libraries, then compiled code that
computes; then what only passes a call on; last what records, unwinds, allocates or interprets.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

_FRAME: Final = re.compile(r"^(?P<function>.*) \((?P<file>.*):(?P<line>\d{1,9})\)$")
_INSTALLED: Final = re.compile(
    r".*[/\\](?:(?:site|dist)-packages|lib[/\\]python3[^/\\]*)[/\\](?:(?P<package>[^/\\]+)[/\\])?"
    r"|<(?:frozen |__array_function__)"
)
_NAMED_AS_LIBRARY: Final = re.compile(r"[/\\](?:torch|tensorflow|jax|numpy|cupy)[/\\]")
"""A library that was built in place, such as /opt/pytorch/torch; or a folder of the user's."""
_PYTHON: Final = (".py", ">", "]")  # In[5]: a cell of a notebook
_DISPATCHERS: Final = re.compile(  # Python files that pass on what others call
    r"[/\\]torch[/\\](?:nn[/\\]modules[/\\]module|_ops|utils[/\\]_contextlib|_dynamo[/\\]\w+|_functorch[/\\]\w+)\.py$"
    r"|[/\\]jax[/\\]_src[/\\](?:core|pjit|api|linear_util|traceback_util|dispatch|profiler|interpreters[/\\]\w+)\.py$"
    r"|[/\\]lib[/\\]python3[^/\\]*[/\\](?:threading|runpy|functools|contextlib)\.py$|^<frozen "
)
_PASSES_ON: Final = re.compile(  # compiled functions that do
    r"^c10::(?:impl::|Dispatcher|KernelFunction|BoxedKernel|OperatorHandle)|::wrapper_[A-Z]|::redispatch$"
    r"|^torch::autograd::(?:VariableType::|THPVariable_|Node::operator|Engine::|python::PythonEngine|TypeError_to_)"
    r"|^at::(?:_ops|functorch|autocast|indexing)::"
)
_MACHINERY: Final = re.compile(
    r"CachingAllocator|CachingHostAllocator|BFCAllocator|gather_with_cpp|CapturedTraceback|CurrentStackTrace"
    r"|^torch::unwind::|^c10::(?:StorageImpl|Storage|Allocator|DataPtr|make_storage_impl)\b"
    r"|^at::(?:empty|native::empty_|detail::|meta::|TensorIterator)|::create_out$|::set_output_(?:raw_)?strided$"
    r"|^std::|^operator new"
    r"|^_?Py(?:[A-Z]|_[A-Z])|^(?:method_vectorcall|cfunction_|slot_|vectorcall_|object_vacall|run_eval_code_obj"
    r"|run_mod|pyrun_|pymain_|do_call_core|type_call|thread_run|pythread_|start_thread|execute_native_thread)"
    r"|^(?:clone3?|_start|main)$|^__libc_start"
)
_GRADIENT: Final = re.compile(r"::(\w+Backward\d*)(?:_apply_functional)?(?:::|$)")
_OPERATION: Final = re.compile(
    r"(?:^torch::autograd::VariableType::|^at::_ops::|::wrapper_[A-Za-z]+_(?:memory_format_)?)(?P<name>\w+)"
)
_OVERLOAD: Final = re.compile(r"(?<=\w)_[A-Z]\w*$")
_NAME: Final = re.compile(r"^(?:.*? )?([^ (]+)\(")  # before its parameters
_TEMPLATE: Final = re.compile(r"<[^<>]*>")
_DEEPEST: Final = 16  # templates inside templates
_LONGEST_SIGNATURE: Final = 4000  # characters; of a longer one the rest is not read
_CELL: Final = re.compile(r"[/\\]ipykernel_\d+[/\\]\d+\.py$")
UNKNOWN_FILE: Final = "??"
"""The file of a frame that PyTorch could not find."""


class CodePlace(NamedTuple):
    """A frame of a stack.

    Attributes:
        function: its name, qualified or not: `Net.forward`, `<module>`.
        file: its path as the program knows it; `??` or empty: unknown.
        line: 0: unknown.
    """

    function: str
    file: str
    line: int

    @property
    def text(self) -> str:
        """The frame as a line of a stack: `forward (/home/me/train.py:41)`."""
        return f"{self.function} ({self.file}:{self.line})"

    @property
    def name(self) -> str:
        """The short name of a frame: `train.py:41 forward`; `train.py:41` in no function; if compiled, the function.

        Of a library's file with the package: `pandas: frame.py:12 merge`.
        """
        if not self.is_python and not self.line:
            return _without_types(self.function)
        file = "cell" if _CELL.search(self.file) else self.file.replace("\\", "/").rpartition("/")[2]
        line = f":{self.line}" if self.line else ""
        return f"{self._package}{file}{line} {self._scope}".rstrip()

    @property
    def _package(self) -> str:
        """The package of a frame: `pandas: ` for a file of a package or of Python's library; else empty."""
        found = _INSTALLED.match(self.file)
        return f"{found['package']}: " if found and found["package"] else ""

    @property
    def is_python(self) -> bool:
        """Whether the frame is of Python code."""
        return self.file.endswith(_PYTHON)

    @property
    def _scope(self) -> str:
        """Of a frame: the function around a lambda or comprehension; empty at module level."""
        scopes = self.function.split(".<locals>.")
        return next((scope for scope in reversed(scopes) if not scope.startswith("<")), "")


def own_place(places: Iterable[CodePlace]) -> CodePlace | None:
    """The first frame of the highest rank: in Python code outside of libraries, else in that of libraries, and so on.

    A folder `torch` or `jax` may be a library that was built in place, or the user's: it comes between. `places` is a
    stack, the innermost frame first.
    """
    return max(places, key=_code_place_rank, default=None)


def holder_name(places: Sequence[CodePlace]) -> str:
    """The name of what a stack allocates, for a person: the line of the program, else what the library was asked for.

    Frames that record, allocate, unwind or pass calls on never name it. Without a frame of Python code it is the
    operation: `torch.bmm, no Python stack`; `BmmBackward0, no Python stack` for a gradient. Empty for no stack. The
    innermost frame of `places` is first.
    """
    best = own_place(places)
    if best is None or (best.is_python and _code_place_rank(best) >= _COMPUTES):
        return "" if best is None else best.name
    functions = [_without_types(place.function) for place in places if not place.is_python]
    operation = _operation_of_code_frames(functions) or (
        best.name if _code_place_rank(best) >= _COMPUTES else "compiled code"
    )
    return f"{operation}, no Python stack"


def _operation_of_code_frames(functions: Sequence[str]) -> str:
    """What the compiled frames of a stack compute: the gradient, or else the outermost operation; empty: unknown."""
    gradients = [found[1] for each in functions if (found := _GRADIENT.search(each))]
    if gradients:
        return gradients[-1]
    operations = [found["name"] for each in functions if (found := _OPERATION.search(each))]
    name = _OVERLOAD.sub("", operations[-1]) if operations else ""
    return f"torch.{name}" if name else ""


def told_frames(stack: str) -> list[str]:
    """The lines of a stack without those that only record, allocate, unwind or pass calls on."""
    lines = [line for line in stack.split("\n") if line]
    return [
        line
        for line in lines
        if (place := _code_place_of_line(line)) is None or _code_place_rank(place) >= _COMPUTES
    ]


def places_of(stack: str) -> list[CodePlace]:
    """The frames of a stack as text; lines of another form are left out."""
    return [place for place in map(_code_place_of_line, stack.split("\n")) if place]


def telling_lines(stack: str, most: int) -> tuple[list[str], int]:
    """The lines of a stack that tell a reader most, and the number of its other lines.

    The reader's own frames come first, then those of libraries, then compiled functions, without their types; in each
    group the innermost is first. What only records, allocates or passes calls on is left out, unless there is nothing
    else.

    Args:
        stack: a frame a line, the innermost first.
        most: lines to return.
    """
    lines = [line for line in stack.split("\n") if line]
    places = [_code_place_of_line(line) for line in lines]
    ranks = [_COMPUTES if place is None else _code_place_rank(place) for place in places]
    telling = [at for at, rank in enumerate(ranks) if rank >= _COMPUTES] or range(len(lines))
    chosen = sorted(telling, key=lambda at: -ranks[at])[:most]
    shown = (lines[at] if (place := places[at]) is None or place.is_python else place.name for at in chosen)
    return list(shown), len(lines) - len(chosen)


def python_and_compiled(stack: str) -> tuple[list[str], list[str]]:
    """All lines of a stack: those of Python code, and those of compiled code; in each the innermost is first."""
    lines = [line for line in stack.split("\n") if line]
    python = [(place := _code_place_of_line(line)) is None or place.is_python for line in lines]
    of_python = [line for line, known in zip(lines, python, strict=True) if known]
    return of_python, [line for line, known in zip(lines, python, strict=True) if not known]


def _code_place_of_line(line: str) -> CodePlace | None:
    match = _FRAME.match(line)
    return None if match is None else CodePlace(match["function"], match["file"], int(match["line"]))


_COMPUTES: Final = 2
"""The lowest rank of a frame that tells something."""
_OWN: Final = 5
"""The rank of Python code outside of libraries, the highest."""


def is_own(place: CodePlace) -> bool:
    """Whether a frame is in Python code outside of libraries."""
    return _code_place_rank(place) == _OWN


@lru_cache(maxsize=8192)
def _code_place_rank(place: CodePlace) -> int:
    if place.is_python:
        if _DISPATCHERS.search(place.file):
            return 1
        if _INSTALLED.match(place.file):
            return 3
        return 4 if _NAMED_AS_LIBRARY.search(place.file) else _OWN
    function = _without_types(place.function)
    if _MACHINERY.search(function):
        return 0
    return 1 if place.file == UNKNOWN_FILE or _PASSES_ON.search(function) else _COMPUTES


def _without_types(function: str) -> str:
    """The compiled function of a frame without result, parameters and template arguments: `at::native::copy_`."""
    name = function[:_LONGEST_SIGNATURE].replace("(anonymous namespace)::", "").partition("::{lambda")[0]
    for _ in range(_DEEPEST):
        if "<" not in name:
            break
        name = _TEMPLATE.sub("", name)
    found = _NAME.match(name.replace("operator()", "operator"))
    return (found[1] if found else name).partition("<")[0] or function


class StackWords(NamedTuple):
    """`name` of an allocation, and its whole `stack` as text, the innermost line first; empty where unknown."""

    name: str
    stack: str


def stack_words(metadata: str, frames: Sequence[CodePlace]) -> StackWords:
    """The name and stack of an allocation: the name is the metadata that the user set, or that of the holder."""
    return StackWords(
        metadata or holder_name(frames),
        "\n".join(frame.text for frame in frames if frame.file != UNKNOWN_FILE),
    )


def place_in_code(stack: str) -> str:
    """`train.py:42 step`: the innermost frame outside of libraries, or else the innermost one; empty for no stack."""
    return holder_name(places_of(stack)) or stack.split("\n", 1)[0].strip()


def shown_file(path: str) -> str:
    """The path of the file of a frame; of a cell of a notebook its number: `In[5]`."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)
    cell = name_of(path)  # ("Cell", "In[5]"), or None
    return path if cell is None else str(cell[1])


# ------------------------------------------------------------------------------
# Names from the code that a frame was generated from, or that a gradient belongs to.

_TRACEBACK_LINE: Final = re.compile(
    r'File "(?P<file>[^"\n]{1,4000})", line (?P<line>\d{1,9}), in (?P<function>[^\n]{1,400})'
)


def places_of_traceback(text: str) -> list[CodePlace]:
    """The frames of a Python traceback, which has the innermost last; here it is first."""
    found = [
        CodePlace(line["function"].strip(), line["file"], int(line["line"]))
        for line in _TRACEBACK_LINE.finditer(text)
    ]
    return found[::-1]


def stack_of_traceback(text: str) -> str:
    """A Python traceback as a stack, a frame a line; text of another form as it is."""
    return "\n".join(place.text for place in places_of_traceback(text)) or text.strip()


def name_beside_frames(lines: list[CodePlace], origin: str, forward: str) -> str:
    """The program's line that generated code was made from, or that a gradient without Python frames belongs to."""
    if compiled := own_place(places_of_traceback(origin)):
        return compiled.name
    place = own_place(places_of_traceback(forward))
    own = own_place(lines)
    return "" if place is None or (own is not None and is_own(own)) else f"gradient of {place.name}"

"""ArrayNames: the label of an array, from the Python stack that JAX keeps with it: `train.py:41 forward`.

JAX keeps the stack of the call that made an array (`Array.traceback`). The lines inside a function under `jax.jit` are
not in it, because the compiled program does not run them: its results have the line that calls the function.
"""

from typing import Any

from bfcviz.code_places import CodePlace, own_place
from bfcviz.events.labels import Labels
from bfcviz.live.capture.stacks import DEEPEST, MOST, shown_file


class ArrayNames:
    """Interns a label for each stack, shape and data type; the frames of a stack are read once.

    JAX's stacks are compared by their code and position, not by identity; they keep no frame and no array alive.
    """

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._stacks: dict[Any, tuple[str, str]] = {}
        self._numbers: dict[Any, int] = {}

    def number(self, stack: Any, shape: tuple[int, ...], data_type: Any, devices: int = 1) -> int:
        """The number of the label.

        Args:
            stack: JAX's traceback; None: JAX has none.
            shape: of the whole array.
            data_type: NumPy's or JAX's.
            devices: how many devices the array lies on.
        """
        key = (stack, shape, data_type, devices)
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= MOST:  # shapes and recursion can make any number
                self._numbers.clear()
                self._stacks.clear()
            number = self._numbers[key] = self._intern(*key)
        return number

    def _intern(self, stack: Any, shape: tuple[int, ...], data_type: Any, devices: int) -> int:
        details = {"shape": f"[{','.join(map(str, shape))}]", "data_type": str(data_type)}
        if devices > 1:
            details["devices"] = str(devices)
        name, text = self._words(stack)
        if text:
            details["stack"] = text
        return self._labels.intern(name or f"{data_type}{details['shape']}", **details)

    def _words(self, stack: Any) -> tuple[str, str]:
        """The name and the text of a stack; both empty if there is none."""
        if stack is None:
            return "", ""
        words = self._stacks.get(stack)
        if words is None:
            frames = [
                CodePlace(frame.function_name, shown_file(frame.file_name), frame.line_num)
                for frame in stack.frames[:DEEPEST]
            ]
            own = own_place(frames)
            words = ("" if own is None else own.name, "\n".join(frame.text for frame in frames))
            self._stacks[stack] = words
        return words

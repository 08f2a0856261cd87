"""`bfcviz.hooks`: what trainers call. Steps, epochs and phases become marks; a report comes at the end or the failure.

::

    from bfcviz import hooks

    model.fit(data, callbacks=[hooks.keras(jax=True)])                      # Keras, here on JAX
    lightning.Trainer(callbacks=[hooks.lightning()])                        # PyTorch Lightning
    transformers.Trainer(model, callbacks=[hooks.transformers("run")])      # Hugging Face, recorded to a folder
    accelerate.Accelerator(log_with=hooks.accelerate())                     # a step for each `accelerator.log`

    with hooks.loop(jax=True) as loop:                                      # any other loop: JAX, Flax, NumPy ...
        for batch in loop.steps(batches):
            state = train_step(state, batch)

All take the same arguments: `path`, a folder to record to, and the options of `bfcviz.flight_recorder`. Without a path
the newest events are kept in memory, and written when memory runs out. Where the program is watched already, as by
`bfcviz record` or in a `with bfcviz.watch(...)`, a hook without arguments only adds the marks.

Each rank that torchrun, MPI or Slurm started records for itself, named by its rank; the first one prints the report.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar

from bfcviz.errors import LiveError
from bfcviz.live.labels_and_marks import is_watched, mark, phase
from bfcviz.live.process_names import name_of_process, rank_of_process
from bfcviz.terminal import say
from bfcviz.units import counted
from bfcviz.watching.flight_recorder import FlightRecorder, flight_recorder
from bfcviz.watching.watch_reports import Report

T = TypeVar("T")

_STEP: Final = "step"
_EPOCH: Final = "epoch"
_VALIDATION: Final = "validation"
_BACKWARD: Final = "backward"


class Loop:
    """A training loop whose steps are marked; it watches from `start` to `stop`, or in a `with`.

    Args:
        path: a folder to record to; None: the newest events in memory, written when memory runs out.
        options: of `bfcviz.flight_recorder`, such as `torch=True`.

    Attributes:
        recorder: what watches; None: the program was watched already, or the loop has not begun.
        report: the peak of the first heap, when the loop has ended without an error.
        count: steps so far.
    """

    _running: ClassVar["Loop | None"] = None

    def __init__(self, path: str | os.PathLike[str] | None = None, **options: Any) -> None:
        self.recorder: FlightRecorder | None = None
        self.report: Report | None = None
        self.count = 0
        self._arguments = (path, options)
        self._phases: list[phase] = []

    def start(self) -> Self:
        """Begin to watch the training loop; a loop that an error ended without a word to its hook ends now.

        Raises:
            LiveError: something is watched already, and options ask for more; or as `bfcviz.flight_recorder`.
        """
        if Loop._running is not None:
            Loop._running.stop()
        path, options = self._arguments
        if path is not None:
            options = {"path": Path(path) / name_of_process(os.environ), **options}
        if options or not is_watched():
            self.recorder = flight_recorder(**options)
        self.count, self.report = 0, None
        Loop._running = self
        return self

    def stop(self, error: BaseException | None = None) -> None:
        """End the watch of the training loop, with its error; without one print the report, in the first rank."""
        if Loop._running is not self:
            return
        Loop._running = None
        while self._phases:
            self._phases.pop().__exit__(None, None, None)
        if self.recorder is None:
            return
        self.recorder.stop(error)
        if error is None and self.recorder.watch.traces:
            self.report = self.recorder.watch.report()
            if rank_of_process(os.environ) in {"", "0"}:
                folder = self.recorder.watch.folder
                where = "" if folder is None else f", recorded to {folder}: bfcviz view {folder}"
                steps = counted(self.count, "step")
                say(f"bfcviz: {steps}{where}", *str(self.report).splitlines(), file=sys.stderr)

    def step(self) -> None:
        """Mark the end of a step of the training loop."""
        self.count += 1
        mark(_STEP, self.count)

    def steps(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches of the training loop; the end of each is marked, but not of one left by `break`."""
        for batch in batches:
            yield batch
            self.step()

    def epochs(self, numbers: Iterable[T]) -> Iterator[T]:
        """The numbers of epochs of the training loop, or other things; the end of each is marked."""
        for count, number in enumerate(numbers, 1):
            yield number
            mark(_EPOCH, count)

    def begin(self, name: str) -> None:
        """Mark the begin of a phase of the training loop. Unlike `bfcviz.phase` this labels no allocations."""
        self._phases.append(phase(name, label_it=False))
        self._phases[-1].__enter__()

    def end(self, name: str) -> None:
        """Mark the end of a phase of the training loop, and of those that began in it; nothing if it has not begun."""
        if self.in_phase(name):
            while (inner := self._phases.pop()).name != name:
                inner.__exit__(None, None, None)
            inner.__exit__(None, None, None)

    def in_phase(self, name: str) -> bool:
        """Whether this phase of the training loop has begun, and not ended."""
        return any(each.name == name for each in self._phases)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(error)


loop = Loop
"""A loop of your own, in a `with`."""


# ------------------------------------------------------------------------------
# The callbacks: what each event of a trainer is for the loop. Their classes are made when they are asked for: only then
# is their library loaded. A process that a trainer starts gets the arguments, and makes its own.

_Acts = Mapping[str, Callable[..., object]]
"""Name of a method of a callback -> what it does, called with the loop and the arguments of the method."""


def keras(path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """A callback for `fit` of Keras 3, which has `loop`: a `Loop`.

    Keras does not tell callbacks of an error: one that ends the program is written then, one that the program handles
    with the next `fit`. Name the framework that Keras runs on: `jax=True`, `torch=True`. TensorFlow cannot be watched
    from inside: use `bfcviz record --tensorflow`.

    Raises:
        LiveError: Keras is not installed; or, when `fit` begins, it runs on TensorFlow and no other is named.
    """
    library = _trainer_library("Keras", "keras")

    def start(loop: Loop, *_: Any) -> None:
        if library.backend.backend() == "tensorflow" and not (options or is_watched()):
            raise LiveError(
                "Keras runs on TensorFlow, which cannot be watched from inside: record the program with "
                "`bfcviz record --tensorflow -- python ...`, or name what to watch, such as hooks.keras(numpy=True)"
            )
        loop.start()

    acts: _Acts = {
        "on_train_begin": start,
        "on_train_batch_end": lambda loop, *_: loop.step(),
        "on_epoch_end": lambda _, epoch, *__: mark(_EPOCH, epoch + 1),
        "on_test_begin": lambda loop, *_: loop.begin(_VALIDATION),
        "on_test_end": lambda loop, *_: loop.end(_VALIDATION),
        "on_train_end": lambda loop, *_: loop.stop(),
    }
    return _made_hook("keras", library.callbacks.Callback, acts, path, options)


def lightning(path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """A callback for `fit` of PyTorch Lightning, which has `loop`: a `Loop`.

    Raises:
        LiveError: Lightning is not installed.
    """
    library = _trainer_library("PyTorch Lightning", "lightning.pytorch", "pytorch_lightning")
    acts: _Acts = {
        "on_fit_start": lambda loop, *_: loop.start(),
        "on_train_batch_end": lambda loop, *_: loop.step(),
        "on_train_epoch_end": lambda _, trainer, *__: mark(_EPOCH, trainer.current_epoch + 1),
        "on_before_backward": lambda loop, *_: loop.begin(_BACKWARD),
        "on_after_backward": lambda loop, *_: loop.end(_BACKWARD),
        "on_validation_start": lambda loop, *_: loop.begin(_VALIDATION),
        "on_validation_end": lambda loop, *_: loop.end(_VALIDATION),
        "on_exception": lambda loop, _, __, error: loop.stop(error),
        "on_fit_end": lambda loop, *_: loop.stop(),
    }
    return _made_hook("lightning", library.Callback, acts, path, options)


def transformers(path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """A callback for the `Trainer` of Hugging Face Transformers, which has `loop`: a `Loop`.

    The trainer does not tell callbacks of an error: one that ends the program is written then, one that the program
    handles with the next `train`.

    Raises:
        LiveError: Transformers is not installed.
    """
    library = _trainer_library("Hugging Face Transformers", "transformers")
    acts: _Acts = {
        "on_train_begin": lambda loop, *_: loop.start(),
        "on_step_end": lambda loop, *_: loop.step(),
        "on_epoch_end": lambda _, __, state, *___: mark(_EPOCH, round(state.epoch)),
        "on_prediction_step": lambda loop, *_: loop.in_phase(_VALIDATION) or loop.begin(_VALIDATION),
        "on_evaluate": lambda loop, *_: loop.end(_VALIDATION),
        "on_predict": lambda loop, *_: loop.end(_VALIDATION),
        "on_train_end": lambda loop, *_: loop.stop(),
    }
    return _made_hook("transformers", library.TrainerCallback, acts, path, options)


def accelerate(path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """A tracker for Hugging Face Accelerate, which has `loop`: a `Loop`.

    It begins with `accelerator.init_trackers`, marks a step with each `accelerator.log`, and ends with
    `accelerator.end_training`.

    Raises:
        LiveError: Accelerate is not installed.
    """
    library = _trainer_library("Hugging Face Accelerate", "accelerate")
    facts = {
        "name": "bfcviz",
        "requires_logging_directory": False,
        "main_process_only": False,  # each rank has its own memory
        "tracker": property(lambda self: self.loop),
    }
    acts: _Acts = {
        "start": lambda loop, *_: loop.start(),
        "log": lambda loop, *_: loop.step(),
        "finish": lambda loop, *_: loop.stop(),
    }
    return _made_hook("accelerate", library.tracking.GeneralTracker, acts, path, options, facts)


def _made_hook(  # noqa: PLR0913, PLR0917  the parts of a class, and the arguments of the hook
    name: str,
    base: Any,
    acts: _Acts,
    path: Any,
    options: dict[str, Any],
    facts: Mapping[str, Any] | None = None,
) -> Any:
    """A callback: an instance of a class below `base` that has `loop`, these methods and these other members."""

    def method(act: Callable[..., object]) -> Callable[..., None]:
        def call(self: Any, *arguments: Any, **_: Any) -> None:
            act(self.loop, *arguments)

        return call

    members = {event: method(act) for event, act in acts.items()} | dict(facts or {})
    members["__reduce__"] = lambda _: (_hook_in_other_process, (name, path, options))
    hook = type(f"{name.capitalize()}Hook", (base,), members)()
    hook.loop = Loop(path, **options)
    return hook


def _hook_in_other_process(name: str, path: Any, options: dict[str, Any]) -> Any:
    """The hook of this name in another process: its class is made there."""
    return globals()[name](path, **options)


def _trainer_library(name: str, *modules: str) -> Any:
    """The library of a trainer: the first of these modules that is loaded already, else that is installed.

    Raises:
        LiveError: none is.
    """
    for is_there in (sys.modules.__contains__, _is_trainer_installed):
        for module in modules:
            if is_there(module):
                return import_module(module)
    raise LiveError(
        f"this hook needs {name}, which is not installed: pip install {modules[0].partition('.')[0]}"
    )


def _is_trainer_installed(module: str) -> bool:
    return find_spec(module.partition(".")[0]) is not None

"""The table of frameworks against the functions it describes, and what a new entry needs."""

import inspect
import subprocess
import sys
from argparse import ArgumentParser
from types import ModuleType

import pytest

from bfcviz.cli.record import add_framework_arguments, selection_of
from bfcviz.frameworks import FRAMEWORKS, OBJECT, SECONDS, WATCHABLE, Framework, Option, Way, resolve
from bfcviz.live import heap_provider
from bfcviz.watching.watch_session import watch_plan

WAYS = [(name, way) for name, framework in FRAMEWORKS.items() for way in framework.ways]


@pytest.mark.parametrize(("name", "way"), WAYS, ids=[f"{name} {way.name}" for name, way in WAYS])
def test_options_are_the_arguments_of_the_function(name, way):
    function = heap_provider.provider_function(name, way)
    arguments = set(inspect.signature(function).parameters)
    assert {option.name for option in way.options} == arguments - {"folder"}


@pytest.mark.parametrize(("name", "way"), WAYS, ids=[f"{name} {way.name}" for name, way in WAYS])
def test_defaults_are_values_of_the_type(name, way):
    function = heap_provider.provider_function(name, way)
    parameters = inspect.signature(function).parameters
    for option in way.options:
        default = parameters[option.name].default
        assert option.type.check(default) == default


def test_every_option_has_one_meaning_on_the_command_line():
    flags = {}
    for _, way in WAYS:
        for option in way.options:
            if option.type.metavar:
                assert option.help
                assert flags.setdefault(option.flag, option.name) == option.name


def test_the_table_imports_no_framework_and_no_numpy():
    code = "import sys, bfcviz.frameworks; print(sorted({*sys.modules} & {'numpy', 'cupy', 'torch', 'rmm', 'jax'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_only_what_has_heaps_can_be_watched():
    assert WATCHABLE == ("numpy", "cupy", "torch", "rmm", "jax")
    assert not FRAMEWORKS["tensorflow"].is_watchable


@pytest.fixture
def paddle(monkeypatch):
    """A framework that the table has one more entry for, and a module of `bfcviz.live`."""
    way = Way(
        "observe", "its totals", (Option("log", OBJECT), Option("every_s", SECONDS, "between readings"))
    )
    added = {**FRAMEWORKS, "paddle": Framework("paddle", "PaddlePaddle", (way,))}
    for function in (resolve, selection_of, heap_provider.provider_pool, watch_plan):
        monkeypatch.setitem(function.__globals__, "FRAMEWORKS", added)
    made = []
    module = ModuleType("bfcviz.live.paddle")
    module.observe_paddle = lambda **options: made.append(options)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


def test_a_new_framework_is_one_entry(paddle):
    parser = ArgumentParser()
    add_framework_arguments(parser)
    selection = selection_of(parser.parse_args(["--paddle", "--every", "0.5"]))
    assert selection == ("paddle", "observe", {"every_s": 0.5}, [])
    heap_provider.provider_of(resolve(*selection[:3]), None)
    assert paddle == [{"every_s": 0.5, "log": None}]
    (request,) = watch_plan({"paddle": {"every_s": 2}}).requests
    assert request == ("paddle", "observe", {"every_s": 2})

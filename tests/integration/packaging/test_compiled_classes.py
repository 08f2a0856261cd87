"""A compiled class looks from outside as its Python does: its module, its signatures, its help."""

import importlib
import inspect
import json
import pydoc
import sys
import tomllib

import pytest
from processes import COMPILED, run_code
from shared import ROOT

import bfcviz

pytestmark = pytest.mark.skipif(not COMPILED, reason="bfcviz is not compiled here")

SOURCES = [
    source
    for extension in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    for source in extension["sources"]
]
MODULES = [source.removesuffix(".py").replace("/", ".") for source in SOURCES]


def extension_types():
    """Every class that is compiled, by its Python module and its name."""
    found = {}
    for module in MODULES:
        types = (ROOT / module.replace(".", "/")).with_suffix(".pxd").read_text()
        names = [
            line.split()[2].split("(")[0].rstrip(":")
            for line in types.splitlines()
            if line.startswith("cdef class")
        ]
        importlib.import_module(module.rpartition(".")[0])
        found |= {(module, name): getattr(importlib.import_module(module), name) for name in names}
    return found


TYPES = extension_types()
PUBLIC = {name: each for (_, name), each in TYPES.items() if getattr(bfcviz, name, None) is each}


def signatures(kind):
    """The signature of a class and of its public methods, without types, as text."""
    callables = {"": kind} | {name: getattr(kind, name) for name in vars(kind) if not name.startswith("_")}
    return {name: untyped(inspect.signature(each)) for name, each in callables.items() if callable(each)}


def untyped(signature):
    parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    names = [
        each.replace(kind=each.POSITIONAL_OR_KEYWORD) if each.name == "self" else each for each in parameters
    ]
    return str(signature.replace(parameters=names, return_annotation=signature.empty)).replace("/, ", "")


@pytest.fixture(scope="module")
def plain():
    """The signatures of the same classes as plain Python."""
    asked = json.dumps([*TYPES])
    own = inspect.getsource(signatures) + inspect.getsource(untyped)
    code = f"""import importlib, inspect, json
{own}
print(json.dumps([signatures(getattr(importlib.import_module(m), n)) for m, n in {asked}]))"""
    return dict(zip(TYPES, json.loads(run_code(code, plain=True)), strict=True))


def test_those_are_compiled_that_people_use():
    assert {
        "BFCAllocator",
        "EventLog",
        "HostSubAllocator",
        "PythonSubAllocator",
        "SimulatedSubAllocator",
    } == {*PUBLIC}


@pytest.mark.parametrize("kind", TYPES.values(), ids=[name for _, name in TYPES])
def test_a_class_names_a_module_that_has_it(kind):
    assert not kind.__module__.startswith("bfcviz._")
    assert getattr(importlib.import_module(kind.__module__), kind.__name__) is kind


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_class_is_of_the_public_module(name):
    assert PUBLIC[name].__module__ == "bfcviz"
    assert repr(PUBLIC[name]) == f"<class 'bfcviz.{name}'>"


@pytest.mark.parametrize("key", TYPES, ids=[name for _, name in TYPES])
def test_signatures_are_those_of_the_python(plain, key):
    compiled = signatures(TYPES[key])
    assert compiled == {
        name: plain[key][name] for name in compiled
    }  # methods of C only are not seen from Python
    assert "" in compiled


@pytest.mark.parametrize("name", PUBLIC)
def test_help_tells_nothing_of_the_compiler(name):
    text = pydoc.plain(pydoc.render_doc(PUBLIC[name]))
    assert f"class {name} in module bfcviz\n" in text
    assert [word for word in ("_heap", "__pyx", "cython", "PyCapsule") if word in text] == []


def test_named_tuples_beside_them_are_of_their_modules():
    from bfcviz.allocator.bfc_allocator import CFunctions  # noqa: PLC0415

    assert CFunctions.__module__ == "bfcviz.allocator.bfc_allocator"
    assert sys.modules[CFunctions.__module__].CFunctions is CFunctions

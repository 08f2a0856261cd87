"""The build step: compiles the Cython modules, or continues without them, and packs the notebooks.

An extension module of several sources is a *unity build*: the .py files are joined into one, and so are their .pxd
files, so that the C compiler optimises across them (the heap is a quarter faster). The joined module replaces each of
its parts in `sys.modules`; uncompiled, they are ordinary modules. What Cython itself adds, such as typed views of
arrays, all of them would hold: the extension `SHARED` has it once, which halves the smaller ones.

setuptools loads this file alone, before the package exists, so it imports nothing of bfcviz.
"""

import ast
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

DIRECTIVES = {
    "language_level": "3",
    "annotation_typing": False,  # the .pxd files have the C types, annotations are for mypy
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "binding": False,  # plain method descriptors: with them a call costs a third less under the limited C interface
    "embedsignature": True,  # method descriptors have a signature only in their docstring
    "embedsignature.format": "clinic",  # the format that `inspect` reads
    "auto_pickle": False,  # objects that own memory are not copied
}
PROFILES = ".xplane.pb.gz"
"""The samples that a release has in a wheel of its own; see bfcviz/samples/pyproject.toml."""

SHARED = "bfcviz._shared"
"""The extension without sources of ours: the others import its functions."""

HEADERS = sorted(map(str, Path("bfcviz").rglob("*.h")))
LIMITED_API = "0x030B0000"  # one abi3 binary for Python 3.11 and later

PREFIX = '''"""Compiled together: {parts}."""
import sys as _sys
PARTS = {parts!r}
for _part in PARTS:
    _sys.modules[_part] = _sys.modules[__name__]
'''

TAIL = """
for _name, _module in {modules!r}.items():
    _class = globals()[_name]
    _class.__module__ = _module
    if "__pyx_vtable__" in vars(_class):
        del _class.__pyx_vtable__
"""
"""Sets the public module of each class, and removes the C function table, which only other binaries would use."""


def refuse_free_threading() -> None:
    """Raise SystemExit where Python has no lock: setuptools would fail, and say that of its own options only."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise SystemExit(
            f"bfcviz does not run on the free-threaded build of Python {sys.version_info.major}."
            f"{sys.version_info.minor}: its compiled parts need the global lock. Use the ordinary build."
        )


refuse_free_threading()


class BuildExt(build_ext):  # type: ignore[misc]  # setuptools has no types
    """Joins each extension's sources, translates them to C in the build folder, and compiles the result."""

    parallel: int | None

    def run(self) -> None:
        """Build all extensions; an `optional` one that fails to compile is omitted."""
        for extension, source in zip(self.extensions, translate(self.extensions), strict=True):
            extension.sources = [source]
            extension.include_dirs.append(".")  # "bfcviz/events/event_record.h"
            extension.depends += HEADERS
            extension.define_macros.append(("Py_LIMITED_API", LIMITED_API))
            flags = os.environ.get("BFCVIZ_CFLAGS")  # of a build for a sanitizer or a debugger
            extension.extra_compile_args += ["-O3", "-g0"] if flags is None else flags.split()
            if sys.platform == "linux" and flags is None:
                extension.extra_link_args.append("-Wl,-s")  # only the symbols that Python needs
        self.parallel = self.parallel or os.cpu_count()  # extensions compiled at once
        super().run()

    def get_source_files(self) -> list[str]:
        """Files of a source distribution: also the C types and headers, which wheels do not contain."""
        return [*super().get_source_files(), *map(str, sorted(Path("bfcviz").rglob("*.pxd"))), *HEADERS]


class BuildPy(build_py):  # type: ignore[misc]  # setuptools has no types
    """Copies the notebooks, which are outside the package, into it, so that an installed package contains them."""

    def run(self) -> None:
        """Copy the notebooks; in editable mode they are used where they are."""
        super().run()
        if not self.editable_mode:
            for source, target in self._notebooks():
                self.mkpath(str(target.parent))
                self.copy_file(str(source), str(target))

    def find_data_files(self, package: str, src_dir: str) -> list[str]:
        """Files of a package that are not modules; with BFCVIZ_WITHOUT_PROFILES, as in a release, no profiles."""
        found: list[str] = super().find_data_files(package, src_dir)
        return [
            path
            for path in found
            if not (os.environ.get("BFCVIZ_WITHOUT_PROFILES") and path.endswith(PROFILES))
        ]

    def get_source_files(self) -> list[str]:
        """Files of a source distribution."""
        return [*super().get_source_files(), *(str(source) for source, _ in self._notebooks())]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:  # noqa: FBT001, FBT002  as in distutils
        """Files of a wheel."""
        made = [] if self.editable_mode else [str(target) for _, target in self._notebooks()]
        return [*super().get_outputs(include_bytecode), *made]

    def _notebooks(self) -> list[tuple[Path, Path]]:
        """Each notebook, and its path in the build."""
        return [
            (source, Path(self.build_lib, "bfcviz", source))
            for source in sorted(Path("notebooks").glob("*.ipynb"))
        ]


def translate(extensions: Sequence[Extension]) -> list[str]:
    """The C file of each extension; those of an earlier, complete build are kept where no source is newer or moved."""
    from Cython.Build import cythonize  # noqa: PLC0415  only the build environment has Cython

    folder = Path("build", "cython").resolve()
    complete = folder / "complete"
    names = "\n".join([*sorted(map(str, Path("bfcviz").rglob("*.pxd"))), *HEADERS])
    force = (
        not complete.exists()
        or complete.stat().st_mtime < Path(__file__).stat().st_mtime
        or complete.read_text() != names
    )
    complete.unlink(missing_ok=True)
    joined = [
        str(join(each.name, list(map(Path, each.sources)), folder))
        if each.sources
        else str(folder.joinpath(*each.name.split(".")).with_suffix(".c"))  # Cython makes it
        for each in extensions
    ]

    def made(processes: int) -> list[Extension]:
        # New extensions: cythonize returns those without `optional`.
        new = [Extension(each.name, [path]) for each, path in zip(extensions, joined, strict=True)]
        return list(
            cythonize(
                new,
                include_path=[str(folder), "."],
                compiler_directives=DIRECTIVES,
                shared_utility_qualified_name=SHARED,
                force=force or None,
                nthreads=processes,
                quiet=True,
            )
        )

    # Not on Windows and macOS: there a new process imports the main script once more.
    processes = min(len(joined), os.cpu_count() or 1) if sys.platform == "linux" else 0
    try:
        found = made(processes)
    except (ImportError, NotImplementedError, OSError):  # without semaphores, as where there is no /dev/shm
        found = made(0)
    sources = [str(source) for each in found for source in each.sources]
    for source in sources:
        mend(Path(source))
    complete.write_text(names)
    return sources


def mend(source: Path) -> None:
    """Change a module's C code: check the import of `inspect`, which Cython 3.3 omits, and call by vectorcall.h."""
    text = source.read_text()
    imports = 'inspect = PyImport_ImportModule("inspect");'
    if f"{imports} if" not in text:  # Cython keeps a C file that is newer than its .py
        text = text.replace(imports, f"{imports} if (!inspect) return -1;")
    arrays = "#define CYTHON_VECTORCALL (__PYX_LIMITED_VERSION_HEX >= 0x030C0000)"
    write_if_changed(
        source, text.replace(arrays, '#include "bfcviz/c/vectorcall.h"\n  #define CYTHON_VECTORCALL 1')
    )


def join(name: str, sources: list[Path], folder: Path) -> Path:
    """Join the sources into one .py and one .pxd named `name`; returns the .py."""
    parts = [".".join(source.with_suffix("").parts) for source in sources]
    inner = re.compile(rf"^from ({'|'.join(map(re.escape, parts))}) c?import .*\n", re.MULTILINE)
    target = folder.joinpath(*name.split("."))
    target.parent.mkdir(parents=True, exist_ok=True)
    types = [inner.sub("", source.with_suffix(".pxd").read_text()) for source in sources]
    write_if_changed(target.with_suffix(".pxd"), "\n".join(types))
    extension_types = set(re.findall(r"^cdef class (\w+)", "\n".join(types), re.MULTILINE))
    check_names(name, {part: source.read_text() for part, source in zip(parts, sources, strict=True)})
    texts = [with_signatures(inner.sub("", source.read_text()), extension_types) for source in sources]
    public = public_homes()
    modules = {
        name: "bfcviz" if (part, name) in public else part
        for part, text in zip(parts, texts, strict=True)
        for name in class_names(text)
    }
    text = PREFIX.format(parts=parts) + "\n".join(texts) + TAIL.format(modules=modules)
    write_if_changed(target.with_suffix(".py"), text)
    write_if_changed(target.parent / "__init__.py", "")
    return target.with_suffix(".py")


def check_names(name: str, texts: dict[str, str]) -> None:
    """Raise ValueError if two parts of a joined module give one name to different things: the last one would win."""
    known: dict[str, str] = {}
    for part, text in texts.items():
        for word, what in module_level_names(part, text):
            if known.setdefault(word, what) != what:
                raise ValueError(
                    f"{name} is compiled from parts where {word} is {known[word]} and {what}; they share one "
                    "namespace: rename one of them, or import it as another name"
                )


def module_level_names(part: str, text: str) -> Iterator[tuple[str, str]]:
    """For the build: each name that a module binds at its top level, with the full name of its definition or import."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for each in node.names:
                source = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                yield each.asname or each.name.partition(".")[0], f"{source}{each.name}"
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name, f"{part}.{node.name}"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for inner in (inner for target in targets for inner in ast.walk(target)):
                if isinstance(inner, ast.Name):
                    yield inner.id, f"{part}.{inner.id}"


def write_if_changed(path: Path, text: str) -> None:
    """Write a file, or leave it with its time: Cython translates what is newer than its C."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def class_names(text: str) -> list[str]:
    """For the build: the top-level classes of a module."""
    return [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]


def public_homes() -> set[tuple[str, str]]:
    """For the build: module and name of each public name of `bfcviz`, read from its source."""
    tree = ast.parse(Path("bfcviz/__init__.py").read_text())
    (homes,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES"
    ]
    return {*ast.literal_eval(homes).values()}


def with_signatures(text: str, extension_types: set[str]) -> str:
    """Add signatures to the docstrings of extension types, for `inspect`: Cython adds those of methods only."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if not isinstance(node, ast.ClassDef) or node.name not in extension_types:
            continue
        makers = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        doc = node.body[0]
        if (makers or not node.bases) and ast.get_docstring(node) is not None:
            given = ""
            if makers:
                arguments = makers[0].args
                del arguments.args[0]
                for argument in [*arguments.args, *arguments.kwonlyargs]:
                    argument.annotation = None
                given = ast.unparse(arguments)
            signature = f"{node.name}({given})\n--\n\n"
            line = lines[doc.lineno - 1]
            lines[doc.lineno - 1] = line.replace('"""', f'"""{signature}', 1)
    return "".join(lines)

"""The build step: compiles the Cython parts, or goes on without them.

setuptools loads this file by itself, before the package exists, so it imports nothing of bfcviz.
"""

from pathlib import Path

from setuptools.command.build_ext import build_ext

DIRECTIVES = {
    "language_level": "3",
    "annotation_typing": False,  # C types stand in the .pxd files, annotations are for mypy
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
}
LIMITED_API = "0x030B0000"  # one abi3 binary for Python 3.11 and later


class BuildExt(build_ext):
    """Turns each module's .py and .pxd into C inside the build folder, then compiles it."""

    def run(self) -> None:
        """Cythonize, then compile; an `optional` module that fails to compile is left out."""
        from Cython.Build import cythonize  # noqa: PLC0415  the isolated build has it, a reader of this file may not

        for extension in self.extensions:
            extension.define_macros.append(("Py_LIMITED_API", LIMITED_API))
            extension.extra_compile_args.append("-O3")
            # cythonize returns new Extension objects without `optional`: keep ours, take only its sources.
            (made,) = cythonize(
                [_plain_copy(extension)],
                build_dir=str(Path(self.build_temp) / "cython"),
                compiler_directives=DIRECTIVES,
                quiet=True,
            )
            extension.sources = made.sources
        super().run()


def _plain_copy(extension):  # type: ignore[no-untyped-def]
    from setuptools import Extension  # noqa: PLC0415

    return Extension(extension.name, list(extension.sources))

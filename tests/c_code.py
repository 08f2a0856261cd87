"""Building the C that lies beside a test."""

import shutil
import subprocess
import sysconfig

import pytest

COMPILER = (sysconfig.get_config_var("CC") or "cc").split()

needs_compiler = pytest.mark.skipif(shutil.which(COMPILER[0]) is None, reason="no C compiler here")


def built(source, folder, *options):
    """The path of a shared library made of `source` in `folder`."""
    library = folder / source.with_suffix(".so").name
    subprocess.run([*COMPILER, *options, "-fPIC", "-shared", source, "-o", library], check=True)
    return library

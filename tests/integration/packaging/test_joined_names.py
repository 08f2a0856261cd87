"""Parts that are compiled into one module share its namespace: no name has two meanings there."""

import tomllib

import pytest
from shared import ROOT

from bfcviz._build import check_names

EXTENSIONS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]


@pytest.mark.parametrize("extension", EXTENSIONS, ids=lambda each: each["name"])
def test_the_parts_of_each_compiled_module_agree(extension):
    texts = {
        source.removesuffix(".py").replace("/", "."): (ROOT / source).read_text()
        for source in extension["sources"]
    }
    check_names(extension["name"], texts)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("from a import UNIT", "from b import UNIT"),
        ("from a import UNIT", "UNIT = 1"),
        ("UNIT: int = 1", "UNIT = 1"),
        ("def unit(): ...", "class unit: ..."),
        ("low, high = 1, 2", "from a import high"),
    ],
)
def test_a_name_with_two_meanings_is_an_error(first, second):
    with pytest.raises(ValueError, match="namespace"):
        check_names("joined", {"one": first, "other": second})
    check_names("joined", {"one": first})
    check_names(
        "joined", {"one": "from a import UNIT", "other": "from a import UNIT\nfrom b import UNIT as B_UNIT"}
    )

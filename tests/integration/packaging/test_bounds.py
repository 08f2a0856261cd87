"""The declared lower bounds are those that were tested; `python tests/bounds.py` tests them."""

import json

import pytest
from bounds import LOWEST, declared
from packaging.requirements import Requirement
from packaging.version import Version

RECORD = json.loads(LOWEST.read_text())["versions"]


def lower_bound(requirement):
    (bound,) = (Version(each.version) for each in requirement.specifier if each.operator == ">=")
    return bound


@pytest.mark.parametrize(("name", "text"), declared())
def test_a_lower_bound_was_tested(name, text):
    """The version tested is the first one that the bound allows: a longer number of the same release."""
    requirement = Requirement(text)
    bound, tested = lower_bound(requirement), Version(RECORD[name])
    assert tested in requirement.specifier
    assert tested.release[: len(bound.release)] == bound.release, (
        f"{text}: {tested} was tested; run python tests/bounds.py lowest"
    )


def test_every_tested_package_is_declared():
    assert RECORD.keys() == {name for name, _ in declared()}

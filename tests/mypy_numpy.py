"""A plugin of mypy: read `rows["size"]` and `rows[0]` of an array by the one overload that takes such a key.

NumPy declares six. Mypy compares a text with all of them, in three with arrays of arrays, and does it again for each
overload of the operator or function around: half of all time for some 300 lines.
"""

from collections.abc import Callable
from typing import Final

from mypy.nodes import IntExpr, NameExpr, StrExpr
from mypy.plugin import MethodSigContext, Plugin
from mypy.types import FunctionLike, Instance, NoneType, Type, UnionType, get_proper_type

_TAKES: Final = {"builtins.str": "builtins.str", "builtins.int": "typing.SupportsIndex"}
"""Class of a key -> what the overload that it means says in its place."""


class _ArrayKeys(Plugin):
    def get_method_signature_hook(self, fullname: str) -> Callable[[MethodSigContext], FunctionLike] | None:
        return _signature if fullname == "numpy.ndarray.__getitem__" else None


def _signature(context: MethodSigContext) -> FunctionLike:
    """The overload, or one that mypy sees at once not to take this key."""
    signature, (key, *_) = context.default_signature, context.args[0]
    if isinstance(key, (StrExpr, IntExpr, NameExpr)):
        found = get_proper_type(context.api.get_expression_type(key))
        wanted = _TAKES.get(_class_name(found))
        taken = get_proper_type(signature.arg_types[0])
        each = taken.items if isinstance(taken, UnionType) else [taken]
        if wanted and wanted not in map(_class_name, each):
            return signature.copy_modified(arg_types=[NoneType()])
    return signature


def _class_name(each: Type) -> str:
    each = get_proper_type(each)
    return each.type.fullname if isinstance(each, Instance) else ""


def plugin(_version: str) -> type[Plugin]:
    return _ArrayKeys

"""The C primitives and native.py agree."""

import ast
import re

from shared import ROOT

from bfcviz import native


def c_constants(header):
    """The numbers that enums and #defines of a header name, without BFC_."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    text = re.sub(r"U?INT\d\d_C\((\w+)\)", r"\1", text)
    pairs = re.findall(r"^#define BFC_(\w+) (.+)$", text, re.MULTILINE)
    for body in re.findall(r"enum \{(.*?)\}", text, re.DOTALL):
        pairs += re.findall(r"BFC_(\w+) = ([^,]+)", body)
    values = {}
    for name, number in pairs:
        values[name] = _value(ast.parse(number.replace("BFC_", "").strip(), mode="eval").body, values)
    return values


def _value(node, names):
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, names)
        case ast.BinOp(op=ast.LShift()):
            return _value(node.left, names) << _value(node.right, names)
        case ast.BinOp(op=ast.Mult()):
            return _value(node.left, names) * _value(node.right, names)
    raise AssertionError(ast.dump(node))


def test_constants_agree():
    in_c = c_constants(ROOT / "bfcviz/c/constants.h")
    in_python = {name: value for name, value in vars(native).items() if name.isupper() and name[0] != "_"}
    assert in_c == in_python
    declared = re.findall(r'\b([A-Z]\w+) "BFC_(\w+)"', (ROOT / "bfcviz/native.pxd").read_text())
    assert {cython for cython, _ in declared} == {c for _, c in declared} == {*in_c}


def test_functions_agree():
    text = (ROOT / "bfcviz/native.pxd").read_text()
    in_c = {*re.findall(r'\b([a-z]\w+) "\w+"\(', text)}
    in_c |= {*re.findall(r"^cdef inline \w+ \*?(\w+)\(", text, re.MULTILINE)}
    in_python = {
        name
        for name, value in vars(native).items()
        if callable(value) and value.__module__ == native.__name__ and name[0] != "_" and name[0].islower()
    }
    assert in_c == in_python | {"bit_64"}  # there an alias of bit_32

"""TensorFlow's DataType numbers by name (tensorflow/core/framework/types.proto)."""

_NAMES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    8: "complex64",
    9: "int64",
    10: "bool",
    11: "qint8",
    12: "quint8",
    13: "qint32",
    14: "bfloat16",
    15: "qint16",
    16: "quint16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    20: "resource",
    21: "variant",
    22: "uint32",
    23: "uint64",
    24: "float8_e5m2",
    25: "float8_e4m3fn",
    26: "float8_e4m3fnuz",
    27: "float8_e4m3b11fnuz",
    28: "float8_e5m2fnuz",
    29: "int4",
    30: "uint4",
    31: "int2",
    32: "uint2",
}
_REFERENCE = 100  # added to the number of a type: a reference to that type


def dtype_name(number: int) -> str:
    """`float32` for 1, `float32_ref` for 101, empty for 0, `DataType 77` for an unknown number."""
    if number == 0:
        return ""
    base, suffix = (number - _REFERENCE, "_ref") if number > _REFERENCE else (number, "")
    return f"{_NAMES[base]}{suffix}" if base in _NAMES else f"DataType {number}"

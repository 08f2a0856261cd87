import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.importers.profile_maker import chunk, double, number

from bfcviz.errors import FileError
from bfcviz.importers.protobuf_wire import Field, Wire

MESSAGE = number(1, 300) + chunk(2, b"abc") + double(3, 0.5) + chunk(2, b"")


def fields(data: bytes) -> list[Field]:
    return list(Wire("file", data).fields(0, len(data)))


def test_fields_are_found_with_their_payload() -> None:
    found = fields(MESSAGE)
    assert [(f.number, MESSAGE[f.start : f.stop], f.missing) for f in found] == [
        (1, b"\xac\x02", 0),
        (2, b"abc", 0),
        (3, bytes(6) + b"\xe0\x3f", 0),
        (2, b"", 0),
    ]


def test_a_cut_message_gives_its_complete_fields_and_what_is_missing() -> None:
    ends = [f.stop for f in fields(MESSAGE)]
    for keep in range(1, len(MESSAGE)):
        found = fields(MESSAGE[:keep])
        complete = [f for f in found if not f.missing]
        assert [f.stop for f in complete] == [end for end in ends if end <= keep]
        assert bool(found[len(complete) :]) == (keep not in ends)
    assert fields(MESSAGE[:6])[-1] == Field(2, 2, 5, 6, 2)


@pytest.mark.parametrize(
    ("data", "place", "cause"),
    [
        (b"\x0b", "byte 0", "wire type 3"),
        (number(1, 1) + b"\x02\x00", "byte 2", "field number 0"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "byte 1", "a number without an end"),
    ],
)
def test_what_is_no_field_is_an_error_with_its_place(data: bytes, place: str, cause: str) -> None:
    with pytest.raises(FileError, match=cause) as caught:
        fields(data)
    assert caught.value.place == place


def test_a_field_beyond_its_message_is_an_error_inside_the_file() -> None:
    data = chunk(1, chunk(2, b"abc")[:-1]) + number(1, 1)
    wire = Wire("file", data)
    outer = next(wire.fields(0, len(data)))
    with pytest.raises(FileError, match=r"field 2 .*1 bytes"):
        list(wire.fields(outer.start, outer.stop))


@given(st.binary(max_size=200))
def test_any_bytes_end_in_fields_or_in_one_error(data: bytes) -> None:
    try:
        found = fields(data)
    except FileError:
        return
    assert all(f.start <= f.stop <= len(data) for f in found)
    assert sum(f.missing > 0 for f in found) <= 1
    assert (not data) or found[-1].stop == len(data)

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.importers.bfc_log.log_maker import human

from bfcviz.importers.bfc_log.log_lines import PrintedSize, log_line_size_text, size_in_log_line


@given(st.integers(0, 1 << 49))
def test_sizes_are_printed_as_tensorflow_does(size: int) -> None:
    text = log_line_size_text(size)
    assert text == human(size)
    printed = size_in_log_line(text)
    assert printed is not None
    assert printed.means(size)
    assert abs(printed.value - size) <= max(size / 20, 1)  # 1.0KiB can be 1,075 bytes
    assert printed == size_in_log_line(text.replace(".", ","))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", PrintedSize("0B", 0, True)),
        ("77", PrintedSize("77", 77, True)),
        ("392.00MiB", PrintedSize("392.00MiB", 411_041_792, False)),
        ("4,52GiB", PrintedSize("4.52GiB", 4_853_313_044, False)),
        ("9999999.00EiB", None),
        ("5 apples", None),
    ],
)
def test_texts(text: str, size: PrintedSize | None) -> None:
    assert size_in_log_line(text) == size


def test_four_billion_bytes_are_cut_off_not_rounded() -> None:
    assert log_line_size_text(4_000_000_000) == "3.72GiB"  # 3.7253: as in the log of Reactant
    assert not size_in_log_line("3.73GiB").means(4_000_000_000)  # type: ignore[union-attr]

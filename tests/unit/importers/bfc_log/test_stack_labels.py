import pytest
from unit.importers.bfc_log.vlog_maker import STACK

from bfcviz.errors import FileError
from bfcviz.events.labels import Labels
from bfcviz.importers.bfc_log.vlog import VlogLabels
from bfcviz.importers.file_content import TEXT, Limits


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("tensorflow::CastOpBase", "CastOpBase"),
        ("tensorflow::(anonymous namespace)::SliceOp<Eigen::GpuDevice, float>", "SliceOp<float>"),
        (
            "tensorflow::UnaryOp<Eigen::ThreadPoolDevice, tensorflow::functor::sign<float> >",
            "UnaryOp<sign<float>>",
        ),
    ],
)
def test_the_name_is_the_kernel_that_computes(kernel: str, name: str) -> None:
    labels = Labels()
    number = VlogLabels(labels, Limits("log", 0)).label(STACK.format(kernel=kernel))
    assert labels.name(number) == name


def test_without_a_kernel_it_is_the_function_that_allocated() -> None:
    labels = Labels()
    stack = "*** Begin stack trace ***\n\ttensorflow::EagerContext::CreateTensor(int)\n\tmain\n"
    number = VlogLabels(labels, Limits("log", 0)).label(stack)
    assert labels.name(number) == "EagerContext::CreateTensor"


def test_equal_stacks_are_one_label_and_no_stack_is_none() -> None:
    labels = Labels()
    stacks = VlogLabels(labels, Limits("log", 0))
    assert stacks.label(STACK) == stacks.label(STACK) == 1
    assert stacks.label("") == stacks.label("*** Begin stack trace ***\n\n*** End stack trace ***") == 0


def test_more_text_than_a_file_of_this_size_may_hold_is_an_error() -> None:
    stacks = VlogLabels(Labels(), Limits("log", 0))
    most = TEXT.floor // len("name\n") // 9000
    texts = [
        f"*** Begin stack trace ***\n\tframe{number}\n" + "\tname\n" * 9000 for number in range(most + 2)
    ]
    with pytest.raises(FileError, match=TEXT.what):
        list(map(stacks.label, texts))

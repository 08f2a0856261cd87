"""Places in code: their names, and which frame of a stack names an allocation."""

import pytest

from bfcviz.stack_frames import CodePlace, holder_name, own_place, places_of, telling_lines, told_frames


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (CodePlace("forward", "/home/me/train.py", 41), "train.py:41 forward"),
        (CodePlace("Net.forward", "C:\\me\\train.py", 41), "train.py:41 Net.forward"),
        (CodePlace("<module>", "/home/me/train.py", 7), "train.py:7"),
        (CodePlace("main.<locals>.step", "train.py", 9), "train.py:9 step"),
        (CodePlace("Net.step.<locals>.<listcomp>", "train.py", 9), "train.py:9 Net.step"),
        (CodePlace("<lambda>", "train.py", 9), "train.py:9"),
        (CodePlace("step", "/t/ipykernel_17/2034.py", 3), "cell:3 step"),
        (CodePlace("step", "In[5]", 3), "In[5]:3 step"),
        (CodePlace("step", "train.py", 0), "train.py step"),
        (
            CodePlace("merge", "/v/lib/python3.12/site-packages/pandas/core/frame.py", 12),
            "pandas: frame.py:12 merge",
        ),
        (CodePlace("run", "/v/lib/python3.12/asyncio/events.py", 88), "asyncio: events.py:88 run"),
        (CodePlace("run", "/v/lib/python3.12/threading.py", 9), "threading.py:9 run"),
        (CodePlace("step", "/v/site-packages/one_file.py", 9), "one_file.py:9 step"),
        (CodePlace("step", "/home/me/jax/train.py", 9), "train.py:9 step"),
        (CodePlace("malloc", "??", 0), "malloc"),
        (CodePlace("malloc", "", 0), "malloc"),
        (CodePlace("<unknown>", "", 0), "<unknown>"),
        (CodePlace("at::Tensor at::(anonymous namespace)::pad<f<int> >(int, g<h>)", "", 0), "at::pad"),
        (
            CodePlace("auto at::native::fill(at::Tensor&)::{lambda(int)#1}::operator()() const", "a.cu", 0),
            "at::native::fill",
        ),
        (CodePlace("void at::Loop::operator()(int) [clone .isra.0]", "Loop.cpp", 0), "at::Loop::operator"),
    ],
)
def test_names(place, name):
    assert place.name == name


@pytest.mark.parametrize(
    ("files", "own"),
    [
        (["/venv/lib/python3.11/site-packages/torch/nn.py", "/home/me/net.py", "/home/me/train.py"], 1),
        (["/usr/lib/python3.12/threading.py", "<frozen runpy>", "/home/me/train.py"], 2),
        (["/build/torch/Tensor.cpp", "/opt/pytorch/torch/nn.py"], 1),
        (["/v/lib/python3.12/site-packages/jax/_src/core.py", "/home/me/jax/train.py"], 1),
        (["/opt/pytorch/torch/nn.py", "/home/me/torch/train.py", "/home/me/train.py"], 2),
        (["??", "/build/aten/Alloc.cpp"], 1),
        (["??", "??"], 0),
        (["<string>", "/venv/site-packages/run.py"], 0),
    ],
)
def test_the_innermost_place_outside_of_libraries_counts(files, own):
    stack = [CodePlace("f", file, line) for line, file in enumerate(files)]
    assert own_place(stack) is stack[own]


def test_an_empty_stack_has_no_place():
    assert own_place([]) is None


def test_a_stack_as_text_is_read_back():
    stack = [CodePlace("f (g)", "/a b/(c).py", 3), CodePlace("<module>", "d.py", 12)]
    assert places_of("\n".join(place.text for place in stack)) == stack
    assert places_of(f"no frame\nf (a.py:x)\nf (a.py:{'9' * 5000})") == []


RECORDER = "torch::cuda::(anonymous namespace)::gather_with_cpp() (memory_snapshot.cpp:0)"
POOL = "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long, CUstream_st*) (:0)"
DISPATCH = (
    "c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<at::Tensor (long), "
    "at::native::mul>, at::Tensor (long)>::call(c10::OperatorKernel*, long) (RegisterCUDA.cpp:0)"
)
AUTOGRAD = "torch::autograd::VariableType::(anonymous namespace)::mul_Tensor(at::Tensor const&) (VariableType_3.cpp:0)"
OPERATOR = "at::native::sumproduct_pair(at::Tensor const&, bool) [clone .constprop.0] (Linear.cpp:0)"
GRADIENT = (
    "torch::autograd::generated::MulBackward0_apply_functional(std::vector<at::Tensor>&) (Functions.cpp:0)"
)
INTERPRETER = "_PyEval_Vector (:0)"
MODULE = "_call_impl (/venv/lib/python3.12/site-packages/torch/nn/modules/module.py:1750)"
EINSUM = "einsum (/venv/lib/python3.12/site-packages/torch/functional.py:407)"
LAYER, LOOP = "forward (/home/me/net.py:22)", "<module> (/home/me/train.py:9)"


def test_the_readers_own_frames_come_first_and_what_passes_calls_on_is_left_out():
    stack = [RECORDER, POOL, DISPATCH, AUTOGRAD, OPERATOR, INTERPRETER, EINSUM, LAYER, MODULE, LOOP]
    told = [LAYER, LOOP, EINSUM, "at::native::sumproduct_pair"]
    assert telling_lines("\n".join(stack), 8) == (told, 6)
    assert telling_lines("\n".join(stack), 1) == ([LAYER], 9)


def test_a_stack_without_a_telling_frame_is_shown_as_it_is():
    assert telling_lines(f"{POOL}\n{INTERPRETER}", 1)[1] == 1
    assert telling_lines("no frame\n" + LOOP, 5) == ([LOOP, "no frame"], 0)
    assert telling_lines("", 5) == ([], 0)


def test_a_gradient_is_named_by_its_function_and_not_by_the_recorder():
    """A thread of autograd has no Python frames."""
    stack = [RECORDER, POOL, DISPATCH, AUTOGRAD, GRADIENT, "torch::autograd::Node::operator()(int) (:0)"]
    assert (
        own_place(places_of("\n".join(stack))).name
        == "torch::autograd::generated::MulBackward0_apply_functional"
    )


def test_what_records_and_passes_on_never_names_a_holder():
    assert holder_name(places_of(f"{RECORDER}\n{POOL}\n{LAYER}\n{LOOP}")) == "net.py:22 forward"
    assert holder_name(places_of(f"{RECORDER}\n{POOL}\n{AUTOGRAD}")) == "torch.mul, no Python stack"
    assert (
        holder_name(places_of(f"{RECORDER}\n{POOL}\n{AUTOGRAD}\n{GRADIENT}"))
        == "MulBackward0, no Python stack"
    )
    assert holder_name(places_of(f"{RECORDER}\n{OPERATOR}")) == "at::native::sumproduct_pair, no Python stack"
    assert holder_name(places_of(f"{RECORDER}\n{POOL}\n{MODULE}")) == "compiled code, no Python stack"
    assert "gather" not in holder_name(places_of(RECORDER))
    assert not holder_name([])
    assert told_frames(f"{RECORDER}\n{POOL}\n{DISPATCH}\n{OPERATOR}\n{INTERPRETER}\n{LAYER}") == [
        OPERATOR,
        LAYER,
    ]


def test_a_signature_of_any_length_and_depth_is_read_at_once():
    for name in ("<" * 100_000, "f<" * 50_000 + ">" * 50_000, " (" * 50_000):
        assert len(CodePlace(name, "", 0).name) <= len(name)

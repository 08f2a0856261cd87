"""The verdict on a stated failure: arithmetic in its order, then who holds the rest."""

import pytest

from bfcviz.analysis.message_advice import StatedAdviceSubject, advise, requested
from bfcviz.analysis.message_answer import StatedAnswer
from bfcviz.analysis.message_verdict import StatedCause, device_use, judge
from bfcviz.formats.message_grammar import StatedFailure

GIB, MIB = 1 << 30, 1 << 20
FULL = {
    "requested": 2 * GIB,
    "device_total": 16 * GIB,
    "device_free": GIB,
    "allocated": 14 * GIB,
    "reserved_unallocated": MIB,
}


def torch(marks=(), processes=None, version="2.5 or later", framework="PyTorch CUDA", **facts):
    known = {name: int(value) for name, value in {**FULL, **facts}.items() if value is not None}
    return StatedFailure(
        "torch-cuda", framework, known, marks=frozenset(marks), processes=processes or {}, version=version
    )


def kinds(found):
    return [str(each.kind) for each in advise(found, judge(found))]


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({}, StatedCause.CAPACITY),
        ({"requested": 17 * GIB, "device_free": 0}, StatedCause.REQUEST_EXCEEDS_DEVICE),
        ({"device_free": 3 * GIB}, StatedCause.DRIVER_REFUSED),
        (
            {"device_free": 20 * GIB},
            StatedCause.DRIVER_REFUSED,
        ),  # free > total: the figures contradict each other
        ({"reserved_unallocated": 2 * GIB, "allocated": 12 * GIB}, StatedCause.CACHED_FRAGMENTATION),
        (
            {"requested": 12 * GIB, "reserved_unallocated": 9 * GIB, "allocated": 5 * GIB},
            StatedCause.CAPACITY,
        ),  # with all of it
        (
            {"requested": GIB + MIB, "reserved_unallocated": 100 * MIB},
            StatedCause.CAPACITY,
        ),  # cache below 2 % of the pool
        ({"allocated": 40 * GIB, "device_free": 0}, StatedCause.SPILLED),
        ({"limit": 15 * GIB, "device_free": 3 * GIB}, StatedCause.CAP_BY_SETTING),
        (
            {"limit": 16 * GIB, "device_free": 3 * GIB},
            StatedCause.DRIVER_REFUSED,
        ),  # no limit below the device
        ({"allocated": 5 * GIB}, StatedCause.OTHER_PROCESS),
        (
            {"allocated": 5 * GIB, "process_in_use": 15 * GIB},
            StatedCause.CAPACITY,
        ),  # a library of this process
        ({"allocated": 5 * GIB, "process_in_use": 6 * GIB}, StatedCause.OTHER_PROCESS),
        ({"process_in_use": 0}, StatedCause.CAPACITY),  # a driver that does not know the process
        ({"private_pools": 2 * GIB}, StatedCause.PRIVATE_POOLS),
        ({"device_total": None, "device_free": None}, StatedCause.UNKNOWN),
        ({"allocated": None, "reserved_unallocated": None}, StatedCause.UNKNOWN),
        ({"requested": None}, StatedCause.UNKNOWN),
    ],
)
def test_pytorch_in_the_order_of_the_arithmetic(facts, cause):
    assert judge(torch(**facts)).cause is cause


def test_a_listed_process_that_leaves_nothing_is_this_one():
    own = torch(allocated=None, reserved_unallocated=None, processes={7: 15 * GIB})
    assert judge(own).cause is StatedCause.CAPACITY
    two = torch(allocated=4 * GIB, processes={7: 5 * GIB, 8: 10 * GIB})
    assert judge(two).cause is StatedCause.OTHER_PROCESS
    assert device_use(torch(processes={7: 15 * GIB})).own == 15 * GIB


def test_no_setting_of_the_allocator_for_a_full_device():
    found = kinds(torch())
    assert found[0] == "smaller_request_or_batch"
    assert not {"expandable_segments", "max_split_size", "cuda_malloc_async", "free_other_processes"} & set(
        found
    )


@pytest.mark.parametrize(
    ("version", "marks", "framework", "first"),
    [
        ("2.5 or later", (), "PyTorch CUDA", "expandable_segments"),
        ("1.4 to 2.0", (), "PyTorch CUDA", "max_split_size"),
        ("2.5 or later", ("windows",), "PyTorch CUDA", "max_split_size"),
        ("2.5 or later", (), "PyTorch ROCm", "max_split_size"),
        ("2.5 or later", (), "PyTorch XPU", "smaller_request_or_batch"),
    ],
)
def test_fragmentation_by_version_and_platform(version, marks, framework, first):
    found = torch(
        marks, version=version, framework=framework, reserved_unallocated=2 * GIB, allocated=12 * GIB
    )
    assert kinds(found)[0] == first


def test_the_setting_has_the_name_of_its_version():
    split = {"reserved_unallocated": 2 * GIB, "allocated": 12 * GIB}
    (first, *_) = advise(found := torch(["conf"], **split), judge(found))
    assert "PYTORCH_ALLOC_CONF=" in first.text
    (first, *_) = advise(found := torch(["hip_conf"], framework="PyTorch ROCm", **split), judge(found))
    assert "PYTORCH_HIP_ALLOC_CONF=" in first.text


def texts(found):
    return " ".join(each.text for each in advise(found, judge(found)))


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({"requested": 2, "device_total": 15.56, "allocated": 13.1, "reserved_unallocated": 1.02},
         StatedCause.UNKNOWN),
        ({"requested": 4, "device_total": 15.56, "allocated": 13.1, "reserved_unallocated": 1.02},
         StatedCause.CAPACITY),
        ({"requested": 1, "device_total": 15.56, "allocated": 2, "reserved_unallocated": 0}, StatedCause.UNKNOWN),
    ],
)  # fmt: skip
def test_xpu_without_its_free_memory(facts, cause):
    found = torch(
        framework="PyTorch XPU", device_free=None, **{name: size * GIB for name, size in facts.items()}
    )
    assert judge(found).cause is cause
    assert "15.56 GiB" in judge(found).sentence
    assert not {"torch.cuda", "nvidia-smi", "ALLOC_CONF"} & {
        word for word in ("torch.cuda", "nvidia-smi", "ALLOC_CONF") if word in texts(found)
    }
    assert "torch.xpu." in texts(found)


@pytest.mark.parametrize(
    ("free", "live", "second"),
    [
        (217.44, 10.03, StatedCause.CAPACITY),
        (217.44, 5, StatedCause.OTHER_PROCESS),  # the device is as full, of others
        (400, 10.03, None),  # more than a driver keeps for itself
    ],
)
def test_a_driver_needs_a_margin_of_a_full_device(free, live, second):
    found = torch(
        requested=216 * MIB,
        device_free=free * MIB,
        allocated=live * GIB,
        device_total=10.76 * GIB,
        reserved_unallocated=9 * MIB,
    )
    assert (judge(found).cause, judge(found).second) == (StatedCause.DRIVER_REFUSED, second)
    assert ("smaller_request_or_batch" in kinds(found)) is (second is not None)
    first = {
        StatedCause.CAPACITY: "smaller_request_or_batch",
        StatedCause.OTHER_PROCESS: "free_other_processes",
        None: "driver_or_runtime_bug",
    }
    assert kinds(found)[0] == first[second]
    assert ("the device is full" in judge(found).sentence) is (second is not None)


@pytest.mark.parametrize(
    ("framework", "live"), [("PyTorch XPU", 0), ("PyTorch XPU", 0.1), ("PyTorch CUDA", 0)]
)
def test_one_buffer_of_a_whole_device_is_refused_for_its_size(framework, live):
    facts = {"device_free": 14.05 * GIB, "allocated": live * GIB, "reserved_unallocated": 0}
    found = torch(framework=framework, requested=14 * GIB, **facts)
    assert (judge(found).cause, judge(found).second) == (StatedCause.DRIVER_REFUSED, None)
    assert "device is full" not in judge(found).sentence


@pytest.mark.parametrize(
    ("live", "cached", "cause", "second"),
    [
        (0.5, 0.03, StatedCause.OTHER_PROCESS, StatedCause.CACHED_FRAGMENTATION),
        (5, 0.2, StatedCause.OTHER_PROCESS, StatedCause.CACHED_FRAGMENTATION),
        (4, 2, StatedCause.OTHER_PROCESS, StatedCause.CACHED_FRAGMENTATION),  # others hold more than PyTorch
        (8, 2, StatedCause.CACHED_FRAGMENTATION, StatedCause.CAPACITY),
        (13, 0.5, StatedCause.CACHED_FRAGMENTATION, StatedCause.CAPACITY),
    ],
)
def test_a_device_that_others_hold_is_not_in_pieces(live, cached, cause, second):
    found = torch(
        requested=20 * MIB,
        device_free=9 * MIB,
        allocated=live * GIB,
        reserved_unallocated=None,
        reserved=(live + cached) * GIB,
    )
    assert (judge(found).cause, judge(found).second) == (cause, second)
    assert (kinds(found)[0] == "free_other_processes") is (cause is StatedCause.OTHER_PROCESS)


@pytest.mark.parametrize(
    ("request_mib", "free_mib", "framework", "first"),
    [
        (96, 8, "PyTorch NPU", "max_split_size"),
        (96, 8, "PyTorch CUDA", "expandable_segments"),
        (96, 92, "PyTorch CUDA", "smaller_request_or_batch"),  # so little is missing
    ],
)
def test_a_small_cache_may_do_where_much_of_the_request_is_missing(request_mib, free_mib, framework, first):
    found = torch(
        version="",
        framework=framework,
        requested=request_mib * MIB,
        device_free=free_mib * MIB,
        allocated=14.5 * GIB,
        reserved_unallocated=500 * MIB,
    )
    assert judge(found).cause is StatedCause.CACHED_FRAGMENTATION
    assert kinds(found)[0] == first
    assert {"max_split_size", "expandable_segments"} & set(kinds(found))
    assert ("88.00 MiB smaller" in texts(found)) is False
    assert ("4.00 MiB smaller" in texts(found)) is (free_mib == 92)


def test_free_blocks_of_private_pools_are_no_live_tensors():
    found = torch(private_pools=GIB // 2)
    assert judge(found).cause is StatedCause.CAPACITY
    assert "13.50 GiB of 16.00 GiB are live tensors" in judge(found).sentence
    assert "512.00 MiB are free in private pools" in judge(found).sentence


@pytest.mark.parametrize(
    ("free", "cause", "first", "share"),
    [
        (21.5, StatedCause.CAP_BY_SETTING, "raise_limit_or_fraction", "0.89 would fit"),
        (4, StatedCause.OTHER_PROCESS, "free_other_processes", ""),
        (16, StatedCause.OTHER_PROCESS, "free_other_processes", "0.66 would fit"),
    ],
)
def test_a_server_that_starts_on_a_device_in_use(free, cause, first, share):
    facts = {"requested": int(21.6 * GIB), "device_free": int(free * GIB), "device_total": 24 * GIB}
    found = StatedFailure("vllm-start", "vLLM", facts, marks=frozenset({"start"}))
    assert judge(found).cause is cause
    assert "others and by this process's own context" in judge(found).sentence
    assert kinds(found)[0] == first
    assert set(kinds(found)) == {"free_other_processes", "raise_limit_or_fraction"}
    assert share in texts(found)
    assert ("would fit" in texts(found)) is bool(share)


def test_a_small_cache_asks_for_less_not_for_a_setting():
    found = torch(requested=20 * MIB, device_free=8 * MIB, allocated=12 * GIB, reserved_unallocated=300 * MIB)
    assert judge(found).cause is StatedCause.CACHED_FRAGMENTATION
    assert kinds(found)[0] == "smaller_request_or_batch"
    assert "max_split_size" not in kinds(found)
    assert "3.70 GiB" in judge(found).sentence  # in use outside of the allocator


def test_a_split_limit_does_nothing_for_small_segments():
    for size, is_there in ((20 * MIB, False), (22 * MIB, True)):
        found = torch(requested=size, device_free=MIB, reserved_unallocated=2 * GIB, allocated=13 * GIB)
        assert ("max_split_size" in kinds(found)) is is_there


def test_a_cache_that_covers_the_request_is_not_too_little():
    found = torch(requested=136 * MIB, device_free=MIB, reserved_unallocated=184 * MIB, allocated=15 * GIB)
    assert judge(found).cause is StatedCause.CAPACITY
    assert "184.00 MiB" in judge(found).sentence
    assert "too little" not in judge(found).sentence


def test_the_oldest_versions_have_no_settings_and_no_tables():
    found = torch(version="0.4.1 to 1.3", reserved_unallocated=None, cached=2 * GIB, allocated=12 * GIB)
    assert judge(found).cause is StatedCause.CACHED_FRAGMENTATION
    assert "max_split_size" not in kinds(found)
    assert not [word for word in ("ALLOC_CONF", "memory_summary", "empty_cache") if word in texts(found)]


def test_a_setting_that_is_set_is_not_advised_again():
    split = {"reserved_unallocated": 2 * GIB, "allocated": 12 * GIB}
    found = torch(["expandable_set"], **split)
    assert not {"expandable_segments", "max_split_size"} & set(kinds(found))
    assert kinds(torch(["max_split_set"], **split))[0] == "expandable_segments"


def test_the_advice_names_the_process_of_the_text():
    found = torch(allocated=5 * GIB, process_in_use=6 * GIB, processes={4711: 9 * GIB})
    assert judge(found).cause is StatedCause.OTHER_PROCESS
    assert "4711" in texts(found)


def test_empty_cache_never_helps_a_failed_request():
    for facts in ({}, {"reserved_unallocated": 2 * GIB}, {"device_free": 3 * GIB}, {"allocated": 5 * GIB}):
        found = torch(**facts)
        assert not [each.text for each in advise(found, judge(found)) if "empty_cache" in each.text]


@pytest.mark.parametrize(
    ("message", "framework", "facts", "marks", "cause"),
    [
        ("torch-mps", "PyTorch MPS", {"allocated": 10 * GIB, "limit": 11 * GIB, "requested": 2 * GIB}, (),
         StatedCause.CAPACITY),
        ("torch-mps", "PyTorch MPS", {"allocated": GIB, "limit": 11 * GIB, "requested": GIB}, (),
         StatedCause.DRIVER_REFUSED),
        ("torch-summary", "PyTorch CUDA", {"peak": 4 * GIB, "peak_reserved": 12 * GIB, "num_ooms": 1}, (),
         StatedCause.CACHED_FRAGMENTATION),
        ("torch-stats", "PyTorch CUDA", {"peak": 11 * GIB, "peak_reserved": 12 * GIB, "num_ooms": 1}, (),
         StatedCause.CAPACITY),
        ("xla-bytes", "JAX", {"requested": GIB}, (), StatedCause.UNKNOWN),
        ("xla-bytes", "JAX", {"requested": 40 * GIB, "limit": 12 * GIB}, (), StatedCause.REQUEST_EXCEEDS_DEVICE),
        ("xla-bytes", "JAX", {"requested": 13 * GIB, "limit": 12 * GIB}, (), StatedCause.REQUEST_EXCEEDS_LIMIT),
        ("xla-bytes", "JAX", {"requested": 1024 * GIB}, (), StatedCause.REQUEST_EXCEEDS_DEVICE),
        ("tf-tensor", "TensorFlow", {"requested": 4 * GIB, "limit": 8 * GIB, "in_use": 5 * GIB}, (),
         StatedCause.CAPACITY),
        ("tf-tensor", "TensorFlow", {"requested": 2 * GIB, "limit": 8 * GIB, "in_use": 5 * GIB}, (),
         StatedCause.CACHED_FRAGMENTATION),
        ("tf-bfc", "TensorFlow", {"requested": GIB, "extension_refused": 8 * GIB}, (), StatedCause.OTHER_PROCESS),
        ("tf-bfc", "TensorFlow", {"requested": GIB, "device_total": 8 * GIB, "device_free_at_start": GIB}, (),
         StatedCause.OTHER_PROCESS),
        ("tf-bfc", "TensorFlow", {"requested": GIB}, ("host",), StatedCause.HOST_MEMORY),
        ("tpu-compile", "JAX TPU", {"program": 20 * GIB, "limit": 15 * GIB}, ("hbm",),
         StatedCause.REQUEST_EXCEEDS_DEVICE),
        ("tpu-run", "JAX TPU", {"requested": 4 * GIB, "device_free": 2 * GIB}, (), StatedCause.CAPACITY),
        ("tpu-run", "JAX TPU", {"requested": GIB, "device_free": 2 * GIB}, (), StatedCause.CACHED_FRAGMENTATION),
        ("cupy", "CuPy", {"requested": GIB, "allocated": 9 * GIB, "limit": 10 * GIB}, (), StatedCause.CAP_BY_SETTING),
        ("cupy", "CuPy", {"requested": GIB, "allocated": 9 * GIB}, (), StatedCause.UNKNOWN),
        ("rmm-pool", "RMM", {"requested": 2 * GIB, "reserved": 9 * GIB, "limit": 10 * GIB}, (),
         StatedCause.CAP_BY_SETTING),
        ("rmm-pool", "RMM", {"requested": 2 * GIB, "reserved": 5 * GIB, "limit": 10 * GIB}, (), StatedCause.CAPACITY),
        ("onnx-limit", "ONNX Runtime", {"requested": GIB, "available": MIB}, (), StatedCause.CAP_BY_SETTING),
        ("onnx-driver", "ONNX Runtime", {"requested": GIB}, (), StatedCause.UNKNOWN),
        ("ggml-buffer", "llama.cpp", {"requested": 4 * GIB, "device_free_at_start": 2 * GIB}, (),
         StatedCause.CAPACITY),
        ("vllm-start", "vLLM", {"requested": 9 * GIB, "device_free": GIB, "device_total": 10 * GIB}, ("start",),
         StatedCause.OTHER_PROCESS),
        ("vllm-blocks", "vLLM", {}, ("kv",), StatedCause.CAP_BY_SETTING),
        ("tf-context", "TensorFlow", {}, (), StatedCause.OTHER_PROCESS),
        ("cuda-call", "CUDA", {}, (), StatedCause.UNKNOWN),
        ("cuda-library", "CUDA", {}, ("torch",), StatedCause.UNKNOWN),
        ("cuda-shared", "Triton", {"requested": 2000, "limit": 1000}, ("on_chip",),
         StatedCause.REQUEST_EXCEEDS_LIMIT),
        ("host-worker", "PyTorch CPU", {}, ("host", "shared_memory"), StatedCause.HOST_MEMORY),
        ("torch-xpu-block", "PyTorch XPU", {"requested": 6 * GIB, "limit": 4 * GIB, "device_total": 16 * GIB}, (),
         StatedCause.REQUEST_EXCEEDS_LIMIT),
        ("paddle", "PaddlePaddle", {"requested": GIB, "device_free": MIB}, (), StatedCause.CAPACITY),
        ("paddle", "PaddlePaddle", {"requested": MIB, "device_free": GIB}, (), StatedCause.DRIVER_REFUSED),
    ],
)  # fmt: skip
def test_the_other_frameworks(message, framework, facts, marks, cause):
    found = StatedFailure(message, framework, facts, marks=frozenset(marks))
    assert judge(found).cause is cause
    assert advise(found, judge(found))


def test_which_buffer_of_llama_cpp():
    def first(*marks):
        return kinds(StatedFailure("ggml-buffer", "llama.cpp", {"requested": GIB}, marks=frozenset(marks)))[0]

    assert first("compute") == "sequence_or_context_length"
    assert first("weights") == "smaller_model_or_precision"
    assert "kv_cache_size" in kinds(StatedFailure("ggml-buffer", "llama.cpp", {}, marks=frozenset({"kv"})))


def test_a_small_program_is_not_what_fills_the_device():
    found = StatedFailure("xla-bytes", "JAX", {"requested": 6 * MIB, "program_total": 12 * MIB})
    judged = judge(found)
    assert (judged.cause, judged.second) == (StatedCause.UNKNOWN, StatedCause.OTHER_PROCESS)
    assert not {"smaller_model_or_precision", "smaller_request_or_batch"} & {*kinds(found)}


@pytest.mark.parametrize(
    ("more", "cause"),
    [({}, StatedCause.UNKNOWN), ({"largest_free": MIB}, StatedCause.CACHED_FRAGMENTATION)],
)
def test_pieces_are_told_only_where_the_text_shows_them(more, cause):
    facts = {"requested": GIB, "limit": 10 * GIB, "in_use": 2 * GIB, "peak": 2 * GIB}
    found = StatedFailure("tf-tensor", "TensorFlow", {**facts, **more})
    assert judge(found).cause is cause


def test_the_weights_of_a_convolution_have_no_batch():
    found = StatedFailure("tf-tensor", "TensorFlow", {"requested": GIB}, shape=(3, 3, 512, 1024))
    assert kinds(found)[0] == "smaller_model_or_precision"
    assert "smaller_request_or_batch" not in kinds(found)


def test_no_other_process_helps_a_request_beyond_every_device():
    found = StatedFailure("onnx-driver", "ONNX Runtime", {"requested": 1 << 61})
    assert judge(found).cause is StatedCause.REQUEST_EXCEEDS_DEVICE
    assert "free_other_processes" not in kinds(found)


@pytest.mark.parametrize(
    ("op", "shape", "what"),
    [
        ("", (64, 32, 32), StatedAdviceSubject.BATCH),
        ("", (1, 32, 32), StatedAdviceSubject.UNKNOWN),
        ("", (4096,), StatedAdviceSubject.UNKNOWN),
        ("training/Adam/dense_1/kernel/m/Initializer/zeros", (4096, 4096), StatedAdviceSubject.VARIABLE),
        ("_EagerConst", (60000, 784), StatedAdviceSubject.CONSTANT),
        ("gradients/conv_grad/Conv2DBackpropFilter", (3, 3, 512, 512), StatedAdviceSubject.VARIABLE),
    ],
)
def test_what_a_request_is(op, shape, what):
    assert requested(op, shape) is what


def test_the_batch_that_fits():
    facts = {"requested": 6 * GIB, "limit": 10 * GIB, "in_use": 7 * GIB}
    found = StatedFailure("tf-tensor", "TensorFlow", facts, shape=(16, 3 << 25))
    assert "at most 8 instead of 16" in advise(found, judge(found))[0].text
    none = StatedFailure("tf-tensor", "TensorFlow", facts, shape=(1, 3 << 29))
    assert "instead of" not in advise(none, judge(none))[0].text


def test_the_answer_as_text_html_and_json():
    answer = StatedAnswer.of([torch(processes={7: 15 * GIB})], [])
    (entry,) = answer.to_json()["failures"]
    assert (entry["verdict"], entry["facts"]["process_7"], entry["advice"][0]["kind"]) == (
        "capacity",
        15 * GIB,
        "smaller_request_or_batch",
    )
    text = str(answer)
    assert "capacity" in text.splitlines()[0]
    assert "<pre" in answer._repr_html_()
    assert max(map(len, text.splitlines())) <= 110
    (failure,) = answer.failures
    assert failure.judgement.sentence in failure.headline
    soft = StatedAnswer.of([], [StatedFailure("tf-bfc", "TensorFlow", {"requested": GIB})])
    assert (soft.to_json()["failures"], soft.to_json()["verdict"]) == ([], "not_a_failure")


def test_a_table_is_told_as_what_it_is():
    table = StatedFailure(
        "nvidia-smi",
        "NVIDIA driver",
        {"device_total": 24 * GIB, "device_used": 23 * GIB},
        processes={7: 22 * GIB},
    )
    answer = StatedAnswer.of([], [table])
    assert answer.to_json()["verdict"] == "not_a_failure"
    assert answer.lines[0].startswith("nvidia-smi: 23.00 GiB of 24.00 GiB")
    assert "refused" not in str(answer)


def test_a_second_verdict_is_told_only_where_there_is_one():
    known = StatedAnswer.of([StatedFailure("cuda-call", "PyTorch CUDA")], [])
    assert known.to_json()["failures"][0]["verdict"] == "unknown"
    headline = known.lines[0]  # a named cause leads, also where it is only a candidate
    assert "other process" in headline
    assert "unknown" not in headline
    facts = {"limit": 8 * GIB, "in_use": 8 * GIB - MIB}
    answer = StatedAnswer.of([StatedFailure("tf-stats", "TensorFlow", facts)], [])
    assert answer.to_json()["failures"][0]["second_verdict"] == "unknown"
    assert "unknown" not in "".join(answer.lines[:2])

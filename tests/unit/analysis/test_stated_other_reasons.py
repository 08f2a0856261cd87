"""What a text says of recovered refusals, of other reasons than memory, and of numbers that leave it open."""

import pytest
from unit.analysis.told_failure import kinds, told, words

from bfcviz.analysis.stated_answer import StatedAnswer
from bfcviz.analysis.stated_verdict import StatedCause
from bfcviz.importers.messages import read_messages

MIB = 1 << 20
OLD = (
    "CUDA out of memory. Tried to allocate 96.00 MiB (GPU 0; 6.00 GiB total capacity; 5.10 GiB already allocated; 8.00 "
    "MiB free; 5.50 GiB reserved in total by PyTorch)"
)
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 24.00 GiB of "
    "which {free} is free. {processes}Of the allocated memory {live} is allocated by PyTorch, and {cached} is reserved "
    "by PyTorch but unallocated.\n"
)
KERNEL = (
    "OutOfResources: out of resource: shared memory, Required: 70000, Hardware limit: 65536. Reduce blocks.\n"
)
RECOVERING = (
    f"OOM: {OLD}\n2022-02-02 02:02:02 | WARNING | fairseq.trainer | attempting to recover from OOM in "
    "forward/backward pass\n"
)
STARTED = "RuntimeError: CUDA error: {name} when calling `cublasCreate(handle)`\n"


@pytest.mark.parametrize(
    ("free", "cached", "cause", "second"),
    [
        ("1.00 GiB", "1.01 GiB", StatedCause.CAPACITY, StatedCause.CACHED_FRAGMENTATION),
        ("1.00 GiB", "1020.00 MiB", StatedCause.CAPACITY, StatedCause.CACHED_FRAGMENTATION),
        ("1.00 GiB", "1.20 GiB", StatedCause.CACHED_FRAGMENTATION, StatedCause.CAPACITY),
        ("1.00 GiB", "900.00 MiB", StatedCause.CAPACITY, None),
    ],
)
def test_a_cache_as_large_as_the_gap_is_capacity_first(free, cached, cause, second):
    failure = told(NEW.format(asked="2.00 GiB", free=free, processes="", live="20.50 GiB", cached=cached))
    assert (failure.judgement.cause, failure.judgement.second) == (cause, second)
    assert ("expandable_segments" in kinds(failure)) == (StatedCause.CACHED_FRAGMENTATION in {cause, second})
    if cause is StatedCause.CAPACITY:
        assert failure.advice[0].kind == "smaller_request_or_batch"
        assert ("No setting of the allocator helps" in failure.judgement.sentence) == (second is None)


def test_the_one_listed_process_that_can_hold_the_pool_is_this_one():
    processes = (
        "Process 11 has 600.00 MiB memory in use. Process 12 has 22.00 GiB memory in use. "
        "Process 13 has 700.00 MiB memory in use. "
    )
    full = {"asked": "128.00 MiB", "free": "100.00 MiB", "live": "21.50 GiB", "cached": "1.00 MiB"}
    failure = told(NEW.format(processes=processes, **full))
    assert failure.judgement.cause is StatedCause.CAPACITY
    assert "the text lists hold 1.27 GiB" in failure.judgement.sentence
    (others,) = [each.text for each in failure.advice if each.kind == "free_other_processes"]
    assert "hold 1.27 GiB" in others
    assert "13 (700.00 MiB), 11 (600.00 MiB)" in others
    assert " 12 (" not in others


@pytest.mark.parametrize(
    "text",
    [
        f"{KERNEL}Ignoring this choice.\n",
        f"W0101 01:02:03.4 5 torch/_inductor/select_algorithm.py:9] [0/1] {KERNEL}AUTOTUNE mm(8x8, 8x8)\n",
        f"Exception: {OLD}\nRan out of memory when regular VAE decoding, retrying with tiled VAE decoding.\n",
        f"caught: {OLD}\nDecreasing batch size to: 4\nEpoch 1\n",
        f"{OLD}\nBatch size 8 failed, trying batch size 4\n",
        f"{OLD}\n| WARNING: ran out of memory on GPU #1, skipping batch\n",
        "THC error=2 : out of memory\n| WARNING: ran out of memory on GPU #1, skipping batch\n| epoch 2\n",
        f"{RECOVERING}2022-02-02 02:02:09 | INFO | train_inner | epoch 003\n",
    ],
)
def test_a_refusal_after_which_the_program_goes_on_is_no_failure(text):
    found = read_messages([text.encode()])
    assert not found.failures
    (soft,) = StatedAnswer.of(found.failures, found.soft).soft
    assert soft.judgement.cause is StatedCause.NOT_A_FAILURE
    is_left_out = "skipping batch" in text or "attempting to recover" in text
    assert ("left the batch out" in soft.judgement.sentence) == is_left_out


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (KERNEL, StatedCause.REQUEST_EXCEEDS_LIMIT),
        (
            f"{KERNEL}Ignoring this choice.\nNoValidChoicesError: No choices to select, add one.\n",
            StatedCause.REQUEST_EXCEEDS_LIMIT,
        ),
        (f"retrying with tiled VAE decoding\n{OLD}\n", StatedCause.CACHED_FRAGMENTATION),
        (
            f"{OLD}\n{'a line of the next job' * 2}\n\n\n\nDecreasing batch size to: 4\n",
            StatedCause.CACHED_FRAGMENTATION,
        ),
        (
            f"{OLD}\nDecreasing batch size to: 0\nRuntimeError: No executable batch size found, reached zero.\n",
            StatedCause.CACHED_FRAGMENTATION,
        ),
        (RECOVERING, StatedCause.CACHED_FRAGMENTATION),
    ],
)
def test_a_refusal_that_ended_the_program_is_a_failure(text, cause):
    assert told(text).judgement.cause is cause


@pytest.mark.parametrize("change", [str, str.lower, str.upper])
def test_an_error_in_other_letters_is_read(change):
    failure = told(change(f"{OLD} If reserved memory is >> allocated memory try setting max_split_size_mb"))
    stated = failure.stated
    assert (stated.framework, stated.version, stated.devices) == ("PyTorch CUDA", "1.11 to 2.0", (0,))
    assert (stated.fact("requested"), stated.fact("device_free")) == (96 * MIB, 8 * MIB)
    assert failure.advice[0].kind == "max_split_size"


@pytest.mark.parametrize("name", ["CUBLAS_STATUS_NOT_INITIALIZED", "CUBLAS_STATUS_ALLOC_FAILED"])
@pytest.mark.parametrize(
    "before",
    [
        "a.cu:7: f: block: [1,0,0], thread: [2,0,0] Assertion `i < n` failed.\n",
        "RuntimeError: CUDA error: device-side assert triggered\n",
    ],
)
def test_a_library_after_a_failed_kernel_does_not_lack_memory(name, before):
    failure = told(f"{before}{STARTED.format(name=name)}")
    assert (failure.judgement.cause, failure.judgement.second) == (
        StatedCause.UNKNOWN,
        StatedCause.NOT_LACK_OF_MEMORY,
    )
    assert "kernel that failed" in failure.judgement.sentence
    assert kinds(failure) == ["check_shape_bug"]
    assert "index is out of range" in words(failure)
    hint = "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    assert "kernel that failed" not in told(f"{STARTED.format(name=name)}{hint}").judgement.sentence


def test_a_cudnn_of_another_version_does_not_lack_memory():
    failure = told(
        "cuda_dnn.cc:3] Loaded runtime CuDNN library: 7.0.1 but source was compiled with: 7.4.2.\n"
        "cuda_dnn.cc:4] Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n"
    )
    assert (failure.judgement.cause, failure.judgement.second) == (StatedCause.NOT_LACK_OF_MEMORY, None)
    assert kinds(failure) == ["driver_or_runtime_bug"]
    assert "cuDNN of the version" in words(failure)


def test_the_storage_of_a_tensor_is_memory_of_the_allocator():
    failure = told("cuda runtime error (2) : out of memory at /b/THC/generic/THCStorage.cu:9\n")
    assert failure.judgement.second is StatedCause.CAPACITY
    assert "outside of the framework" not in failure.judgement.sentence
    assert failure.advice[0].kind == "smaller_request_or_batch"
    other = told("cuda runtime error (2) : out of memory at /b/THC/THCGeneral.cpp:9\n")
    assert "outside of the framework" in other.judgement.sentence


def test_what_was_tried_is_not_advised_and_a_small_share_is_named():
    error = OLD.replace("CUDA", "HIP").replace("6.00 GiB total", "512.00 MiB total")
    error = error.replace("5.10 GiB", "390.00 MiB").replace("5.50 GiB", "392.00 MiB")
    log = f"comfyui\nWarning: Ran out of memory, retrying with tiled VAE decoding.\n{error}\n"
    failure = told(log)
    assert failure.judgement.cause is StatedCause.CAPACITY
    assert "firmware" in failure.advice[0].text
    assert "tiled" not in words(failure)
    assert "tiled" in words(told(log.replace("tiled", "other")))

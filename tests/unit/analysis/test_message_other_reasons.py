"""What a text says of recovered refusals, of other reasons than memory, and of numbers that leave it open."""

import pytest
from unit.analysis.told_failure import kinds, told, words

from bfcviz.analysis.message_answer import StatedAnswer
from bfcviz.analysis.message_verdict import StatedCause
from bfcviz.importers.message_reader import read_messages

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


def test_unified_memory_is_memory_of_the_system_too():
    failure = told(
        "failed to alloc 8589934592 bytes unified memory; result: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
    )
    assert (failure.judgement.cause, failure.judgement.second) == (
        StatedCause.UNKNOWN,
        StatedCause.HOST_MEMORY,
    )
    assert failure.stated.fact("requested") == 8192 * MIB
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" in failure.advice[0].text


@pytest.mark.parametrize(
    "text",
    [
        "CudaSupportError: Error at driver init: Call to cuInit results in CUDA_ERROR_OUT_OF_MEMORY (2)\n",
        "cuda_driver.cc:5] failed call to cuInit: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n",
    ],
)
def test_a_driver_that_does_not_start_asks_for_no_smaller_program(text):
    failure = told(text)
    assert (failure.judgement.cause, failure.judgement.second) == (
        StatedCause.UNKNOWN,
        StatedCause.HOST_MEMORY,
    )
    assert kinds(failure) == ["driver_or_runtime_bug", "system_memory", "free_other_processes"]


HBM = "Ran out of memory in memory space hbm. Used 9.00G of 8.00G hbm. Exceeded hbm capacity by 1.00G.\n"


@pytest.mark.parametrize(
    ("text", "framework", "said"),
    [
        (("InternalError: 2 root error(s) found.\n  (0) RESOURCE_EXHAUSTED: Out of memory while trying to "
           "allocate 2147483648 bytes.\n [[{{node StatefulPartitionedCall}}]]\n"),
         "TensorFlow", "set_memory_growth"),
        (f"Status code: Resource exhausted [2x]\n  Compilation failure: {HBM}",
         "TensorFlow TPU", "tf.recompute_grad"),
        (f"ERROR: LoadError: RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: {HBM}",
         "Reactant TPU", "Reactant.Sharding"),
        (("[error] Execution of replica 0 failed: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
           "1048576 bytes.\n"),
         "EXLA", ":exla, :clients"),
    ],
)  # fmt: skip
def test_a_client_of_xla_gets_no_words_of_another(text, framework, said):
    failure = told(text)
    assert failure.stated.framework == framework
    assert said in words(failure)
    assert "jax" not in words(failure).lower().replace("jaxlib", "")
    assert "XLA_PYTHON" not in words(failure)


POOL = (
    "total_region_allocated_bytes_: 4294967040 memory_limit_: 4294967200 available bytes: 160 "
    "curr_region_allocation_bytes_: {next}\nStats: \nLimit:                  4294967200\nInUse:                   "
    "4026531840\nMaxInUse:                4026531840\nNumAllocs:                     77\nMaxAllocSize:            "
    "134217728\nLargestFreeBlock:                    0\n\n"
)


@pytest.mark.parametrize(("next_region", "is_one"), [(8589934592, True), (17179869184, False)])
@pytest.mark.parametrize(
    ("mark", "setting"), [("jaxlib", "PREALLOCATE=true"), ("[info] Stats:", "preallocate: true")]
)
def test_a_pool_of_one_region_is_not_asked_to_be_one(next_region, is_one, mark, setting):
    error = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 100663296 bytes.\n"
    failure = told(f"{mark}\n{POOL.format(next=next_region)}{error}")
    assert failure.judgement.cause is StatedCause.CACHED_FRAGMENTATION
    assert (failure.judgement.second is StatedCause.OTHER_PROCESS) is not is_one
    assert (setting in words(failure)) is not is_one
    assert ("is one region" in failure.judgement.sentence) is is_one


def test_cublas_that_gets_no_memory_to_start_may_follow_a_failed_kernel():
    failure = told(f"RuntimeError: {STARTED.format(name='CUDA error: CUBLAS_STATUS_ALLOC_FAILED')}")
    assert failure.stated.framework == "PyTorch CUDA"
    assert (failure.judgement.cause, failure.judgement.second) == (StatedCause.UNKNOWN, StatedCause.CAPACITY)
    assert "index out of range" in failure.judgement.sentence
    assert "number of classes" in words(failure)


@pytest.mark.parametrize(("asked", "is_first"), [("600", True), ("1,200", False)])
def test_free_blocks_of_a_pool_at_its_limit_are_returned_first(asked, is_first):
    failure = told(
        f"cupy.cuda.memory.OutOfMemoryError: Out of memory allocating {asked},000,000 bytes (allocated so far: "
        "500,000,000 bytes, limit set to: 1,000,000,000 bytes)."
    )
    assert failure.judgement.cause is (StatedCause.CAP_BY_SETTING)
    assert (failure.advice[0].kind == "free_cached_blocks") is is_first
    assert ("free_all_blocks" in words(failure)) is is_first


@pytest.mark.parametrize(
    ("size", "shape", "dtype", "first", "half"),
    [
        ("16.0 GiB", (2048, 2048, 1024, 4), "uint8", "check_shape_bug", ""),
        ("64.0 MiB", (2896, 2896), "float64", "system_memory", "float32 instead of float64"),
        ("64.0 MiB", (64, 1024, 512), "complex128", "system_memory", "complex64"),
    ],
)
def test_advice_on_an_array_fits_its_type(size, shape, dtype, first, half):
    failure = told(
        f"MemoryError: Unable to allocate {size} for an array with shape {shape} and data type {dtype}\n"
    )
    assert (failure.stated.shape, failure.stated.dtype) == (shape, dtype)
    assert failure.judgement.cause is StatedCause.HOST_MEMORY
    assert failure.advice[0].kind == first
    assert half in words(failure)
    assert ("float32" in words(failure)) is (dtype == "float64")


def test_a_pool_of_pinned_memory_that_asks_for_less_is_one_failure():
    line = (
        "cuda_driver.cc:8] failed to alloc {0} bytes on host: CUDA_ERROR_OUT_OF_MEMORY\n"
        "host_allocator.h:4] could not allocate pinned host memory of size: {0}\n"
    )
    sizes = [1_000_000_000, 900_000_000, 810_000_000]
    failure = told("".join(line.format(size) for size in sizes))
    assert failure.stated.fact("requested") == sizes[0]
    assert failure.judgement.cause is StatedCause.HOST_MEMORY
    assert "again and again" in failure.judgement.sentence
    two = read_messages([(line.format(sizes[0]) + line.format(sizes[0] // 3)).encode()])
    assert [each.fact("requested") for each in two.failures] == [sizes[0], sizes[0] // 3]
    assert "again and again" not in told(line.format(sizes[0])).judgement.sentence


@pytest.mark.parametrize(("tokens", "missing"), [("-4711", 4711), ("4711", None)])
def test_a_profile_below_zero_says_how_far_the_share_is_too_small(tokens, missing):
    failure = told(
        "Load weight end. type=A, avail mem=20.00 GB, mem usage=60.00 GB.\nmax_total_tokens=9 is larger than the "
        f"profiled value {tokens}. Use it.\nRuntimeError: Not enough memory. Please try to increase "
        "--mem-fraction-static.\n"
    )
    assert failure.judgement.cause is StatedCause.CAP_BY_SETTING
    assert (failure.stated.fact("weights"), failure.stated.fact("device_free")) == (
        60 * 1024 * MIB,
        20 * 1024 * MIB,
    )
    assert failure.stated.facts.get("missing_tokens") == missing
    assert ("4,711 tokens" in failure.judgement.sentence) is (missing is not None)


def test_a_program_that_tries_another_way_tells_of_a_refusal_alone():
    found = read_messages(
        [b"Warning: Ran out of memory when regular VAE encoding, retrying with tiled VAE encoding.\n"]
    )
    assert not found.failures
    assert len(found.soft) == 1


def test_nccl_alone_says_how_much_it_asked_for():
    failure = told(
        "10.0.0.7: ncclInternalError: Internal check failed.\n10.0.0.7: Failed to CUDA calloc async 640 bytes\n"
    )
    assert (failure.judgement.cause, failure.stated.fact("requested")) == (StatedCause.UNKNOWN, 640)
    assert "NCCL asked" in failure.judgement.sentence
    assert kinds(failure)[0] == "free_other_processes"


ASYNC_TAIL = (
    "Requested               : {asked}\nDevice limit            : 16.00 GiB\nFree (according to CUDA): {free}\n"
    "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB\n"
)


@pytest.mark.parametrize(
    ("asked", "free", "cause"),
    [
        ("9.00 MiB", "5.00 GiB", StatedCause.DRIVER_REFUSED),
        ("64.00 GiB", "5.00 GiB", StatedCause.REQUEST_EXCEEDS_DEVICE),
        ("6.00 GiB", "5.00 GiB", StatedCause.UNKNOWN),
    ],
)
def test_the_end_of_a_text_of_the_asynchronous_allocator(asked, free, cause):
    failure = told(ASYNC_TAIL.format(asked=asked, free=free))
    assert failure.stated.framework == "PyTorch cudaMallocAsync"
    assert failure.judgement.cause is cause
    assert "Nothing is allocated" not in failure.judgement.sentence
    assert "limit" not in failure.stated.facts or failure.stated.fact("limit") is None


@pytest.mark.parametrize(
    "text",
    [
        "[GPU] Exceeded max size of memory object allocation: requested {size} bytes, but max alloc size is 7 bytes",
        "bfc_arena.cc:376 onnxruntime::BFCArena Failed to allocate memory for requested buffer of size {size}",
    ],
)
@pytest.mark.parametrize("size", [1 << 61, 3 << 60])
def test_a_size_that_no_memory_has_is_a_wrong_number(text, size):
    failure = told(text.format(size=size))
    assert failure.judgement.cause is StatedCause.REQUEST_EXCEEDS_DEVICE
    assert "EiB" in failure.judgement.sentence
    assert kinds(failure)[0] == "check_shape_bug"


@pytest.mark.parametrize(
    ("error", "first"),
    [("RuntimeError", "max_split_size"), ("torch.OutOfMemoryError", "expandable_segments")],
)
def test_ascend_expands_segments_where_the_class_of_the_error_is_that_of_a_version_that_can(error, first):
    failure = told(
        f"{error}: NPU out of memory. Tried to allocate 80.00 MiB (NPU 1; 32.00 GiB total capacity; 28.00 GiB already "
        "allocated; 28.00 GiB current active; 6.00 MiB free; 30.00 GiB reserved in total by PyTorch)"
    )
    assert failure.judgement.cause is StatedCause.CACHED_FRAGMENTATION
    assert kinds(failure)[0] == first
    assert "PYTORCH_NPU_ALLOC_CONF" in failure.advice[0].text


@pytest.mark.parametrize(
    ("next_region", "peak", "cause", "second"),
    [
        (8589934592, 65536, StatedCause.REQUEST_EXCEEDS_LIMIT, StatedCause.UNKNOWN),
        (17179869184, 65536, StatedCause.UNKNOWN, StatedCause.OTHER_PROCESS),
        (8589934592, 3221225472, StatedCause.UNKNOWN, StatedCause.CACHED_FRAGMENTATION),
    ],
)
def test_a_pool_that_never_held_much_is_not_in_pieces(next_region, peak, cause, second):
    text = POOL.format(next=next_region).replace(
        "MaxInUse:                4026531840", f"MaxInUse:    {peak}"
    )
    failure = told(text.replace("4026531840", "32768"))
    assert (failure.judgement.cause, failure.judgement.second) == (cause, second)
    assert (f"more than {peak >> 10}.00 KiB" in failure.judgement.sentence) is (peak < MIB)
    assert ("free_other_processes" in kinds(failure)) is (cause is StatedCause.UNKNOWN)


REMAT = (
    "W external/xla/a.cc:3] Can't reduce memory use below 10.00GiB ({limit} bytes) by rematerialization; only reduced "
    "to 30.00GiB (32212254720 bytes), down from 33.00GiB (35433480192 bytes) originally\n"
)
REFUSED = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate {asked} bytes.\n"


@pytest.mark.parametrize(
    ("limit", "asked", "cause"),
    [
        (10737418240, 21474836480, StatedCause.REQUEST_EXCEEDS_LIMIT),
        (10737418240, 1073741824, StatedCause.UNKNOWN),
        (0, 21474836480, StatedCause.UNKNOWN),
    ],
)
def test_one_request_above_what_the_compiler_counted_on_does_not_fit(limit, asked, cause):
    text = REMAT.format(limit=limit) + f"jaxlib: {REFUSED.format(asked=asked)}"
    (failure,) = StatedAnswer.of(*read_messages([text.encode()])).failures
    assert failure.judgement.cause is cause
    is_above = cause is StatedCause.REQUEST_EXCEEDS_LIMIT
    assert (failure.stated.fact("compiler_limit") == limit) is is_above
    assert ("below 30.00 GiB" in failure.judgement.sentence) is is_above
    assert ("free_other_processes" in kinds(failure)) is not is_above
    assert ("TF_FORCE_UNIFIED_MEMORY" in words(failure)) is is_above
    assert kinds(failure)[0] == "smaller_request_or_batch"


@pytest.mark.parametrize(
    ("frame", "second", "first"),
    [
        ("PoolMemoryResource.__cinit__", StatedCause.OTHER_PROCESS, "free_other_processes"),
        ("DeviceBuffer.__cinit__", StatedCause.CAPACITY, "raise_limit_or_fraction"),
    ],
)
def test_a_pool_of_rmm_that_could_not_begin_is_not_at_its_maximum(frame, second, first):
    failure = told(
        f'  File "memory_resource.pyx", line 3, in rmm.{frame}\nMemoryError: std::bad_alloc: RMM failure '
        "at:a/pool_memory_resource.hpp:196: Maximum pool size exceeded\n"
    )
    assert (failure.judgement.second, kinds(failure)[0]) == (second, first)
    assert ("initial_pool_size of" in words(failure)) is (second is StatedCause.OTHER_PROCESS)


@pytest.mark.parametrize(
    ("before", "is_told"),
    [("llama_context: pipeline parallelism enabled (n_copies=4)\n", True), ("", False)],
)
def test_copies_for_parallel_devices_make_a_compute_buffer_large(before, is_told):
    failure = told(
        f"{before}ggml_backend_cuda_buffer_type_alloc_buffer: allocating 256.00 MiB on device 2: cudaMalloc failed: "
        "out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA2 buffer of size 268435456\n"
    )
    assert ("GGML_SCHED_MAX_COPIES" in words(failure)) is is_told
    assert "-ts" in words(failure)


@pytest.mark.parametrize(
    ("text", "said", "kind"),
    [
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "may not use", "check_shape_bug"),
        ("torch.AcceleratorError: CUDA error: too many resources requested for launch", "registers",
         "driver_or_runtime_bug"),
        ("[719] Call to cuMemFree results in CUDA_ERROR_LAUNCH_FAILED", "failed while it ran", "check_shape_bug"),
        ("Memory access fault by GPU node-2 (Agent handle: 0x1) on address 0x2000. Reason: Page not present.",
         "may not use", "check_shape_bug"),
    ],
)  # fmt: skip
def test_a_kernel_that_failed_lacked_no_memory(text, said, kind):
    answer = StatedAnswer.of(*read_messages([f"{text}\n".encode()]))
    (soft,) = answer.soft
    assert not answer.failures
    assert said in soft.judgement.sentence
    assert [str(each.kind) for each in soft.advice] == [kind]
    both = StatedAnswer.of(*read_messages([f"{text}\nRuntimeError: {OLD}\n".encode()]))
    assert [each.judgement.cause for each in both.failures] == [StatedCause.CACHED_FRAGMENTATION]
    general = StatedAnswer.of(*read_messages([f"{text}\nCUDA: failed to allocate 33554432 bytes\n".encode()]))
    assert general.failures


def test_a_pool_of_pinned_memory_names_what_limits_it():
    failure = told(
        "W external/tsl/bfc_allocator.cc:4] Allocator (xla_gpu_host_bfc) ran out of memory trying to allocate 32.00MiB "
        "(rounded to 33554432)requested by op\n"
    )
    assert failure.judgement.cause is StatedCause.HOST_MEMORY
    assert "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB" in words(failure)
    assert "data loader" not in words(failure)


@pytest.mark.parametrize(
    ("held", "cause"), [("90.00 MiB", StatedCause.OTHER_PROCESS), ("15.00 GiB", StatedCause.UNKNOWN)]
)
def test_the_middle_of_a_text_of_pytorch_says_who_holds_the_device(held, cause):
    failure = told(
        f"(GPU 3; 16.00 GiB total capacity; {held} already allocated; 4.00 MiB free; {held} reserved in total by "
        "PyTorch)"
    )
    assert failure.judgement.cause is cause
    assert failure.stated.fact("device_free") == 4 * MIB
    assert "requested" not in failure.stated.facts
    assert ("15.91 GiB lie outside" in failure.judgement.sentence) is (cause is StatedCause.OTHER_PROCESS)


def test_a_program_that_counts_before_it_reserves():
    failure = told("what(): Cannot reserve 2048 MiB as there is only 5 MiB free device memory left\n")
    assert failure.stated.framework == "PIConGPU"
    assert failure.stated.facts == {"requested": 2048 * MIB, "device_free": 5 * MIB}
    assert (failure.judgement.cause, failure.judgement.second) == (
        StatedCause.CAPACITY,
        StatedCause.OTHER_PROCESS,
    )


def test_a_library_beside_jax_needs_a_part_of_the_device():
    failure = told("mpi4jax: MPI_Sendrecv\n\tError 2 cudaErrorMemoryAllocation: out of memory\n")
    assert failure.stated.framework == "JAX"
    assert kinds(failure)[0] == "preallocation_off_or_fraction"


@pytest.mark.parametrize(
    "path", ["tensorflow/core", "C:\\build\\a\\PY\\36\\tensorflow\\core", "/b/x/tensorflow/core"]
)
@pytest.mark.parametrize(
    ("year", "setting"), [(2018, "config.gpu_options"), (2023, "tf.config.experimental")]
)
def test_a_log_of_tensorflow_1_has_its_date_whatever_the_path_of_the_build(path, year, setting):
    failure = told(
        f"{year}-03-04 01:02:03.000001: W {path}/common_runtime/bfc_allocator.cc:9] Allocator (GPU_0_bfc) ran out of "
        "memory trying to allocate 300.00MiB.  Current allocation summary follows.\n"
    )
    assert setting in words(failure)


def test_a_program_of_many_processes_has_no_data_loader():
    failure = told("ERROR on proc 5: Failed to reallocate 99000 bytes for array a:b (src/memory.cpp:1)\n")
    assert failure.judgement.cause is StatedCause.HOST_MEMORY
    assert "data loader" not in words(failure)
    assert "fewer processes" in words(failure)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (7_000_000_000, "What the program took for free may be held by another process."),
        (140_000_000_000_000, "the runtime told the program a wrong amount of free memory."),
    ],
)
def test_a_pool_that_tries_less_says_what_it_found_held(first, said):
    log = "".join(
        f"2019-02-02 01:02:03.00000{step}: E tensorflow/stream_executor/rocm/rocm_driver.cc:6] failed to allocate 1G "
        f"({first * 9**step // 10**step} bytes) from device: hipError_t(1002)\n"
        for step in range(3)
    )
    found = read_messages([log.encode()])
    answer = StatedAnswer.of(found.failures, found.soft)
    assert not answer.failures
    assert said in " ".join(str(answer).split())


def test_arrays_of_an_earlier_run_on_a_tpu_count_too():
    failure = told(
        "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 9.00G. That was not possible. "
        "There are 4.00G free.; (0x0x0_HBM0)\n"
    )
    assert "an earlier run" in failure.judgement.sentence

"""Texts of frameworks, written here in the format of their sources: what is read, and what is joined to one failure."""

import gzip
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bfcviz.analysis.stated_advice import advise
from bfcviz.analysis.stated_verdict import judge
from bfcviz.errors import FileError
from bfcviz.importers.messages import is_pasted, read_message_file, read_messages, read_pasted

MIB, GIB = 1 << 20, 1 << 30

# c10/cuda/CUDACachingAllocator.cpp, today
CUDA_2 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has a total capacity of "
    "8.00 GiB of which 1.00 GiB is free. Process 77 has 512.00 MiB memory in use. Including non-PyTorch "
    "memory, this process has 6.25 GiB memory in use. 7.00 GiB allowed; Of the allocated memory 5.00 GiB is "
    "allocated by PyTorch, with 64.00 MiB allocated in private pools (e.g., CUDA Graphs), and 256.00 MiB is "
    "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
    "Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html)"
)
CUDA_2_FACTS = {
    "requested": 3 * GIB,
    "device_total": 8 * GIB,
    "device_free": GIB,
    "process_in_use": 6 * GIB + GIB // 4,
    "limit": 7 * GIB,
    "allocated": 5 * GIB,
    "private_pools": 64 * MIB,
    "reserved_unallocated": 256 * MIB,
    "other_processes": 512 * MIB,
}

CASES = [
    ("torch today", CUDA_2, "PyTorch CUDA", CUDA_2_FACTS),
    (
        "torch, its first words cut off",
        (
            "Tried to allocate 20.00 MiB (GPU 0; 4.00 GiB total capacity; 3.00 GiB already allocated; 2.00 MiB free; "
            "3.25 GiB reserved in total by PyTorch)"
        ),
        "PyTorch CUDA",
        {"requested": 20 * MIB, "device_total": 4 * GIB, "device_free": 2 * MIB, "reserved": 13 * GIB // 4},
    ),
    (
        "torch, one buffer of Intel's",
        (
            "Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate "
            "6.00 GiB (GPU  0; 16.00 GiB total capacity; 0 bytes already allocated; 0 bytes reserved in total by "
            "PyTorch)"
        ),
        "PyTorch XPU",
        {"requested": 6 * GIB, "limit": 4 * GIB, "device_total": 16 * GIB},
    ),
    (
        "torch_npu",
        (
            "RuntimeError: NPU out of memory. Tried to allocate 64.00 MiB (NPU 2; 32.00 GiB total capacity; 20.00 GiB "
            "already allocated; 20.00 GiB current active; 16.00 MiB free; 30.00 GiB reserved in total by PyTorch) If "
            "reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
        ),
        "PyTorch NPU",
        {"requested": 64 * MIB, "device_total": 32 * GIB, "device_free": 16 * MIB, "reserved": 30 * GIB},
    ),
    (
        "a server's workspace",
        (
            "RuntimeError: Failed to allocate memory for batch_decode_tmp_s with size 1048576 and alignment 16 in "
            "AlignedAllocator"
        ),
        "FlashInfer",
        {"requested": MIB},
    ),
    (
        "an old kernel's line",
        "[ 12.5] Killed process 31 (a.out) total-vm:4096kB, anon-rss:2048kB, file-rss:0kB, shmem-rss:0kB",
        "Linux",
        {"process_in_use": 2 * MIB},
    ),
    (
        "paddle",
        (
            "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 512.000244MB memory on GPU 0, "
            "7.500000GB memory has been allocated and available memory is only 12.750000MB."
        ),
        "PaddlePaddle",
        {"device_used": 15 * GIB // 2, "device_free": 51 * MIB // 4},
    ),
    (
        "a constant of XLA",
        "INTERNAL: Failed to allocate 4096 bytes for new constant",
        "JAX",
        {"requested": 4096},
    ),
    (
        "triton",
        (
            "OutOfResources: out of resource: shared memory, Required: 180224, Hardware limit: 101376. Reducing block "
            "sizes or `num_stages` may help."
        ),
        "Triton",
        {"requested": 180224, "limit": 101376},
    ),
    ("a library", "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "PyTorch CUDA", {}),
    (
        "a worker",
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        "PyTorch CPU",
        {},
    ),
    (
        "torch 2.1",  # with its typo
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total "
            "capacty of 4.00 GiB of which 2.00 MiB is free. Of the allocated memory 3.50 GiB is allocated by "
            "PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
            "large try setting max_split_size_mb"
        ),
        "PyTorch CUDA",
        {"requested": 20 * MIB, "device_total": 4 * GIB, "device_free": 2 * MIB, "reserved_unallocated": MIB},
    ),
    (
        "torch 1.4 to 2.0",
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 4.00 GiB total capacity; 3.00 "
            "GiB already allocated; 2.00 MiB free; 3.50 GiB allowed; 3.25 GiB reserved in total by PyTorch)"
        ),
        "PyTorch CUDA",
        {
            "requested": 20 * MIB,
            "device_total": 4 * GIB,
            "allocated": 3 * GIB,
            "device_free": 2 * MIB,
            "limit": 3 * GIB + GIB // 2,
            "reserved": 3 * GIB + GIB // 4,
        },
    ),
    (
        "torch 1.0",
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 128.00 KiB (GPU 0; 4.00 GiB total capacity; "
            "3.00 GiB already allocated; 64.00 KiB free; 5.00 MiB cached)"
        ),
        "PyTorch CUDA",
        {"requested": 128 << 10, "cached": 5 * MIB},
    ),
    (
        "torch on ROCm",
        CUDA_2.replace("CUDA out", "HIP out").replace("PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
        "PyTorch ROCm",
        CUDA_2_FACTS,
    ),
    (
        "torch on XPU",  # c10/xpu/XPUCachingAllocator.cpp, before the free memory came into it
        (
            "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity "
            "of 8.00 GiB. Of the allocated memory 5.00 GiB is allocated by PyTorch, and 0 bytes is reserved by "
            "PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory."
        ),
        "PyTorch XPU",
        {"requested": 3 * GIB, "device_total": 8 * GIB, "allocated": 5 * GIB, "reserved_unallocated": 0},
    ),
    (
        "torch with cudaMallocAsync",  # c10/cuda/CUDAMallocAsyncAllocator.cpp
        (
            "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of "
            "memory)\nCurrently allocated     : 6.00 GiB\nRequested               : 2.00 GiB\nDevice limit       "
            "     : 8.00 GiB\nFree (according to CUDA): 1.00 GiB\nPyTorch limit (set by user-supplied memory "
            "fraction)\n                        : 17179869184.00 GiB"
        ),
        "PyTorch cudaMallocAsync",
        {
            "allocated": 6 * GIB,
            "requested": 2 * GIB,
            "device_total": 8 * GIB,
            "device_free": GIB,
            "limit": None,
        },
    ),
    (
        "torch on a Mac",  # aten/src/ATen/mps/MPSAllocator.mm; GB until 2.6
        (
            "RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 512.00 MB, max "
            "allowed: 18.00 GB). Tried to allocate 1.00 GB on private pool. Use "
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit"
        ),
        "PyTorch MPS",
        {"allocated": 17 * GIB, "other_allocations": 512 * MIB, "limit": 18 * GIB, "requested": GIB},
    ),
    (
        "torch on a processor",  # c10/core/impl/alloc_cpu.cpp
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 4294967296 bytes. Error code 12 (Cannot allocate memory)"
        ),
        "PyTorch CPU",
        {"requested": 4 * GIB},
    ),
    (
        "memory_stats()",
        (
            "OrderedDict([('active.all.current', 5), ('allocated_bytes.all.current', 1024), "
            "('allocated_bytes.all.peak', 4096), ('num_alloc_retries', 3), ('num_ooms', 2), "
            "('reserved_bytes.all.current', 2048), ('reserved_bytes.all.peak', 8192)])"
        ),
        "PyTorch CUDA",
        {
            "allocated": 1024,
            "peak": 4096,
            "num_ooms": 2,
            "num_retries": 3,
            "reserved": 2048,
            "peak_reserved": 8192,
        },
    ),
    (
        "memory_summary()",
        (
            "|                  PyTorch CUDA memory summary, device ID 0                 |\n|            CUDA "
            "OOMs: 2            |        cudaMalloc retries: 3         |\n| Allocated memory      |    100 MiB | "
            "   400 MiB |   9000 MiB |   8900 MiB |\n|       from large pool |     90 MiB |    390 MiB |   8000 "
            "MiB |   7910 MiB |\n| GPU reserved memory   |    500 MiB |    900 MiB |   1000 MiB |    500 MiB "
            "|\n| Non-releasable memory |     50 MiB |     60 MiB |   1000 MiB |    950 MiB |\n"
        ),
        "PyTorch CUDA",
        {
            "num_ooms": 2,
            "allocated": 100 * MIB,
            "peak": 400 * MIB,
            "reserved": 500 * MIB,
            "peak_reserved": 900 * MIB,
            "non_releasable": 50 * MIB,
        },
    ),
    (
        "JAX with its program",  # xla/service/buffer_assignment.cc
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
            "2147483000 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter "
            "allocation:    1.00GiB\n              constant allocation:        48B\n        maybe_live_out "
            "allocation:  512.00MiB\n     preallocated temp allocation:    2.00GiB\n  preallocated temp "
            "fragmentation:       64B (0.00%)\n                 total allocation:    3.50GiB\n              "
            "total fragmentation:  128.00MiB (3.57%)\nPeak buffers:\n\tBuffer 1:\n\t\tSize: 1.50GiB\n"
        ),
        "JAX",
        {
            "requested": 2147483000,
            "parameters": GIB,
            "constants": 48,
            "live_out": 512 * MIB,
            "temp": 2 * GIB,
            "program_total": 3 * GIB + GIB // 2,
            "fragmentation": 128 * MIB,
            "largest_buffer": GIB + GIB // 2,
        },
    ),
    (
        "JAX, newer words",
        "RESOURCE_EXHAUSTED: Failed to allocate request for 3.00GiB (3221225472B) on device ordinal 0",
        "JAX",
        {"requested": 3 * GIB},
    ),
    (
        "XLA's scheduler",  # xla/service/gpu/gpu_hlo_schedule.cc
        (
            "E external/xla/xla/service/gpu/gpu_hlo_schedule.cc:654] The byte size of input/output arguments "
            "(5000000) exceeds the base limit (4000000). This indicates an error in the calculation!\nW "
            "external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying "
            "to allocate 4.77MiB (rounded to 5000192)requested by op \n"
        ),
        "JAX",
        {"program_io": 5_000_000, "limit": 4_000_000, "rounded": 5_000_192, "requested": 5_000_192},
    ),
    (
        "TPU at compile time",
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used "
            "20.00G of 15.50G hbm. Exceeded hbm capacity by 4.50G.\n\nTotal hbm usage >= 20.50G:\n    reserved   "
            "     512.00M \n    program          20.00G \n    arguments            0B \n"
        ),
        "JAX TPU",
        {
            "program": 20 * GIB,
            "limit": 31 * GIB // 2,
            "exceeded": 9 * GIB // 2,
            "system_reserved": 512 * MIB,
            "arguments": 0,
        },
    ),
    (
        "TPU at run time",
        (
            "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 4.00G. That was not "
            "possible. There are 2.00G free.; (0x0x0_HBM0)"
        ),
        "JAX TPU",
        {"requested": 4 * GIB, "device_free": 2 * GIB},
    ),
    (
        "TensorFlow with counters",  # tsl/framework/bfc_allocator.cc, AllocatorStats::DebugString
        (
            "2018-06-08 17:26:00.908082: I tensorflow/core/common_runtime/bfc_allocator.cc:680] Stats: \nLimit:  "
            "               10000\nInUse:                    7000\nMaxInUse:                 8000\nNumAllocs:    "
            "              82\nMaxAllocSize:             4000\n\n2018-06-08 17:26:00.908130: W "
            "tensorflow/core/framework/op_kernel.cc:1202] OP_REQUIRES failed at x.cc:1 : Resource exhausted: OOM "
            "when allocating tensor with shape[16,100] and type float on "
            "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
        ),
        "TensorFlow",
        {
            "limit": 10000,
            "in_use": 7000,
            "peak": 8000,
            "num_allocs": 82,
            "largest_alloc": 4000,
            "requested": 6400,
        },
    ),
    (
        "TensorFlow's host memory",
        (
            "failed to alloc 2147483648 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory\ncould not "
            "allocate pinned host memory of size: 2147483648"
        ),
        "TensorFlow",
        {"requested": 2 * GIB},
    ),
    (
        "CuPy with a limit",  # cupy/cuda/memory.pyx, OutOfMemoryError
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,024 bytes (allocated so far: 4,096 "
            "bytes, limit set to: 5,000 bytes)."
        ),
        "CuPy",
        {"requested": 1024, "allocated": 4096, "limit": 5000},
    ),
    (
        "CuPy before 6",
        "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1024 bytes (total 5120 bytes)",
        "CuPy",
        {"requested": 1024, "total_with_request": 5120, "allocated": 4096},
    ),
    (
        "RMM",  # cpp/src/mr/detail/pool_memory_resource_impl.cpp
        (
            "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:/x/pool_memory_resource.hpp:257: Maximum "
            "pool size exceeded (failed to allocate 2.000 GiB): Not enough room to grow, current/max/try size = "
            "9.000 GiB, 10.000 GiB, 2.000 GiB"
        ),
        "RMM",
        {"requested": 2 * GIB, "reserved": 9 * GIB, "limit": 10 * GIB},
    ),
    (
        "RMM's driver",  # cpp/include/rmm/detail/error.hpp, RMM_CUDA_TRY_ALLOC
        (
            "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 4096 bytes) at: "
            "/x/cuda_memory_resource.hpp:62: cudaErrorMemoryAllocation out of memory"
        ),
        "RMM",
        {"requested": 4096},
    ),
    (
        "ONNX Runtime",  # onnxruntime/core/framework/bfc_arena.cc
        (
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Conv node. "
            "Name:'a' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* "
            "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Available memory of 1024 is smaller than "
            "requested bytes of 4096"
        ),
        "ONNX Runtime",
        {"requested": 4096, "available": 1024},
    ),
    (
        "llama.cpp",  # ggml-cuda.cu, ggml-alloc.c
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.00 MiB on device 0: cudaMalloc failed: "
            "out of memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size "
            "1073741824\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
        ),
        "llama.cpp",
        {"requested": GIB, "requested_printed": GIB},
    ),
    (
        "vLLM at its start",  # vllm/v1/worker/gpu_worker.py
        (
            "ValueError: Free memory on device cuda:0 (2.5/16.0 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 14.4 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
            "processes."
        ),
        "vLLM",
        {"device_free": 5 * GIB // 2, "device_total": 16 * GIB},
    ),
    (
        "vLLM's KV cache",  # vllm/v1/core/kv_cache_utils.py
        (
            "ValueError: To serve at least one request with the models's max seq len (4096), (4.0 GiB KV cache "
            "is needed, which is larger than the available KV cache memory (1.0 GiB). Based on the available "
            "memory, the estimated maximum model length is 1024."
        ),
        "vLLM",
        {"requested": 4 * GIB, "kv_available": GIB, "max_tokens": 4096, "kv_tokens": 1024},
    ),
    (
        "Ollama",
        "Error: model requires more system memory (12.0 GiB) than is available (8.0 GiB)",
        "Ollama",
        {"requested": 12 * GIB, "available": 8 * GIB},
    ),
    (
        "a call of CUDA",
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be",
        "PyTorch CUDA",
        {},
    ),
]
IDS = [case[0] for case in CASES]


def read(text, name=""):
    return read_messages([text.encode()], name)


def only(text):
    found = read(text)
    assert len(found.failures) == 1, found
    return found.failures[0]


@pytest.mark.parametrize(("_name", "text", "framework", "facts"), CASES, ids=IDS)
def test_each_text_is_read(_name, text, framework, facts):
    found = only(text)
    assert found.framework == framework
    assert {name: found.facts.get(name) for name in facts} == facts


DRESSES = {
    "in other text": lambda text: (
        f"Epoch 1: 50%|####  | 3/6\nmemory: fine\n{text}\nsrun: error: task 3 exited\n"
    ),
    "after ranks": lambda text: "".join(f"[rank3]: {line}\n" for line in text.split("\n")),
    "after times": lambda text: "".join(
        f"2025-11-12T11:25:13.4961658Z {line}\n" for line in text.split("\n")
    ),
    "of a worker": lambda text: "".join(
        f"(Worker_TP1 pid=54) ERROR 07-29 21:48:54 [multiproc_executor.py:962] {line}\n"
        for line in text.split("\n")
    ),
    "in colours": lambda text: text.replace(" ", "\x1b[0m \x1b[31;1m"),
    "in a quotation": lambda text: "".join(f"> {line}\n" for line in text.split("\n")),
    "in JSON": lambda text: '{"log": "' + text.replace("\n", "\\n") + '"}',
    "on Windows": lambda text: text.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize(("_name", "text", "framework", "facts"), CASES, ids=IDS)
def test_it_is_read_wherever_it_stands(_name, text, framework, facts, dress):
    found = only(DRESSES[dress](text))
    assert {name: found.facts.get(name) for name in facts} == facts
    assert found.framework == framework


@pytest.mark.parametrize("width", [61, 80, 120])
def test_hard_wrapped_lines(width):
    wrapped = "\n".join(CUDA_2[at : at + width] for at in range(0, len(CUDA_2), width))
    assert dict(only(wrapped).facts) == CUDA_2_FACTS
    words, lines = CUDA_2.split(" "), [""]
    for word in words:
        lines = [*lines, word] if len(lines[-1]) + len(word) > width else [*lines[:-1], f"{lines[-1]} {word}"]
    assert dict(only("\n  ".join(lines)).facts) == CUDA_2_FACTS


def test_pieces_of_any_length_make_no_difference():
    for before, sizes in ((5000, (99, 999, 4096)), (60, (7,))):
        text = ("x" * before + "\n" + CUDA_2 + "\n").encode() * 3
        whole = read_messages([text])
        for size in sizes:
            assert read_messages([text[at : at + size] for at in range(0, len(text), size)]) == whole
        assert whole.failures[0].count == 3


def test_utf_16_of_powershell(tmp_path):
    path = tmp_path / "out.txt"
    path.write_bytes(CUDA_2.encode("utf-16"))
    assert dict(read_message_file(path).failures[0].facts) == CUDA_2_FACTS
    path.write_bytes(gzip.compress(CUDA_2.encode()))
    assert dict(read_message_file(path).failures[0].facts) == CUDA_2_FACTS


@pytest.mark.parametrize(
    ("text", "framework", "tool"),
    [
        ("RuntimeError: HIP error: out of memory\nHIP kernel errors might be", "ROCm", "rocm-smi"),
        (
            "RuntimeError: HIP error: out of memory\nCompile with `TORCH_USE_HIP_DSA`",
            "PyTorch ROCm",
            "rocm-smi",
        ),
        ("hipErrorOutOfMemory: a call failed", "ROCm", "rocm-smi"),
        ("torch: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "PyTorch XPU", "xpu-smi"),
        ("RuntimeError: CUDA error: out of memory", "CUDA", "nvidia-smi"),
    ],
)
def test_a_call_of_each_driver_and_the_tool_that_exists_there(text, framework, tool):
    (found,) = read(text).failures
    assert found.framework == framework
    advice = " ".join(each.text for each in advise(found, judge(found)))
    assert [word for word in ("rocm-smi", "xpu-smi", "nvidia-smi") if word in advice] == [tool]
    assert ("CUDA_LAUNCH_BLOCKING" in advice) is False


@pytest.mark.parametrize(
    ("words", "tool"),
    [("", "nvidia-smi"), ("/opt/rocm/lib", "rocm-smi"), ("ggml_metal_init", "Activity Monitor")],
)
def test_the_tool_follows_what_the_text_says_of_the_device(words, tool):
    (found,) = read(
        f"{words}\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.00 MiB on device 0: cudaMalloc failed: "
        "out of memory\n"
    ).failures
    advice = " ".join(each.text for each in advise(found, judge(found)))
    assert tool in advice
    assert ("nvidia-smi" in advice) is (tool == "nvidia-smi")


def test_the_pool_of_ggml():
    (found,) = read(
        "CUDA error: out of memory\n  current device: 0, in function alloc at /b/ggml-cuda.cu:529\n"
        "  cuMemCreate(&handle, reserve_size, &prop, 0)\n"
    ).failures
    assert found.framework == "llama.cpp"
    assert {"ggml", "pool"} <= found.marks
    kinds = [each.kind for each in advise(found, judge(found))]
    assert kinds[:2] == ["sequence_or_context_length", "smaller_request_or_batch"]


def test_the_largest_buffer_of_a_program():
    (found,) = read(
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 "
        "bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n"
        "             parameter allocation:    1.00GiB\n"
        "     preallocated temp allocation:    8.00GiB\n"
        "                 total allocation:    9.00GiB\n"
        'Peak buffers:\n\tBuffer 1:\n\t\tSize: 6.00GiB\n\t\tOperator: op_name="jit(step)/jit(main)/dot_general" '
        'source_file="/home/a/model.py" source_line=33\n\t\tXLA Label: fusion\n'
        "\t\tShape: f32[40000,40265]\n\t\t==========================\n\n"
        "\tBuffer 2:\n\t\tSize: 1.00GiB\n\t\tShape: bf16[7]\n\t\t==========================\n\n"
    ).failures
    assert found.facts["largest_buffer"] == 6 * GIB
    assert found.largest == "f32[40000,40265] of jit(step)/jit(main)/dot_general at /home/a/model.py:33"
    assert found.largest in judge(found).sentence


def test_a_buffer_without_its_operator():
    (found,) = read(
        "Out of memory while trying to allocate 8589934592 bytes.\nBufferAssignment OOM Debugging.\n"
        "Peak buffers:\n\tBuffer 1:\n\t\tSize: 6.00GiB\n\t\tXLA Label: copy\n\t\tShape: f32[3,4]\n\t\t=======\n"
    ).failures
    assert found.largest == "f32[3,4]"


def test_reactant_reads_no_settings_of_jax():
    (found,) = read(
        "2025-01-05 09:48:28: W external/xla/xla/tsl/framework/bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of "
        "memory trying to allocate 3.73GiB (rounded to 4000000000)requested by op\n"
        "Stacktrace:\n [1] reactant_err(msg::Cstring)\n   @ Reactant.XLA ~/.julia/packages/Reactant/7m/src/XLA.jl:104"
    ).failures
    assert found.framework == "Reactant"
    advice = " ".join(each.text for each in advise(found, judge(found)))
    assert "XLA_REACTANT_GPU_MEM_FRACTION" in advice
    assert not [word for word in ("XLA_PYTHON", "jax", "tf.") if word in advice]


def test_a_text_that_tells_nothing(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("all is well\n")
    with pytest.raises(FileError, match="out-of-memory message"):
        read_message_file(path)


_SHORT = "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 16.00 GiB."


@pytest.mark.parametrize(
    ("around", "marks"),
    [
        ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", {"expandable_set"}),
        ("$ PYTORCH_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True python train.py",
         {"expandable_set", "max_split_set"}),
        ('os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"', {"expandable_set"}),
        ("docker run -e PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512 image", {"max_split_set"}),
        ("try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation", set()),
        ("try setting\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nto avoid fragmentation", set()),
        ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False", set()),
    ],
)  # fmt: skip
def test_a_setting_that_the_text_shows_as_set(around, marks):
    (found,) = read(f"{around}\n{_SHORT}").failures
    assert found.marks & {"expandable_set", "max_split_set"} == marks


def test_several_failures_each_once_in_their_order():
    other = CUDA_2.replace("3.00 GiB.", "4.00 GiB.")
    found = read(f"{CUDA_2}\n{other}\n{CUDA_2}\nCUDA out of memory")
    assert [(each.facts["requested"], each.count) for each in found.failures] == [(4 * GIB, 1), (3 * GIB, 3)]
    assert found.failures[0].line == 2


def test_lines_of_one_failure_are_joined():
    text = (
        "2024-05-28 07:02:44.349554: W external/tsl/tsl/framework/bfc_allocator.cc:482] Allocator "
        "(GPU_0_bfc) ran out of memory trying to allocate 2.00GiB (rounded to 2147483648)requested by op "
        "\nE0528 07:02:44.350251   27487 pjrt_stream_executor_client.cc:2826] Execution of replica 0 failed: "
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483600 "
        "bytes.\njaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
        "allocate 2147483600 bytes."
    )
    found = only(text)
    assert (found.framework, found.facts["requested"], found.count) == ("JAX", 2147483600, 2)
    assert found.op == ""


def test_what_is_no_failure():
    soft = (
        "W tensorflow/core/common_runtime/bfc_allocator.cc:275] Allocator (GPU_0_bfc) ran out of memory "
        "trying to allocate 1.00GiB with freed_by_count=0. The caller indicates that this is not a failure, "
        "but may mean"
    )
    backs_off = "\n".join(
        f"failed to allocate 1G ({size} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY" for size in (1000, 900)
    )
    retried = (
        "allocating 10.00 MiB on device 1: cudaMalloc failed: out of memory\nfailed to allocate CUDA1 buffer "
        "of size 10485760\nsched_reserve: compute buffer allocation failed, retrying without pipeline "
        "parallelism"
    )
    counted = (
        "PyTorch CUDA memory summary, device ID 0\n| CUDA OOMs: 0 | cudaMalloc retries: 0 |\n"
        "| Allocated memory | 1 MiB | 2 MiB |"
    )
    for text in (soft, backs_off, retried, counted):
        found = read(text)
        assert (len(found.failures), len(found.soft)) == (0, 1), text
    assert len(read(f"{soft}\n{CUDA_2}").failures) == 1


@pytest.mark.parametrize(
    ("text", "framework", "cause"),
    [
        ("E1: Insufficient Memory (8:kIOGPUCommandBufferCallbackErrorOutOfMemory)", "Metal", "unknown"),
        (
            "ggml_metal_x: Insufficient (8:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
            "llama.cpp",
            "unknown",
        ),
        (
            "E cuda/cuda_dnn.cc:1] tensorflow: could not create cudnn handle: INTERNAL",
            "TensorFlow",
            "unknown",
        ),
        ("failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED", "PyTorch CUDA", "unknown"),
        (
            "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
            "PyTorch CUDA",
            "unknown",
        ),
        ("ERROR: Unexpected bus error encountered in worker. (shm)", "PyTorch CPU", "host_memory"),
        ("api:failed (exitcode: -9) local_rank: 3 (pid: 7) of binary: python", "Linux", "host_memory"),
        ("[launch.py:321:sigkill_handler] ['python'] exits with return code = -9", "Linux", "host_memory"),
        ("[TRT] [E] 2: [x.cpp::resize::1] Error Code 2: OutOfMemory (no more)", "TensorRT", "unknown"),
        ("MXNetError: cudaMalloc retry failed: out of memory", "CUDA", "unknown"),
        (
            "MPS backend out of memory (MPS allocated: 9.00 GiB, other allocations: 0 bytes, max allowed: 9.50 GiB)",
            "PyTorch MPS",
            "capacity",
        ),
        (
            "MPS backend out of memory (MPS allocated: 1.00 GiB, other allocations: 0 bytes, max allowed: 9.50 GiB)",
            "PyTorch MPS",
            "unknown",
        ),
    ],
)
def test_texts_without_the_number_that_was_asked(text, framework, cause):
    (found,) = read_pasted(f"{text}\n").failures
    assert (found.framework, judge(found).cause) == (framework, cause)
    tools = {"Metal", "llama.cpp", "PyTorch CPU", "Linux", "PyTorch MPS"}
    assert framework not in tools or not any(
        "nvidia-smi" in each.text for each in advise(found, judge(found))
    )


TPU = """Ran out of memory in memory space hbm. Used 20.00G of 16.00G hbm. Exceeded hbm capacity by 4.00G.

  Largest program allocations in hbm:

  1. Size: 8.00G
     Operator: op_name="jit(f)/mod"
     Shape: s32[1024,8,4]{2,1,0:T(8,128)}
     Unpadded size: 256.00M
     Extra memory due to padding: 7.75G (32.0x expansion)
     ==========================
  2. Size: 1.00G
     Shape: f32[64]
     Extra memory due to padding: 1.0K (1.0x expansion)
"""


def test_padding_of_the_largest_buffer_on_a_tpu():
    (found,) = read_pasted(TPU).failures
    assert (found.largest, found.facts["padding"]) == ("s32[1024,8,4] of jit(f)/mod", 31 * GIB // 4)
    assert "7.75 GiB of it are padding" in judge(found).sentence
    assert advise(found, judge(found))[0].kind == "check_shape_bug"
    (plain,) = read_pasted(
        TPU.replace("     Extra memory due to padding: 7.75G (32.0x expansion)\n", "")
    ).failures
    assert "padding" not in plain.facts
    first, *others = advise(plain, judge(plain))
    assert "check_shape_bug" not in {str(each.kind) for each in others}
    assert first.kind == "smaller_request_or_batch"  # a quarter too much
    (far,) = read_pasted(
        TPU.partition("\n")[0].replace("20.00G", "64.00G").replace("4.00G.", "48.00G.\n")
    ).failures
    assert advise(far, judge(far))[0].kind == "optimizer_offload_or_shard"


def test_a_signal_is_told_only_where_nothing_else_tells_more():
    (found,) = read_pasted(f"{CUDA_2}\nexitcode  : -9 (pid: 4)\n").failures
    assert found.message == "torch-cuda"


def test_a_builder_that_leaves_out_a_tactic_did_not_fail():
    text = (
        "[TRT] 2: Error Code 2: OutOfMemory (no further information)\n"
        "[TRT] Requested amount of GPU memory (1048576 bytes) could not be allocated.\n"
        "[TRT] Skipping tactic 3 due to insufficient memory on requested size of 1048576 detected\n"
    )
    found = read_pasted(text)
    assert not found.failures
    assert max(each.fact("requested") or 0 for each in found.soft) == MIB


def test_the_operation_may_stand_in_the_repetition_only():
    text = (
        "Resource exhausted: OOM when allocating tensor with shape[64,500]\n"
        "ran out of memory trying to allocate 84.60MiB. The caller indicates that this is not a failure\n"
        "Error: OOM when allocating tensor with shape[64,500] [[Node: train/Adam/mul_2 = Mul[T=DT_FLOAT]]]\n"
    )
    (found,) = read_pasted(text).failures
    assert (found.op, found.count) == ("train/Adam/mul_2", 2)
    assert "smaller_request_or_batch" not in {str(each.kind) for each in advise(found, judge(found))}


def test_ascend_has_its_own_names():
    text = next(case[1] for case in CASES if case[0] == "torch_npu")
    (found,) = read_pasted(text).failures
    told = " ".join(each.text for each in advise(found, judge(found)))
    assert found.version == ""
    assert "PYTORCH_NPU_ALLOC_CONF=max_split_size_mb" in told
    assert not {"nvidia-smi", "PYTORCH_CUDA_ALLOC_CONF", "torch.cuda"} & set(told.replace("=", " ").split())


def test_figures_that_cannot_be_are_left_out():
    found = only(CUDA_2.replace("6.25 GiB", "17179869184.00 GiB"))
    assert "process_in_use" not in found.facts
    assert "false_figures" in found.marks
    found = only(CASES[7][1].replace("512.00 MB", "67108914.49 GB"))
    assert "other_allocations" not in found.facts


def test_a_limit_of_nothing_is_judged():
    (text,) = (case[1] for case in CASES if case[0] == "TensorFlow with counters")
    found = only(text.replace("10000", "0"))
    assert found.facts["limit"] == 0
    assert "6.84 KiB are in use" in judge(found).sentence


def test_a_pasted_text_is_told_from_a_file(tmp_path):
    path = tmp_path / "a file"
    path.write_text(CUDA_2)
    assert not is_pasted(str(path))
    assert not is_pasted("missing.log")
    assert is_pasted(CUDA_2)
    assert is_pasted("x" * 5000 + "\0 \n")
    with pytest.raises(FileError, match="no such file"):
        read_pasted("my model is slow")


WORDS = sorted({word for _, text, *_ in CASES for word in text.split()})


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from([text for _, text, *_ in CASES] + WORDS + ["\n", "\x1b[1m", "{", "9" * 40]),
        max_size=30,
    ),
    st.randoms(),
)
def test_mutated_texts_end_in_one_answer(parts, random_):
    from bfcviz.analysis.stated_answer import StatedAnswer  # noqa: PLC0415  the answer is part of the promise

    text = list(" ".join(parts))
    for _ in range(min(len(text), 20)):
        at = random_.randrange(len(text))
        text[at] = random_.choice("0123456789., GMKiB()\n|")
    answer = StatedAnswer.of(*read("".join(text)))
    assert isinstance(str(answer), str)
    assert isinstance(answer.to_json()["failures"], list)


@pytest.mark.parametrize(
    "text", ["CUDA out of memory ", "9" * 20, "failed to allocate ", "Limit: ", "|", "a " * 50, "Buffer 1: "]
)
def test_time_is_bounded(text):
    begun = time.process_time()
    read(text * (100_000 // len(text)))
    assert time.process_time() - begun < 2


def test_random_bytes():
    data = random.Random(4).randbytes(1 << 16)
    assert read_messages([data]) == ([], [], 0)


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank{}]: ",
        "[default0]:[rank{}]: ",
        "[default{}]:",
        "[1,{}]<stderr>:",
        "2026-01-05 10:11:12 rank {}: ",
    ],
)
def test_equal_failures_of_several_ranks_are_one(prefix):
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n"
    (found,) = read_messages(["".join(prefix.format(rank) + text for rank in (3, 0, 11)).encode()]).failures
    assert (found.ranks, found.count) == ((3, 0, 11), 3)

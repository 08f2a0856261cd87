"""Texts of frameworks, written here in the format of their sources: what is read, and what is joined to one failure."""

import gzip
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.analysis.message_advice import advise
from bfcviz.analysis.message_answer import StatedAnswer
from bfcviz.analysis.message_verdict import Judgement, StatedCause, judge
from bfcviz.errors import FileError
from bfcviz.formats.message_tables import counts
from bfcviz.importers.message_reader import (
    device_of_messages,
    is_pasted,
    read_message_file,
    read_messages,
    read_pasted,
)

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
    ("torch, its first words cut off",
     ("Tried to allocate 20.00 MiB (GPU 0; 4.00 GiB total capacity; 3.00 GiB already allocated; 2.00 MiB free; "
      "3.25 GiB reserved in total by PyTorch)"),
     "PyTorch CUDA",
     {"requested": 20 * MIB, "device_total": 4 * GIB, "device_free": 2 * MIB, "reserved": 13 * GIB // 4}),
    ("torch, one buffer of Intel's",
     ("Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate "
      "6.00 GiB (GPU  0; 16.00 GiB total capacity; 0 bytes already allocated; 0 bytes reserved in total by "
      "PyTorch)"),
     "PyTorch XPU", {"requested": 6 * GIB, "limit": 4 * GIB, "device_total": 16 * GIB}),
    ("torch_npu",
     ("RuntimeError: NPU out of memory. Tried to allocate 64.00 MiB (NPU 2; 32.00 GiB total capacity; 20.00 GiB "
      "already allocated; 20.00 GiB current active; 16.00 MiB free; 30.00 GiB reserved in total by PyTorch) If "
      "reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."),
     "PyTorch NPU", {"requested": 64 * MIB, "device_total": 32 * GIB, "device_free": 16 * MIB, "reserved": 30 * GIB}),
    ("a server's workspace",
     ("RuntimeError: Failed to allocate memory for batch_decode_tmp_s with size 1048576 and alignment 16 in "
      "AlignedAllocator"),
     "FlashInfer", {"requested": MIB}),
    ("an old kernel's line",
     "[ 12.5] Killed process 31 (a.out) total-vm:4096kB, anon-rss:2048kB, file-rss:0kB, shmem-rss:0kB", "Linux",
     {"process_in_use": 2 * MIB}),
    ("paddle",
     ("ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 512.000244MB memory on GPU 0, "
      "7.500000GB memory has been allocated and available memory is only 12.750000MB."),
     "PaddlePaddle", {"device_used": 15 * GIB // 2, "device_free": 51 * MIB // 4}),
    ("a constant of XLA", "INTERNAL: Failed to allocate 4096 bytes for new constant", "XLA", {"requested": 4096}),
    ("triton",
     ("OutOfResources: out of resource: shared memory, Required: 180224, Hardware limit: 101376. Reducing block "
      "sizes or `num_stages` may help."),
     "Triton", {"requested": 180224, "limit": 101376}),
    ("a library", "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "PyTorch CUDA", {}),
    ("a worker", "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.", "PyTorch CPU", {}),
    ("torch 2.1",  # with its typo
     ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total "
      "capacty of 4.00 GiB of which 2.00 MiB is free. Of the allocated memory 3.50 GiB is allocated by "
      "PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
      "large try setting max_split_size_mb"),
     "PyTorch CUDA",
     {"requested": 20 * MIB, "device_total": 4 * GIB, "device_free": 2 * MIB, "reserved_unallocated": MIB}),
    ("torch 1.4 to 2.0",
     ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 4.00 GiB total capacity; 3.00 "
      "GiB already allocated; 2.00 MiB free; 3.50 GiB allowed; 3.25 GiB reserved in total by PyTorch)"),
     "PyTorch CUDA",
     {"requested": 20 * MIB, "device_total": 4 * GIB, "allocated": 3 * GIB, "device_free": 2 * MIB,
      "limit": 3 * GIB + GIB // 2, "reserved": 3 * GIB + GIB // 4}),
    ("torch 1.0",
     ("RuntimeError: CUDA out of memory. Tried to allocate 128.00 KiB (GPU 0; 4.00 GiB total capacity; "
      "3.00 GiB already allocated; 64.00 KiB free; 5.00 MiB cached)"),
     "PyTorch CUDA", {"requested": 128 << 10, "cached": 5 * MIB}),
    ("torch on ROCm", CUDA_2.replace("CUDA out", "HIP out").replace("PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
     "PyTorch ROCm", CUDA_2_FACTS),
    ("torch on XPU",  # c10/xpu/XPUCachingAllocator.cpp, before the free memory came into it
     ("torch.OutOfMemoryError: XPU out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity "
      "of 8.00 GiB. Of the allocated memory 5.00 GiB is allocated by PyTorch, and 0 bytes is reserved by "
      "PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory."),
     "PyTorch XPU", {"requested": 3 * GIB, "device_total": 8 * GIB, "allocated": 5 * GIB, "reserved_unallocated": 0}),
    ("torch with cudaMallocAsync",  # c10/cuda/CUDAMallocAsyncAllocator.cpp
     ("torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of "
      "memory)\nCurrently allocated     : 6.00 GiB\nRequested               : 2.00 GiB\nDevice limit       "
      "     : 8.00 GiB\nFree (according to CUDA): 1.00 GiB\nPyTorch limit (set by user-supplied memory "
      "fraction)\n                        : 17179869184.00 GiB"),
     "PyTorch cudaMallocAsync",
     {"allocated": 6 * GIB, "requested": 2 * GIB, "device_total": 8 * GIB, "device_free": GIB, "limit": None}),
    ("torch on a Mac",  # aten/src/ATen/mps/MPSAllocator.mm; GB until 2.6
     ("RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 512.00 MB, max "
      "allowed: 18.00 GB). Tried to allocate 1.00 GB on private pool. Use "
      "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit"),
     "PyTorch MPS", {"allocated": 17 * GIB, "other_allocations": 512 * MIB, "limit": 18 * GIB, "requested": GIB}),
    ("torch on a processor",  # c10/core/impl/alloc_cpu.cpp
     ("RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate "
      "memory: you tried to allocate 4294967296 bytes. Error code 12 (Cannot allocate memory)"),
     "PyTorch CPU", {"requested": 4 * GIB}),
    ("memory_stats()",
     ("OrderedDict([('active.all.current', 5), ('allocated_bytes.all.current', 1024), "
      "('allocated_bytes.all.peak', 4096), ('num_alloc_retries', 3), ('num_ooms', 2), "
      "('reserved_bytes.all.current', 2048), ('reserved_bytes.all.peak', 8192)])"),
     "PyTorch CUDA",
     {"allocated": 1024, "peak": 4096, "num_ooms": 2, "num_retries": 3, "reserved": 2048, "peak_reserved": 8192}),
    ("memory_summary()",
     ("|                  PyTorch CUDA memory summary, device ID 0                 |\n|            CUDA "
      "OOMs: 2            |        cudaMalloc retries: 3         |\n| Allocated memory      |    100 MiB | "
      "   400 MiB |   9000 MiB |   8900 MiB |\n|       from large pool |     90 MiB |    390 MiB |   8000 "
      "MiB |   7910 MiB |\n| GPU reserved memory   |    500 MiB |    900 MiB |   1000 MiB |    500 MiB "
      "|\n| Non-releasable memory |     50 MiB |     60 MiB |   1000 MiB |    950 MiB |\n"),
     "PyTorch CUDA",
     {"num_ooms": 2, "allocated": 100 * MIB, "peak": 400 * MIB, "reserved": 500 * MIB, "peak_reserved": 900 * MIB,
      "non_releasable": 50 * MIB}),
    ("JAX with its program",  # xla/service/buffer_assignment.cc
     ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
      "2147483000 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter "
      "allocation:    1.00GiB\n              constant allocation:        48B\n        maybe_live_out "
      "allocation:  512.00MiB\n     preallocated temp allocation:    2.00GiB\n  preallocated temp "
      "fragmentation:       64B (0.00%)\n                 total allocation:    3.50GiB\n              "
      "total fragmentation:  128.00MiB (3.57%)\nPeak buffers:\n\tBuffer 1:\n\t\tSize: 1.50GiB\n"),
     "JAX",
     {"requested": 2147483000, "parameters": GIB, "constants": 48, "live_out": 512 * MIB, "temp": 2 * GIB,
      "program_total": 3 * GIB + GIB // 2, "fragmentation": 128 * MIB, "largest_buffer": GIB + GIB // 2}),
    ("JAX, newer words",
     "jaxlib: RESOURCE_EXHAUSTED: Failed to allocate request for 3.00GiB (3221225472B) on device ordinal 0", "JAX",
     {"requested": 3 * GIB}),
    ("XLA's scheduler",  # xla/service/gpu/gpu_hlo_schedule.cc
     ("E external/xla/xla/service/gpu/gpu_hlo_schedule.cc:654] The byte size of input/output arguments "
      "(5000000) exceeds the base limit (4000000). This indicates an error in the calculation!\nW "
      "external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying "
      "to allocate 4.77MiB (rounded to 5000192)requested by op \n"),
     "JAX", {"program_io": 5_000_000, "limit": 4_000_000, "rounded": 5_000_192, "requested": 5_000_192}),
    ("TPU at compile time",
     ("RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used "
      "20.00G of 15.50G hbm. Exceeded hbm capacity by 4.50G.\n\nTotal hbm usage >= 20.50G:\n    reserved   "
      "     512.00M \n    program          20.00G \n    arguments            0B \n"),
     "XLA TPU",
     {"program": 20 * GIB, "limit": 31 * GIB // 2, "exceeded": 9 * GIB // 2, "system_reserved": 512 * MIB,
      "arguments": 0}),
    ("TPU at run time",
     ("RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 4.00G. That was not "
      "possible. There are 2.00G free.; (0x0x0_HBM0)"),
     "XLA TPU", {"requested": 4 * GIB, "device_free": 2 * GIB}),
    ("TensorFlow with counters",  # tsl/framework/bfc_allocator.cc, AllocatorStats::DebugString
     ("2018-06-08 17:26:00.908082: I tensorflow/core/common_runtime/bfc_allocator.cc:680] Stats: \nLimit:  "
      "               10000\nInUse:                    7000\nMaxInUse:                 8000\nNumAllocs:    "
      "              82\nMaxAllocSize:             4000\n\n2018-06-08 17:26:00.908130: W "
      "tensorflow/core/framework/op_kernel.cc:1202] OP_REQUIRES failed at x.cc:1 : Resource exhausted: OOM "
      "when allocating tensor with shape[16,100] and type float on "
      "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"),
     "TensorFlow",
     {"limit": 10000, "in_use": 7000, "peak": 8000, "num_allocs": 82, "largest_alloc": 4000, "requested": 6400}),
    ("TensorFlow's host memory",
     ("failed to alloc 2147483648 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory\ncould not "
      "allocate pinned host memory of size: 2147483648"),
     "TensorFlow", {"requested": 2 * GIB}),
    ("CuPy with a limit",  # cupy/cuda/memory.pyx, OutOfMemoryError
     ("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,024 bytes (allocated so far: 4,096 "
      "bytes, limit set to: 5,000 bytes)."),
     "CuPy", {"requested": 1024, "allocated": 4096, "limit": 5000}),
    ("CuPy before 6", "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1024 bytes (total 5120 bytes)",
     "CuPy", {"requested": 1024, "total_with_request": 5120, "allocated": 4096}),
    ("RMM",  # cpp/src/mr/detail/pool_memory_resource_impl.cpp
     ("MemoryError: std::bad_alloc: out_of_memory: RMM failure at:/x/pool_memory_resource.hpp:257: Maximum "
      "pool size exceeded (failed to allocate 2.000 GiB): Not enough room to grow, current/max/try size = "
      "9.000 GiB, 10.000 GiB, 2.000 GiB"),
     "RMM", {"requested": 2 * GIB, "reserved": 9 * GIB, "limit": 10 * GIB}),
    ("RMM's driver",  # cpp/include/rmm/detail/error.hpp, RMM_CUDA_TRY_ALLOC
     ("MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 4096 bytes) at: "
      "/x/cuda_memory_resource.hpp:62: cudaErrorMemoryAllocation out of memory"),
     "RMM", {"requested": 4096}),
    ("ONNX Runtime",  # onnxruntime/core/framework/bfc_arena.cc
     ("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Conv node. "
      "Name:'a' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* "
      "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Available memory of 1024 is smaller than "
      "requested bytes of 4096"),
     "ONNX Runtime", {"requested": 4096, "available": 1024}),
    ("llama.cpp",  # ggml-cuda.cu, ggml-alloc.c
     ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.00 MiB on device 0: cudaMalloc failed: "
      "out of memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size "
      "1073741824\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n"),
     "llama.cpp", {"requested": GIB, "requested_printed": GIB}),
    ("vLLM at its start",  # vllm/v1/worker/gpu_worker.py
     ("ValueError: Free memory on device cuda:0 (2.5/16.0 GiB) on startup is less than desired GPU memory "
      "utilization (0.9, 14.4 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
      "processes."),
     "vLLM", {"device_free": 5 * GIB // 2, "device_total": 16 * GIB}),
    ("vLLM's KV cache",  # vllm/v1/core/kv_cache_utils.py
     ("ValueError: To serve at least one request with the models's max seq len (4096), (4.0 GiB KV cache "
      "is needed, which is larger than the available KV cache memory (1.0 GiB). Based on the available "
      "memory, the estimated maximum model length is 1024."),
     "vLLM", {"requested": 4 * GIB, "kv_available": GIB, "max_tokens": 4096, "kv_tokens": 1024}),
    ("Ollama", "Error: model requires more system memory (12.0 GiB) than is available (8.0 GiB)", "Ollama",
     {"requested": 12 * GIB, "available": 8 * GIB}),
    ("a call of CUDA", "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be", "PyTorch CUDA", {}),
    ("CatBoost", "stack_like_memory_pool.h:303: Error: Out of memory. Requested 3072 MB; Free 1024.5 MB", "CatBoost",
     {"requested": 3 * GIB, "available": GIB + MIB // 2}),
    ("CatBoost of 2018", "stack_like_memory_pool.h:305: Error: Out of memory. Requested 3072.5; Free 1024",
     "CatBoost", {"requested": 3 * GIB + MIB // 2, "available": GIB}),
    ("Theano",
     ("Error allocating 8388608 bytes of device memory (out of memory). Driver report 4194304 bytes free and "
      "4294967296 bytes total"),
     "Theano", {"requested": 8 * MIB, "device_free": 4 * MIB, "device_total": 4 * GIB}),
    ("CUDA.jl",
     ("ERROR: Out of GPU memory trying to allocate 6.000 GiB\nEffective GPU memory usage: 75.00% "
      "(6.000 GiB/8.000 GiB)\nMemory pool usage: 4.000 GiB (5.000 GiB reserved)\n"),
     "CUDA.jl",
     {"requested": 6 * GIB, "device_used": 6 * GIB, "device_total": 8 * GIB, "device_free": 2 * GIB,
      "allocated": 4 * GIB, "reserved": 5 * GIB}),
    ("XGBoost",
     ("device_helpers.cuh:431: Memory allocation error on worker 1: std::bad_alloc: cudaErrorMemoryAllocation: "
      "out of memory\n- Free memory: 4194304\n- Requested memory: 67108864\n"),
     "XGBoost", {"requested": 64 * MIB, "device_free": 4 * MIB}),
    ("NCCL",
     ("n1:7:9 [2] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n\n"
      "n1:7:9 [2] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 4194304 bytes\n"),
     "CUDA", {"requested": 4 * MIB}),
    ("TensorRT 10",
     "[virtualMemoryBuffer.cpp::x::140] Error Code 2: out of Memory (Requested size was 2097152 bytes.)", "TensorRT",
     {"requested": 2 * MIB}),
    ("TensorRT 7",
     ("ERROR: Requested amount of memory (1048576 bytes) could not be allocated.\n"
      "ERROR: ../rtSafe/WeightsPtr.cpp (92) - OutOfMemory Error in allocate: 0\n"),
     "TensorRT", {"requested": MIB}),
    ("ggml's first Metal",
     "ggml_metal_add_buffer: buffer 'data' size 2147483648 is larger than buffer maximum of 1073741824", "llama.cpp",
     {"requested": 2 * GIB, "limit": GIB}),
    ("ggml's SYCL", "ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 3145728 Bytes of memory on device",
     "llama.cpp", {"requested": 3 * MIB}),
    ("MLX", "std::runtime_error: [malloc_or_wait] Unable to allocate 1073741824 bytes.", "MLX", {"requested": GIB}),
    ("OpenCL", "Failed to clCreateBuffer(ctx, CL_MEM_READ_WRITE, 1048576, nullptr)\nCL_MEM_OBJECT_ALLOCATION_FAILURE",
     "OpenCL", {"requested": MIB}),
    ("paddle, older",
     "Out of memory error on GPU 1. Cannot allocate 9.500000MB GPU memory, available memory is 4.000000MB.",
     "PaddlePaddle", {"device_free": 4 * MIB}),
    ("paddle, of 2018", "paddle.fluid.core.EnforceNotMet: enforce allocating <= available failed, 2147483648 > 1048576",
     "PaddlePaddle", {"requested": 2 * GIB, "device_free": MIB}),
    ("paddle, without its message",
     "terminate called after throwing an instance of 'paddle::memory::allocation::BadAlloc'\n  what():  \n",
     "PaddlePaddle", {}),
]  # fmt: skip
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
    assert [(each.facts["requested"], each.count) for each in found.failures] == [(3 * GIB, 3), (4 * GIB, 1)]
    assert [each.line for each in found.failures] == [1, 2]


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
        ("ggml_metal_x: Insufficient (8:kIOGPUCommandBufferCallbackErrorOutOfMemory)", "llama.cpp", "unknown"),
        ("E cuda/cuda_dnn.cc:1] tensorflow: could not create cudnn handle: INTERNAL", "TensorFlow", "unknown"),
        ("failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED", "PyTorch CUDA", "unknown"),
        ("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", "PyTorch CUDA", "unknown"),
        ("ERROR: Unexpected bus error encountered in worker. (shm)", "PyTorch CPU", "host_memory"),
        ("api:failed (exitcode: -9) local_rank: 3 (pid: 7) of binary: python", "Linux", "unknown"),
        ("[launch.py:321:sigkill_handler] ['python'] exits with return code = -9", "Linux", "unknown"),
        ("[TRT] [E] 2: [x.cpp::resize::1] Error Code 2: OutOfMemory (no more)", "TensorRT", "unknown"),
        ("MXNetError: cudaMalloc retry failed: out of memory", "MXNet", "unknown"),
        ("MPS backend out of memory (MPS allocated: 9.00 GiB, other allocations: 0 bytes, max allowed: 9.50 GiB)",
         "PyTorch MPS", "capacity"),
        ("MPS backend out of memory (MPS allocated: 1.00 GiB, other allocations: 0 bytes, max allowed: 9.50 GiB)",
         "PyTorch MPS", "unknown"),
    ],
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        (" CUDA Error: out of memory\nCUDA Error: out of memory: No error", "CUDA"),
        ("RuntimeError: CUDA failed with error out of memory", "CUDA"),
        ("MemoryError: cuMemAlloc failed: out of memory", "CUDA"),
        ("x.cpp:5] Check failed: error == cudaSuccess (2 vs. 0)  out of memory", "CUDA"),
        ("cuda failed with error 2 out of memory. use", "CUDA"),
        ("CUDA error !!!!! <out of memory> !!!!!", "CUDA"),
        ("what(): /x/SimpleCudaMalloc_impl.hpp(7):\nerror: out of memory", "CUDA"),
        ("[torch_memory_saver.cpp] CUresult error  result=2 file=x.cpp", "PyTorch CUDA"),
        ("numba: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", "CUDA"),
        ("src/storage/./pooled_storage_manager.h:3: Memory allocation failed.", "MXNet"),
        ("src/storage/./pooled_storage_manager.h:3: cudaMalloc failed: out of memory", "MXNet"),
        ("vkAllocateMemory failed -2", "Vulkan"),
        ("boost: Memory Object Allocation Failure", "OpenCL"),
        ("pyopencl._cl.MemoryError: clX failed: MEM_OBJECT_ALLOCATION_FAILURE", "OpenCL"),
        ("Warp CUDA error 2: out of memory (in function x)", "CUDA"),
        ("CUDA Error 2, out of memory", "CUDA"),
        ("CUDA error at /x/gpu.h:7 - out of memory", "CUDA"),
        ('Cuda error in func "start" at line 7: out of memory.', "CUDA"),
        ("Check failed: e == cudaSuccess CUDA: out of memory", "CUDA"),
        ("ERROR (x[5.5]:Malloc():x.cc:7) CUDA malloc failed: out of memory", "CUDA"),
        ("x.h:7 cudaMalloc(&p, n) failed with error out of memory", "CUDA"),
        ("file=x.hpp line=7: FAIL: call='cudaMalloc(&p, n)'. Reason:out of memory", "CUDA"),
        ("ERROR: out of memory in /x/y.h at line 7 (error-code 2)", "CUDA"),
        ("WebGPU device error(2): Out of memory", "WebGPU"),
        ("[E:onnxruntime:Default, x.cc:7] WebGPU device error(2): Out of memory", "WebGPU"),
        ("Out of memory in cuMemAlloc(&p, n) (x.cpp:7)", "Blender"),
        ("Out of memory in hipMalloc(&p, n) (x.cpp:7)", "Blender"),
        ("System is out of GPU and shared host memory", "Blender"),
        ("CuMemAlloc( &pointer, size ) returned (2): Out of memory", "OptiX"),
        ("exception: cuda_malloc(): out of memory!", "Mitsuba 2"),
        ("cuMemAlloc(): out of memory", "hashcat"),
        ("* Device #1: Not enough allocatable device memory for this attack.", "hashcat"),
        ("ERROR: Insufficient memory on accelerator (x.h:7)", "LAMMPS"),
        ("Error, out of video memory trying to allocate a rendering resource", "Unreal Engine"),
        ("ERROR: Not enough GPU memory to match 700 features. Reduce", "COLMAP"),
        ("Native API returns: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)", "oneAPI"),
        (
            "Could not allocate tensor with 7000000 bytes. There is not enough GPU video memory available!",
            "DirectML",
        ),
        ("PxgCudaDeviceMemoryAllocator fail to allocate memory 7000000 bytes!! Result = 2", "PhysX"),
        ("x.cpp:7: Error: failed to cudaMalloc 7000000 bytes (error 2 out of memory)", "FAISS"),
        ("Memory allocation failed on device: cuda:0 for 7000000 bytes", "Warp"),
        ("x.cpp(7): 8007000E Not enough memory resources are available to complete", "Windows"),
        ("std::bad_alloc: CUDA error at: ../rmm/mr/x.hpp7: cudaErrorMemoryAllocation out of memory", "RMM"),
    ],
)
def test_a_program_without_an_allocator_that_bfcviz_knows(text, framework):
    (found,) = read_pasted(f"{text}\n").failures
    judged = judge(found)
    assert (found.framework, judged.cause, judged.second) == (framework, "unknown", "capacity")
    assert "outside of the framework" not in judged.sentence
    first, *_ = advise(found, judged)
    assert first.kind == "smaller_request_or_batch"


def test_a_call_beside_the_allocator_of_a_framework():
    (found,) = read_pasted("RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be\n").failures
    assert "outside of the framework's allocator" in judge(found).sentence
    (nccl,) = read_pasted({name: text for name, text, *_ in CASES}["NCCL"]).failures
    assert "4.00 MiB for its own buffers" in judge(nccl).sentence
    assert nccl.devices == (2,)


JULIA = "Out of GPU memory trying to allocate {}\nEffective GPU memory usage: 70.00% ({}/8.000 GiB)\n{}\n"
RELION = (
    "CudaCustomAllocator out of memory\n [requestedSpace:             {} B]\n"
    " [largestContinuousFreeSpace: {} B]\n [totalFreeSpace:             {} B]"
)
PADDLE = (
    "Out of memory error on GPU 0. Cannot allocate {} memory on GPU 0, {} memory has been allocated and available "
    "memory is only {}.\n{}"
)


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        (  # the pool takes larger pieces than were asked
            JULIA.format("4.000 MiB", "6.000 GiB", "CUDA allocator usage: 3.990 GiB (capped at 4.000 GiB)"),
            "cap_by_setting",
            ("2.00 GiB of the device are free", "JULIA_CUDA_MEMORY_LIMIT"),
        ),
        (JULIA.format("3.000 GiB", "7.000 GiB", "Memory pool usage: 1.000 MiB (512.000 MiB reserved)"),
         "other_process", ("6.50 GiB lie outside of it",)),
        (JULIA.format("3.000 GiB", "7.000 GiB", "Memory pool usage: 6.000 GiB (6.500 GiB reserved)"),
         "capacity", ("2.00 GiB are missing", "CUDA.unsafe_free!")),
        (JULIA.format("3.000 GiB", "7.000 GiB", "Memory pool usage: 4.000 GiB (6.500 GiB reserved)"),
         "cached_fragmentation", ("2.50 GiB of it cached",)),
        (JULIA.format("9.000 GiB", "81.920 MiB", ""), "request_exceeds_device", ("8.00 GiB of the device",)),
        ("Out of memory. Requested 3072 MB; Free 1024 MB", "capacity", ("2.00 GiB are missing", "border_count")),
        (RELION.format(8 * GIB, 3 * GIB, 4 * GIB), "capacity",
         ("4.00 GiB free: 4.00 GiB are missing", "fewer MPI ranks")),
        (RELION.format(2 * GIB, GIB, 3 * GIB), "cached_fragmentation", ("at most 1.00 GiB in one piece",)),
        (RELION.format(1 << 63, GIB, GIB), "request_exceeds_device", ("a number of 2^63 or more",)),
        ("Failed to allocate a memory region of 7340032 bytes.  Memory info: free:3M, used:1021M, total:1024M, x",
         "capacity", ("4.00 MiB are missing", "1021.00 MiB are in use")),
        ("OutOfMemoryError: out of resource: triton_mm Required: 65536 Hardware limit:32768 Reducing block sizes",
         "request_exceeds_limit", ("64.00 KiB of shared memory", "32.00 KiB", "num_stages")),
        ("x_nvenc: OpenEncodeSessionEx failed: out of memory (10): (no details)",
         "unknown", ("a few sessions at once", "memory is rarely the reason", "encodersessions")),
        ("Insufficient VRAM in split for model and cache", "unknown", ("the last had too little", "cache_size")),
        ("ggml_aligned_malloc: insufficient memory (attempted to allocate 2048.00 MB)",
         "host_memory", ("2.00 GiB of system memory", "-ngl")),
        ("RuntimeError: mkl_malloc: failed to allocate memory", "host_memory", ("System memory was refused",)),
        ("Ran out of memory allocating 2097152 bytes. The paging file is too small for this operation to complete.",
         "host_memory", ("2.00 MiB of system memory", "page file larger")),
        (PADDLE.format("4.000000GB", "0.000000B", "2.000000GB", ""),
         "request_exceeds_limit", ("the whole 2.00 GiB", "FLAGS_gpu_memory_limit_mb")),
        (PADDLE.format("1.000000GB", "1.500000GB", "512.000000MB", "`FLAGS_gpu_memory_limit_mb` is 2048, so"),
         "cap_by_setting", ("holds 1.50 GiB of it", "FLAGS_gpu_memory_limit_mb")),
        (PADDLE.format("1.000000GB", "1.500000GB", "2.500000GB", "`FLAGS_gpu_memory_limit_mb` is 4096, so"),
         "unknown", ("the limit leaves this process 2.50 GiB", "another process")),
        (PADDLE.format("9.000000GB", "1.500000GB", "6.500000GB", ""),
         "request_exceeds_device", ("8.00 GiB of the device",)),
        ("buffer 'data' size 2147483648 is larger than buffer maximum of 1073741824",
         "request_exceeds_limit", ("1.00 GiB",)),
    ],
)  # fmt: skip
def test_what_the_numbers_of_a_library_decide(text, cause, words):
    (found,) = read_pasted(f"Error: {text}\n").failures
    judged = judge(found)
    assert judged.cause == cause
    said = " ".join([judged.sentence, *(each.text for each in advise(found, judged))])
    assert [word for word in words if word not in said] == []


def test_the_device_of_faiss():
    size = "stream 0 size 2147483648 bytes (cudaMalloc error out of memory [2])"
    text = f"alloc fail type FlatData dev 2 space Device {size}"
    (found,) = read_pasted(f"Error: {text}\n").failures
    assert (found.framework, found.facts, found.devices) == ("FAISS", {"requested": 2 * GIB}, (2,))
    assert "setTempMemory" in told_advice(found)


def test_the_library_of_pytorch_that_had_no_memory():
    (found,) = read_pasted(
        "RuntimeError: cublas runtime error : resource allocation failed at THC.cpp:7\n"
    ).failures
    assert (found.framework, judge(found).second) == ("PyTorch CUDA", "other_process")


def test_what_a_library_tries_again_is_no_failure():
    text = "WARNING: CUDA memory allocation failed; attempting to free up memory...\n"
    found = read_pasted(f"{text}[TRT] Tactic Device request: 9385MB Available: 7649MB. Device memory\n")
    assert not found.failures
    assert [each.framework for each in found.soft] == ["CUDA.jl", "TensorRT"]
    assert found.soft[1].facts["available"] == 7649 * MIB


def test_a_copy_without_memory_for_its_target():
    text = "SameWorkerRecvDone unable to allocate output tensor. Key: /job:x/device:CPU:0;1;/job:x/device:GPU:0;edge_7"
    (found,) = read_pasted(f"{text}\n").failures
    assert (found.framework, judge(found).cause) == ("TensorFlow", "unknown")
    (host,) = read_pasted(f"{text.replace('GPU:0;edge', 'CPU:0;edge')}\n").failures
    assert judge(host).cause == "host_memory"
    (plain,) = read_pasted("ResourceExhaustedError: failed to allocate memory [Op:AddV2]\n").failures
    assert plain.framework == "TensorFlow"


def test_a_signal_is_told_only_where_nothing_else_tells_more():
    (found,) = read_pasted(f"{CUDA_2}\nexitcode  : -9 (pid: 4)\n").failures
    assert found.message == "torch-cuda"


_CUT = "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has a total capacity of 8.00 GiB of "


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("CUDA out of memory. Tried to allocate 12.50", set()),
        (
            "CUDA out of memory. Tried to allocate 12.50 GiB. GPU 0 has a total capacity of 23.00",
            {"requested"},
        ),
        (f"{_CUT}which 1", {"requested", "device_total"}),
        (f"{_CUT}which 1.00 is free", {"requested", "device_total"}),
        (f"{_CUT}which 0 bytes is free", {"requested", "device_total", "device_free"}),
        (
            "HIP out of memory. Tried to allocate 2.00 MiB (GPU 0; 4.00 GiB total capacity; 3.00",
            {"requested", "device_total"},
        ),
    ],
)
def test_a_number_that_was_cut_before_its_unit_is_none(text, known):
    (found,) = read_pasted(f"{text}\n").failures
    assert set(found.facts) == known
    assert judge(found).cause in {"unknown", "other_process"}


@pytest.mark.parametrize(
    "asked",
    [
        "r",
        "DriverAPI::get()->nvmlInit_v2_()",
        "DriverAPI::get()->nvmlDeviceGetHandleByPciBusId_v2_( pci_id, &nvml_device)",
    ],
)
def test_a_refusal_whose_message_nvml_refused(asked):
    text = f'NVML_SUCCESS == {asked} INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp":1, please'
    (found,) = read_pasted(f"RuntimeError: {text} report\n").failures
    judged = judge(found)
    assert (found.framework, judged.cause, judged.second) == ("PyTorch CUDA", "unknown", "capacity")
    said = " ".join(each.text for each in advise(found, judged))
    assert "NVML" in judged.sentence
    assert "torch.cuda.mem_get_info()" in advise(found, judged)[0].text
    assert "CUDA_VISIBLE_DEVICES" in said
    assert "whole message" not in said


@pytest.mark.parametrize("word", ["CUDA", "HIP"])
def test_a_size_that_overflowed(word):
    (found,) = read_pasted(f"{word} out of memory. Tried to allocate more than 1EB memory.\n").failures
    assert found.framework == {"CUDA": "PyTorch CUDA", "HIP": "PyTorch ROCm"}[word]
    assert judge(found).cause == "request_exceeds_device"
    assert "negative" in judge(found).sentence
    assert [str(each.kind) for each in advise(found, judge(found))] == ["check_shape_bug"]


_WARM = "RuntimeError: CUDA out of memory occurred when warming up sampler with 300 dummy requests. Please try lowering"


def test_a_server_that_tries_its_sampler():
    (found,) = read_pasted(f"{_WARM}\n").failures
    assert (found.framework, found.facts, judge(found).second) == ("vLLM", {"max_requests": 300}, "capacity")
    advice = advise(found, judge(found))
    assert advice[0].text == "Lower --max-num-seqs below 300."
    assert not [each.text for each in advice if "whole message" in each.text]
    (both,) = read_pasted(f"{CUDA_2}\n\n{_WARM}\n").failures
    assert (both.framework, both.facts["max_requests"]) == ("PyTorch CUDA", 300)
    assert advise(both, judge(both))[0].text == "Lower --max-num-seqs below 300."
    assert "missing" in judge(both).sentence or "pass it" in judge(both).sentence
    pooler = only(_WARM.replace("sampler", "pooler (task='classify')"))
    assert (pooler.facts, "sampler" in judge(pooler).sentence) == ({"max_requests": 300}, False)


def test_a_server_whose_trial_run_names_the_numbers_after_it():
    found = only(f"{_WARM}\n\n{CUDA_2}\n")
    judged = judge(found)
    told = advise(found, judged)
    assert (found.message, told[0].text) == ("vllm-warmup", "Lower --max-num-seqs below 300.")
    assert not [each.text for each in told if "Look for PyTorch's own message" in each.text]
    other = StatedCause.OTHER_PROCESS
    assert str(advise(found, Judgement(other, ""))[0].kind) == "free_other_processes"


@pytest.mark.parametrize(
    ("text", "false"),
    [
        ("Free memory on device is less than desired GPU memory utilization", "KV cache"),
        ("out of resource: shared memory, Required: 131072", "0 B"),
        ("Current platform can NOT allocate memory block with size larger than 4.00 GiB", "0 B"),
        ("BFC Arena ran out of memory trying to allocate", "0 B"),
        ("Available memory of 1024 is smaller than requested bytes of", "0 B"),
        (
            (
                "Out of GPU memory trying to allocate 2.000 GiB\n"
                "Effective GPU memory usage: 10.00% (1.000 GiB/10.000 GiB)\nMemory limit: hard = 4.000 GiB\n"
            ),
            "the limit leaves this process",
        ),
    ],
)
def test_no_sentence_makes_up_what_the_text_lacks(text, false):
    assert false not in judge(only(text)).sentence


def test_the_line_of_the_program_is_no_second_failure():
    raised = '    raise ValueError("No available memory for the cache blocks. "\n'
    error = "ValueError: No available memory for the cache blocks. Try\n"
    (found,) = read_pasted(f"{raised}{error}").failures
    assert (found.count, found.line) == (1, 2)
    (two,) = read_pasted(f"{raised}{error}{raised}{error}").failures
    assert (two.count, two.line) == (2, 2)
    (alone,) = read_pasted(raised).failures
    assert (alone.count, alone.line) == (1, 1)


@pytest.mark.parametrize(
    ("text", "framework", "cause", "facts"),
    [
        ("OutOfResources: out of resource: shared memoryRequired: 131072Hardware limit: 101376",
         "Triton", "request_exceeds_limit", {"requested": 131072, "limit": 101376}),
        ("[enforce fail at CPUAllocator.cpp:1] posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0",
         "PyTorch CPU", "host_memory", {}),
    ],
)  # fmt: skip
def test_forms_of_old_versions(text, framework, cause, facts):
    (found,) = read_pasted(f"{text}\n").failures
    assert (found.framework, judge(found).cause, found.facts) == (framework, cause, facts)


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
    assert "limit" not in found.facts
    assert "6.84 KiB of the pool are in use" in judge(found).sentence


ASYNC = """E gpu_cudamallocasync_allocator.cc:3] gpu_async_{device} cuMemAllocAsync failed to allocate {asked} bytes: X
 Reported by CUDA: Free memory/Total memory: 4294967296/17179869184
Stats: Limit: 0
InUse:        {used}
MaxInUse:     {used}
NumAllocs:    2
MaxAllocSize: 1024
"""


@pytest.mark.parametrize(
    ("gib", "used", "cause"),
    [
        (2000, 2, "request_exceeds_device"),
        (2, 2, "driver_refused_with_memory_free"),
        (5, 11, "capacity"),
        (5, 2, "other_process"),
    ],
)
def test_the_asynchronous_allocator_says_what_is_free(gib, used, cause):
    text = "".join(ASYNC.format(device=device, asked=gib * GIB, used=used * GIB) for device in (3, 5))
    (found,) = read_pasted(text).failures
    assert (found.facts["device_free"], found.facts["device_total"]) == (4 * GIB, 16 * GIB)
    assert (found.devices, "limit" in found.facts) == ((3, 5), False)
    assert judge(found).cause == cause
    told = " ".join(each.text for each in advise(found, judge(found)))
    assert "Bin and Chunk" not in told
    assert "memory_growth" not in told


def test_the_free_memory_of_another_text_is_no_size_of_the_device():
    assert device_of_messages("Free memory/Total memory: 1024/4096\nTotal memory: 2.00GiB\n") == {
        "device_total": 2 * GIB
    }


def test_a_sentence_keeps_the_case_of_a_unit():
    text = "totalMemory: 8.00GiB freeMemory: 7.57GiB\nOOM when allocating tensor with shape[64,3]"
    assert "The device has 8.00 GiB, but" in judge(only(text)).sentence


SOFT = (
    "W bfc_allocator.cc:239] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB with freed_by_count=0. "
    "The caller indicates that this is not a failure\n"
)


@pytest.mark.parametrize(
    "before",
    [
        SOFT,
        "".join(
            f"failed to allocate 1G ({n} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY\n" for n in (90, 80)
        ),
        "Requested amount of GPU memory (4096 bytes) could not be allocated.\n",
        (
            "allocating 10.00 MiB on device 1: cudaMalloc failed: out of memory\nfailed to allocate CUDA1 buffer of "
            "size 10485760\nretrying without pipeline parallelism\n"
        ),
    ],
)
def test_a_call_that_fails_after_a_soft_refusal_is_a_failure(before):
    assert not read(before).failures
    found = read(f"{before}E tensorflow: Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n")
    assert [each.message for each in found.failures] == ["cuda-library"]
    assert found.soft


@pytest.mark.parametrize("between", [" ", "\n", ": RESOURCE_EXHAUSTED: :\n> "])
def test_a_code_at_the_end_of_a_soft_refusal_is_its_part(between):
    text = "".join(
        f"failed to allocate 1G ({n} bytes) from device{between}CUDA_ERROR_OUT_OF_MEMORY: x\n"
        for n in (90, 80)
    )
    assert not read(text).failures
    for length in (1, 7, 64):
        pieces = [text[at : at + length].encode() for at in range(0, len(text), length)]
        assert not read_messages(pieces).failures


def test_a_builder_without_any_tactic_left_failed():
    skipped = "[TRT] [W] Skipping tactic 0 due to insuficient memory on requested size of 1048576 detected\n"
    end = "[TRT] [E] 10: Error Code 10: Internal Error (Could not find any implementation for node {x}.)\n"
    asked = "[TRT] Requested amount of GPU memory (1048576 bytes) could not be allocated.\n"
    refused = "ERROR: safeRuntime.cpp (25) - Cuda Error in allocate: 2 (out of memory)\n"
    for text, request in ((skipped + end, None), (asked + skipped + end + skipped, MIB)):
        (found,) = read_pasted(text).failures
        assert (found.framework, found.fact("requested")) == ("TensorRT", request)
        assert "no engine was built" in judge(found).sentence
    for text in (skipped, asked + skipped, refused + skipped):
        assert not read_pasted(text).failures
    assert not read(end).failures  # without a word of memory


def test_a_pool_of_pinned_memory_at_its_limit():
    stats = "Stats:\nLimit: 68719476736\nInUse: 68719476736\nMaxInUse: 68719476736\nNumAllocs: 3\nMaxAllocSize: 9\n"
    names = {
        "cuda_host_bfc": "TF_CUDA_HOST_MEM_LIMIT_IN_MB",
        "gpu_host_bfc": "TF_GPU_HOST_MEM_LIMIT_IN_MB",
        "xla_gpu_host_bfc": "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB",
    }
    for name, setting in names.items():
        found = only(f"{stats}Allocator ({name}) ran out of memory trying to allocate 2.00GiB.\n")
        judged = judge(found)
        assert (judged.cause, "64.00 GiB" in judged.sentence) == ("cap_by_setting", True)
        first = advise(found, judged)[0]
        assert (str(first.kind), setting in first.text) == ("raise_limit_or_fraction", True)
        assert "device" not in counts(found.message, "limit")
        lone = only(f"Allocator ({name}) ran out of memory trying to allocate 2.00GiB.\n")
        assert judge(lone).cause == "host_memory"


def test_a_pool_that_found_nearly_nothing():
    stats = "Stats:\nLimit: {limit}\nInUse: 8017152\nMaxInUse: 8017152\nNumAllocs: 3\nMaxAllocSize: 9\n"
    text = f"{stats}OOM when allocating tensor with shape[1024,1024] and type float\n"
    judged = judge(found := only(text.format(limit=8716288)))
    assert (judged.cause, judged.second) == ("other_process", "cap_by_setting")
    told = {str(each.kind): each.text for each in advise(found, judged)}
    assert next(iter(told)) == "free_other_processes"
    assert "memory_limit" in told["raise_limit_or_fraction"]
    assert judge(only(text.format(limit=8 * MIB))).cause == "capacity"  # whole MiB: a limit that was set


@pytest.mark.parametrize(
    ("text", "below"),
    [
        (
            (
                "[metal::malloc] Attempting to allocate 18446744073709549568 bytes which is greater than the maximum "
                "allowed buffer size of 1073741824 bytes."
            ),
            2048,
        ),
        ("bfc_arena.cc:1 Failed to allocate memory for requested buffer of size 18446744073709551488", 128),
        ("alloc_tensor_range: failed to allocate CUDA0 buffer of size 18446744073709551360", 256),
        ("CUDA out of memory. Tried to allocate 17179869184.00 GiB (GPU 0; 8.00 GiB total capacity)", None),
    ],
)
def test_a_size_below_zero(text, below):
    found = only(text)
    judged = judge(found)
    assert (judged.cause, found.facts.get("below_zero")) == ("request_exceeds_device", below)
    assert "negative" in judged.sentence
    assert below is None or f"{below:,} bytes below zero" in judged.sentence
    assert [str(each.kind) for each in advise(found, judged)] == [
        "check_shape_bug",
        "smaller_request_or_batch",
    ]


@pytest.mark.parametrize(
    ("gib", "held", "second", "first"),
    [
        (150, 512, "request_exceeds_device", "check_shape_bug"),
        (150, 100 * GIB, "capacity", "free_other_processes"),
        (2, 512, "capacity", "free_other_processes"),
    ],
)
def test_a_request_that_an_empty_pool_of_cupy_refuses(gib, held, second, first):
    found = only(
        f"OutOfMemoryError: Out of memory allocating {gib * GIB:,} bytes (allocated so far: {held:,} bytes)."
    )
    judged = judge(found)
    assert (judged.cause, judged.second) == ("unknown", second)
    assert advise(found, judged)[0].kind == first
    assert "is full" not in judged.sentence


def test_an_arena_of_onnx_runtime_is_that_of_the_system_where_the_text_shows_it():
    text = (
        "running Conv node. Name:'{name}' Status: bfc_arena.cc:3 Failed to allocate memory for requested buffer of "
        "size 4096"
    )
    cpu, either = (only(text.format(name=name)) for name in ("7_nchwc", "7"))
    assert (judge(cpu).cause, judge(either).cause) == ("host_memory", "unknown")
    assert "nvidia-smi" not in " ".join(each.text for each in advise(cpu, judge(cpu)))
    assert "by the device" not in judge(either).sentence


def test_tensors_of_two_shapes_are_two_failures():
    text = (
        "OOM when allocating tensor with shape[4,8]\nOOM when allocating tensor with shape[4,9]\n"
        " [[Node: b/BiasAdd = BiasAdd[T=DT_FLOAT](x)]]\nOOM when allocating tensor with shape[4,8]\n"
    )
    found = read_pasted(text).failures
    assert [(each.shape, each.op, each.count, each.version) for each in found] == [
        ((4, 8), "", 2, "1.x"),
        ((4, 9), "b/BiasAdd", 1, "1.x"),
    ]


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


@given(
    st.lists(
        st.sampled_from([text for _, text, *_ in CASES] + WORDS + ["\n", "\x1b[1m", "{", "9" * 40]),
        max_size=30,
    ),
    st.randoms(),
)
def test_mutated_texts_end_in_one_answer(parts, random_):
    from bfcviz.analysis.message_answer import StatedAnswer  # noqa: PLC0415  the answer is part of the promise

    text = list(" ".join(parts))
    for _ in range(min(len(text), 20)):
        at = random_.randrange(len(text))
        text[at] = random_.choice("0123456789., GMKiB()\n|")
    answer = StatedAnswer.of(*read("".join(text)))
    assert isinstance(str(answer), str)
    assert isinstance(answer.to_json()["failures"], list)


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
        "ERROR on proc {}: ",
        "amrex::Abort::{}::",
    ],
)
def test_equal_failures_of_several_ranks_are_one(prefix):
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n"
    (found,) = read_messages(["".join(prefix.format(rank) + text for rank in (3, 0, 11)).encode()]).failures
    assert (found.ranks, found.count) == ((3, 0, 11), 3)


def test_numbers_of_stack_traces_are_no_ranks():
    text = "".join(f"  {frame}: a::b{frame}\n" for _ in range(3) for frame in (2, 1, 0))
    assert only(f"{text}  1: CUDA error: out of memory\n").ranks == ()
    assert only("1: a\n" * 4 + "1: CUDA error: out of memory\n").ranks == ()


def advice_of(found):
    return [(str(each.kind), each.text) for each in advise(found, judge(found))]


def told_advice(found):
    return " ".join(text for _, text in advice_of(found))


_TPU_RUN = "Attempting to reserve 3.00G at the bottom of memory. That was not possible. There are 1.00G free."


@pytest.mark.parametrize(
    ("text", "framework", "names", "not_there"),
    [
        (f"E tensorflow/compiler/xla/xla_client/xla_util.cc:1] OP_REQUIRES failed at x.cc: {_TPU_RUN}",
         "PyTorch/XLA TPU", "torch_xla.utils.checkpoint", "jax"),
        (("RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used "
           "9.00G of 8.00G hbm. Exceeded hbm capacity by 1.00G."),
         "PyTorch/XLA TPU", "Keep the lines after the error", "jax"),
        (("W op_kernel.cc:1] Resource exhausted: Compilation failure: Ran out of memory in memory space hbm. "
           "Used 9.00G of 8.00G hbm. Exceeded hbm capacity by 1.00G."),
         "TensorFlow TPU", "tf.recompute_grad", "jax"),
        (f"jaxlib: RESOURCE_EXHAUSTED: {_TPU_RUN}", "JAX TPU", "jax.sharding", "torch"),
        (f"(1) Resource exhausted: {_TPU_RUN}", "XLA TPU", "(FSDP)", "jax.sharding"),
    ],
)  # fmt: skip
def test_the_advice_on_a_tpu_is_that_of_its_client(text, framework, names, not_there):
    found = only(text)
    assert found.framework == framework
    assert names in told_advice(found)
    assert not_there not in told_advice(found)


@pytest.mark.parametrize(
    ("word", "cut"), [("memory", "mem\nory"), ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_O\nF_MEMORY")]
)
def test_a_word_that_the_end_of_a_line_cut_is_whole_again(word, cut):
    text = f"line one\nRuntimeError: {word}, CUDA out of memory. Tried to allocate 2.00 GiB.\nnext line"
    assert only(text.replace(word, cut)).facts == only(text).facts
    assert only("DriverError(CUDA_ERROR_OUT_O\nF_MEMORY, a)").line == 1


def test_lines_of_two_words_stay_two_words():
    found = only("a b c: failed with\nout of memory allocating 2048 bytes after a total of 7 bytes")
    assert found.framework == "GCC"


def test_the_table_of_a_tpu_is_named_only_where_it_is_there():
    assert "The lines below" in told_advice(only(TPU))
    assert "The lines below" not in told_advice(only(TPU.partition("\n")[0]))


def test_scalar_memory_of_a_tpu_has_no_setting():
    found = only(
        "Ran out of memory in memory space smem. Used 1.00M of 1.00M smem. Exceeded smem capacity by 2.5K."
    )
    assert (judge(found).cause, found.facts["exceeded"]) == ("request_exceeds_limit", 2560)
    assert "2.50 KiB too much" in judge(found).sentence
    assert "scalar memory" in judge(found).sentence
    assert "vmem" not in told_advice(found)
    vector = only(
        "Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem. Exceeded vmem capacity by 4.00M."
    )
    assert "4.00 MiB too much" in judge(vector).sentence
    assert "--xla_tpu_scoped_vmem_limit_kib" in told_advice(vector)


def test_vector_memory_of_a_tpu_on_the_stack():
    text = (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem while allocating on stack for %x.1 = u32[8] {}(). "
        "Scoped allocation with size 20.00M and limit 16.00M exceeded scoped vmem limit by 4.00M."
    )
    found = only(text.format("reduce-window"))
    numbers = {"program": 20 * MIB, "limit": 16 * MIB, "exceeded": 4 * MIB}
    assert (judge(found).cause, found.facts) == ("request_exceeds_limit", numbers)
    assert "One operation needs 20.00 MiB of the 16.00 MiB" in judge(found).sentence
    first, second = advise(found, judge(found))
    assert (first.kind, second.kind) == ("raise_limit_or_fraction", "driver_or_runtime_bug")
    kernel = only(text.format("custom-call"))
    assert advise(kernel, judge(kernel))[0].text == "Use smaller blocks in the kernel."


_ON_DEVICE = (
    "{}ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device {}: cudaMalloc failed: out of "
    "memory\n"
    "{}ggml_gallocr_reserve_n: failed to allocate CUDA{} buffer of size 536870912\n"
)


@pytest.mark.parametrize(
    ("text", "words", "not_there"),
    [
        (_ON_DEVICE.format("ollama[7]: ", 0, "ollama[7]: ", 0), {"num_ctx", "num_batch"}, {"-ub", "-c;", "-ngl"}),
        (_ON_DEVICE.format("", 0, "", 0), {"-c;", "-ub"}, {"num_ctx", "OLLAMA"}),
        ("CUDA error: out of memory\n  current device: 0, in function alloc at /ollama/ggml-cuda.cu:1\n  hipMalloc(",
         {"num_gpu", "OLLAMA_FLASH_ATTENTION"}, {"-ngl", "nvidia-smi"}),
    ],
)  # fmt: skip
def test_the_settings_of_a_program_on_ggml(text, words, not_there):
    told = told_advice(only(text))
    assert all(word in told for word in words)
    assert not any(word in told for word in not_there)


def test_layers_do_not_go_into_system_memory_that_is_full():
    found = only(
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 4096000\n"
        "alloc_tensor_range: failed to allocate CPU buffer of size 4096000\n"
    )
    assert (judge(found).cause, advice_of(found)[0][0]) == ("host_memory", "system_memory")
    assert "put more layers there (-ngl)" in told_advice(found)
    assert not any(word in told_advice(found) for word in ("fewer layers", "nvidia-smi"))


@pytest.mark.parametrize(
    ("free", "first"), [(10, "smaller_model_or_precision"), (30, "system_memory")], ids=["far", "near"]
)
def test_other_programs_hold_no_more_than_what_is_missing(free, first):
    found = only(f"Error: model requires more system memory (40.0 GiB) than is available ({free}.0 GiB)")
    assert advice_of(found)[0][0] == first
    assert "CPU" not in told_advice(found)


def test_a_tensor_without_a_buffer_of_metal_is_a_failure():
    found = read(
        "ggml_metal_add_buffer: ( 5000.50 /  4096.00)x: warning: current allocated size is greater than the "
        "recommended max working set size\nggml_metal_get_buffer: error: buffer is nil\n"
    )
    (failed,), (warned,) = found.failures, found.soft
    assert (failed.framework, judge(failed).cause, judge(failed).second) == (
        "llama.cpp",
        "unknown",
        "capacity",
    )
    assert warned.message == "ggml-wired"
    assert "Activity Monitor" in told_advice(failed)


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (CUDA_2, (1,)),
        (_ON_DEVICE.format("", 4, "", 4), (4,)),
        (_ON_DEVICE.format("", 1, "", 1) + _ON_DEVICE.format("", 2, "", 2), (1, 2)),
        ("OOM when allocating tensor with shape[9] and type float on /device:GPU:3 by allocator GPU_3_bfc", (3,)),
        ("W x] Allocator (GPU_2_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)", (2,)),
        ("OOM when allocating tensor with shape[9] and type float on /device:CPU:0 by allocator cpu", ()),
        ("Out of memory error on GPU 5. Cannot allocate 1.000000GB memory on GPU 5, 1.0GB memory has been", (5,)),
    ],
)  # fmt: skip
def test_the_number_of_the_device(text, devices):
    found = only(text)
    assert found.devices == devices
    answer = StatedAnswer.of([found], [])
    assert answer.to_json()["failures"][0]["devices"] == list(devices)
    assert any(
        line.split()[0].startswith("device") and "the whole" not in line for line in answer.lines
    ) == bool(devices)


def test_less_of_a_model_on_the_device_that_is_full():
    assert "less of the model on device 4 and more on the others: -ts" in told_advice(
        only(_ON_DEVICE.format("", 4, "", 4))
    )
    assert "-ts" not in told_advice(only(_ON_DEVICE.format("", 0, "", 0)))
    assert "-ts" not in told_advice(only(_ON_DEVICE.format("ollama: ", 4, "", 4)))


def test_a_number_in_bold():
    soft = "Allocator (GPU_0_bfc) ran out of memory trying to allocate **1.50GiB** with freed_by_count=0. It says that"
    (found,) = read(soft).soft
    assert found.facts["requested"] == 3 * GIB // 2
    assert only("CUDA out of memory. Tried to allocate **2.00 GiB**. GPU 0").facts["requested"] == 2 * GIB
    assert "2**31" in only("a = 2**31 bytes, b = 2**32; CUDA out of memory. Tried to allocate 2.00 GiB.").text


@pytest.mark.parametrize(
    "text",
    [
        "Out of memory while trying to allocate 24 bytes. jaxlib",
        "OOM when allocating tensor with shape[] and type int32 on /device:GPU:0 by allocator GPU_0_bfc",
        "OOM when allocating tensor with shape[100,2] and type float on /device:GPU:0 by allocator GPU_0_bfc",
    ],
)
def test_a_request_of_some_bytes_cannot_shrink(text):
    found = only(text)
    assert advice_of(found)[0][0] == "free_other_processes"
    assert "dimension" not in told_advice(found)


def test_a_context_that_the_driver_refused_needs_another_program_to_end():
    found = only(
        "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY; total memory reported: 4294967296"
    )
    assert judge(found).cause == "other_process"
    (first, text), (second, _) = advice_of(found)
    assert (first, second) == ("free_other_processes", "preallocation_off_or_fraction")
    assert text.startswith("Stop other programs")


@pytest.mark.parametrize(
    ("where", "tool"),
    [
        ("device:DML:0 by allocator DmlAllocator", "Task Manager"),
        ("device:GPU:0 by allocator Simple allocator", "Activity Monitor"),
    ],
)
def test_an_allocator_of_a_plugin_has_not_the_settings_of_the_pool(where, tool):
    found = only(
        f"OOM when allocating tensor with shape[64,900,900] and type float on /job:localhost/{where}"
    )
    assert tool in told_advice(found)
    assert not any(word in told_advice(found) for word in ("nvidia-smi", "growth", "GROWTH", "Chunk", "cuda"))
    assert found.facts["requested"] == 64 * 900 * 900 * 4


WRAPPED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.75 GiB. GPU 0 has a total capacity of 81.25 GiB "
    "of which 10.50 GiB is free. Of the allocated memory 63.25 GiB is allocated by PyTorch, and 3.75 GiB is reserved "
    "by PyTorch but unallocated. "
)


@pytest.mark.parametrize("columns", range(60, 140))
def test_a_number_that_a_terminal_cut_is_whole_or_missing(columns):
    lines = [WRAPPED[at : at + columns] for at in range(0, len(WRAPPED), columns)]
    whole, wrapped = (
        read_messages([text.encode()]).failures[0].facts for text in (WRAPPED, "\n".join(lines))
    )
    assert {name: whole[name] for name in wrapped} == wrapped


def test_colours_that_json_escapes_hide_no_number():
    log = json.dumps(
        {"log": "CUDA out of memory. Tried to allocate \x1b[31m896.00 MiB\x1b[0m.\n", "stream": "stderr"}
    )
    assert read_messages([log.encode()]).failures[0].facts == {"requested": 896 << 20}


def test_the_name_of_a_container_does_not_say_whose_an_error_is():
    line = "[LightGBM] [Fatal] [CUDA] out of memory /a/b.hu 97"
    plain, prefixed = (
        read_messages([text.encode()]).failures[0].framework for text in (line, f"[pod/job-3/pytorch] {line}")
    )
    assert plain == prefixed == "LightGBM"

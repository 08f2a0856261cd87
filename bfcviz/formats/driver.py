"""Texts of drivers and systems: a CUDA call that failed without numbers, system memory, and nvidia-smi's table."""

import re
from typing import Final

from bfcviz.formats.messages import Message, Number, Role

MESSAGES: Final = (
    Message(
        "metal-buffer",
        "Metal",
        "One buffer is larger than Metal allows for any.",
        ("Attempting to allocate {number} bytes which is greater than the maximum allowed buffer size",),
        "mlx/backend/metal/allocator.cpp",
        family="mps",
        numbers=(
            Number("requested", "bytes of the buffer", ("allocate {number} bytes",)),
            Number("limit", "the largest buffer of this device", ("buffer size of {number} bytes",)),
        ),
        marks={"buffer": "one_buffer"},
    ),
    Message(
        "cuda-call",
        "CUDA",
        "A call of the CUDA or HIP runtime, or of cuBLAS, cuDNN or NCCL, returned out of memory, outside of the "
        "framework's allocator: for a context, a workspace, a graph, or pinned memory. With `in function alloc` it is "
        "ggml's pool for intermediate results. There is no number in it.",
        (
            "CUDA error: out of memory",
            "HIP error: out of memory",
            "ROCm error: out of memory",
            "cuda runtime error (2) : out of memory",
            "cuda runtime err(2): out of memory",
            "CUDA failure 2: out of memory",
            "Cuda failure 'out of memory'",
            "cudaMalloc failed: out of memory",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "CUDNN_STATUS_ALLOC_FAILED",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "cudaErrorMemoryAllocation",
            "hipErrorOutOfMemory",
            "HIP_ERROR_OutOfMemory",
            "ErrorOutOfDeviceMemory",
            "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        ),
        "CUDA runtime and driver, cudaErrorMemoryAllocation (2)",
        family="cuda",
        marks={
            "torch": "torch",
            "TORCH_USE_CUDA_DSA": "torch",
            "TORCH_USE_HIP_DSA": "torch",
            "THC": "torch",
            "CUDA kernel errors might be": "torch",
            "ggml": "ggml",
            "llama": "ggml",
            "in function alloc": "pool",
            "onnxruntime": "onnx",
        },
        behind=400,
        is_weak=True,
    ),
    Message(
        "cuda-library",
        "CUDA",
        "cuBLAS or cuDNN could not start. Most often too little of the device is free for what they allocate then; a "
        "driver that does not fit, or an earlier error of a kernel, such as an index out of range, says the same.",
        ("CUBLAS_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_NOT_INITIALIZED"),
        "cublasCreate, cudnnCreate",
        family="cuda",
        marks={"NOT_INITIALIZED": "torch"},
        is_weak=True,
    ),
    Message(
        "cuda-shared",
        "Triton",
        "A kernel needs more of the memory inside a multiprocessor than there is. The memory of the device has nothing "
        "to do with it.",
        ("out of resource: shared memory, Required: {number}",),
        "triton/runtime/errors.py",
        family="kernel",
        numbers=(
            Number("requested", "bytes of shared memory that the kernel needs", ("Required: {number}",)),
            Number("limit", "bytes that a kernel may use", ("Hardware limit: {number}",)),
        ),
        marks={"shared memory": "on_chip"},
    ),
    Message(
        "host-worker",
        "PyTorch CPU",
        "The system ended a process that loads data: `Killed` because system memory ran out, `Bus error` because "
        "/dev/shm, which the workers share, is full.",
        (
            "DataLoader worker (pid {number}) is killed by signal: Killed",
            "DataLoader worker (pid {number}) is killed by signal: Bus error",
        ),
        "torch/utils/data/dataloader.py",
        family="host",
        marks={"DataLoader": "host", "Bus error": "shared_memory"},
    ),
    Message(
        "host-numpy",
        "NumPy",
        "System memory was refused, not GPU memory.",
        ("Unable to allocate {size} for an array with shape",),
        "numpy/_core/_exceptions.py",
        family="host",
        numbers=(Number("requested", "bytes of the array", ("Unable to allocate {size}",)),),
        marks={"allocate": "host"},
    ),
    Message(
        "host-killed",
        "Linux",
        "The system killed a process because system memory, not GPU memory, ran out.",
        ("Out of memory: Kill", "Memory cgroup out of memory: Kill", "oom-kill:constraint"),
        "mm/oom_kill.c",
        family="host",
        numbers=(Number("process_in_use", "system memory of the killed process", ("anon-rss:{size}",)),),
        marks={"ill": "host", "oom": "host"},
    ),
    Message(
        "nvidia-smi",
        "NVIDIA driver",
        "The driver's table of devices and processes: what is in use now, not at the moment of a failure.",
        ("NVIDIA-SMI {number}",),
        "nvidia-smi",
        role=Role.BEFORE,
        family="",
        numbers=(),
        marks={"NVIDIA-SMI": "table"},
    ),
)
"""Texts of drivers and systems."""

CALLS: Final = {
    "HIP": "ROCm",
    "hip": "ROCm",
    "ROCm": "ROCm",
    "UR_RESULT": "oneAPI",
    "ErrorOutOfDeviceMemory": "Vulkan",
}
"""How the error of a call begins -> whose it is; all others are CUDA's."""

SMI_DEVICE: Final = re.compile(r"(\d{1,9})MiB\s{0,9}/\s{0,9}(\d{1,9})MiB")
"""A device in nvidia-smi's table: MiB in use, and in all."""

SMI_PROCESS: Final = re.compile(
    r"\|\s{1,9}(?P<device>\d{1,3})\s(?:\s{0,12}(?:N/A|\d{1,3})){0,2}\s{1,12}(?P<pid>\d{1,10})\s{1,9}(?:C\+G|C|G)\s[^|\n]{0,90}?"
    r"(?P<used>\d{1,9})MiB\s{0,3}\|"
)
"""A process in nvidia-smi's table."""

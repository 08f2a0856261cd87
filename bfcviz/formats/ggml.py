"""ggml, and the programs on it (llama.cpp, whisper.cpp, Ollama, LM Studio): what they print when memory runs out."""

from typing import Final

from bfcviz.formats.messages import Message, Number, Role

MESSAGES: Final = (
    Message(
        "ggml-buffer",
        "llama.cpp",
        "A buffer was refused. Weights, KV cache and compute buffers are one buffer each and device.",
        (
            "allocating {number} MiB on device {number}:",
            "failed to allocate {word} buffer of size {number}",
            "failed to allocate buffer of size {number}",
            "Device memory allocation of size {number} failed",
            "unable to allocate {word} buffer",
            "failed to allocate buffer, size = {number} MiB",
            "failed to allocate compute buffers",
            "failed to allocate buffer for kv cache",
        ),
        "ggml/src/ggml-cuda/ggml-cuda.cu, ggml-alloc.c, ggml-vulkan.cpp, ggml-metal.m; src/llama-context.cpp",
        family="ggml",
        numbers=(
            Number(
                "requested",
                "the whole buffer",
                ("buffer of size {number}", "allocation of size {number} failed"),
            ),
            Number(
                "requested_printed",
                "the same, rounded",
                ("allocating {number} MiB", "size = {number} MiB"),
                unit="M",
            ),
        ),
        marks={
            "cpu_buffer_type": "host",
            "allocate CPU buffer": "host",
            "compute": "compute",
            "graph_reserve": "compute",
            "gallocr_reserve": "compute",
            "sched_reserve": "compute",
            "kv cache": "kv",
            "kv_cache": "kv",
            "load_tensors": "weights",
            "alloc_tensor_range": "weights",
            "loading model": "weights",
            "llm_load": "weights",
        },
        behind=120,
    ),
    Message(
        "ggml-retry",
        "llama.cpp",
        "llama.cpp tries again with less: the failure before is none yet.",
        ("retrying without pipeline parallelism", "retrying with fewer"),
        "src/llama-context.cpp, sched_reserve",
        role=Role.RETRY,
        family="ggml",
    ),
    Message(
        "ggml-pinned",
        "llama.cpp",
        "Pinned system memory was refused; ggml takes ordinary memory instead.",
        ("failed to allocate {number} MiB of pinned memory",),
        "ggml/src/ggml-cuda/ggml-cuda.cu",
        role=Role.SOFT,
        family="ggml",
        numbers=(Number("requested", "system memory", ("allocate {number} MiB of pinned",), unit="M"),),
    ),
    Message(
        "ollama-system",
        "Ollama",
        "The model needs more system memory than is free.",
        ("model requires more system memory",),
        "ollama/server/sched.go, llm/server.go",
        family="host",
        numbers=(
            Number("requested", "system memory that the model needs", ("more system memory ({size})",)),
            Number("available", "system memory that is free", ("than is available ({size})",)),
        ),
        marks={"system memory": "host"},
    ),
    Message(
        "ggml-device",
        "llama.cpp",
        "A device at the start: its memory, and what was free.",
        ("VRAM: {number} MiB", ") - {number} MiB free"),
        "ggml/src/ggml-cuda/ggml-cuda.cu, src/llama.cpp",
        role=Role.BEFORE,
        family="ggml",
        numbers=(
            Number("device_total", "the whole device", ("VRAM: {number} MiB",), unit="M"),
            Number(
                "device_free_at_start", "free when the program started", (") - {number} MiB free",), unit="M"
            ),
        ),
    ),
)
"""Texts of ggml."""

"""vLLM and SGLang: what they say at the start, when their share of the device is too small or not free."""

from typing import Final

from bfcviz.formats.messages import Message, Number, Role

MESSAGES: Final = (
    Message(
        "vllm-profile",
        "vLLM",
        "What the trial run found: the share of the device, and what weights and activations take of it.",
        ("model weights take {size}",),
        "vllm/worker/worker.py (0.6 to 0.8)",
        role=Role.BEFORE,
        family="vllm",
        numbers=(
            Number("device_total", "the whole device", ("total_gpu_memory ({size})",)),
            Number(
                "limit", "gpu_memory_utilization x the device", ("gpu_memory_utilization ({skip}) = {size}",)
            ),
            Number("weights", "weights of the model", ("model weights take {size}",)),
            Number("outside", "what lies outside of PyTorch's pool", ("non_torch_memory takes {size}",)),
            Number(
                "peak", "activations at the peak of the trial run", ("activation peak memory takes {size}",)
            ),
            Number("kv_available", "what is left for the KV cache", ("reserved for KV Cache is {size}",)),
        ),
        behind=300,
    ),
    Message(
        "vllm-blocks",
        "vLLM",
        "Nothing was refused by the device: gpu_memory_utilization x the device, less weights and the peak of a "
        "trial run, leaves nothing for the KV cache.",
        ("No available memory for the cache blocks",),
        "vllm/v1/core/kv_cache_utils.py",
        family="vllm",
        numbers=(Number("kv_available", "what is left for the KV cache", ("KV cache memory: {size}",)),),
        marks={"cache blocks": "kv"},
        behind=4000,
    ),
    Message(
        "vllm-length",
        "vLLM",
        "The KV cache that fits holds fewer tokens than one request may have. Nothing was refused by the device.",
        (
            "larger than the maximum number of tokens that can be stored in KV cache",
            "larger than the available KV cache memory",
        ),
        "vllm/v1/core/kv_cache_utils.py",
        family="vllm",
        numbers=(
            Number(
                "requested",
                "the KV cache of one request of the maximum length",
                ("({size} KV cache is needed",),
            ),
            Number("kv_available", "what is left for the KV cache", ("available KV cache memory ({size})",)),
            Number("max_tokens", "the maximum length of a request", ("max seq len ({number})",)),
            Number(
                "kv_tokens",
                "tokens that fit",
                ("stored in KV cache ({number})", "maximum model length is {number}"),
            ),
        ),
        marks={"KV cache": "kv", "larger": "length"},
        behind=300,
    ),
    Message(
        "vllm-start",
        "vLLM",
        "Before anything was loaded, less was free on the device than the share that vLLM is told to take.",
        ("is less than desired GPU memory utilization",),
        "vllm/v1/worker/gpu_worker.py",
        family="vllm",
        numbers=(
            Number("device_free", "free at the start", ("({number}/",), unit="G"),
            Number("device_total", "the whole device", ("/{number} GiB)",), unit="G"),
            Number("requested", "gpu_memory_utilization x the device", ("utilization ({skip}, {size})",)),
        ),
        marks={"less than desired": "start"},
        behind=120,
    ),
    Message(
        "vllm-profiling",
        "vLLM",
        "Another process took or freed memory of the device while vLLM measured its own peak.",
        ("Error in memory profiling",),
        "vllm/v1/worker/gpu_worker.py",
        family="vllm",
        numbers=(Number("device_free", "free after the trial run", ("current free memory {size}",)),),
        marks={"profiling": "profiling"},
    ),
    Message(
        "sglang-fraction",
        "SGLang",
        "The share of the device for weights and KV cache is too small for the weights.",
        ("Not enough memory. Please try to increase --mem-fraction-static",),
        "sglang/srt/model_executor/model_runner.py",
        family="vllm",
        marks={"mem-fraction-static": "kv"},
    ),
)
"""Texts of vLLM and SGLang."""

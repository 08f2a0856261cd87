"""What a text of PyTorch, or of a server on it, is advised: with the names of that server, device and system."""

import pytest
from unit.analysis.told_failure import kinds, told, words

from bfcviz.analysis.message_verdict import StatedCause

FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 320.00 MiB. GPU 0 has a total capacity of 47.50 GiB "
    "of which 200.00 MiB is free. Process 71 has 47.20 GiB memory in use. Of the allocated memory 46.00 GiB is "
    "allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.\n"
)
ASYNC = (
    "Allocation on device 0 would exceed allowed memory. (out of memory)\n"
    "Currently allocated     : {allocated}\nRequested               : {requested}\n"
    "Device limit            : 12.00 GiB\nFree (according to CUDA): {free}\n"
    "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB\n"
)
MPS = (
    "RuntimeError: MPS backend out of memory (MPS allocated: 2.10 GB, other allocations: {limit} GB, max allowed: "
    "{limit} GB). Tried to allocate 900.00 MB on private pool.\n"
)


@pytest.mark.parametrize(
    ("program", "device", "first", "others"),
    [
        (
            "python -m sglang.launch_server",
            "CUDA",
            "--mem-fraction-static",
            ["--tp-size", "--cuda-graph-max-bs"],
        ),
        ("python -m sglang.launch_server", "NPU", "--mem-fraction-static", ["--chunked-prefill-size"]),
        ('File "vllm/core.py"\nFile "sglang/srt/a.py"', "CUDA", "--mem-fraction-static", ["fp8_e5m2"]),
        ("vllm serve", "CUDA", "--gpu-memory-utilization", ["--max-model-len", "--tensor-parallel-size"]),
    ],
)
def test_a_full_device_gets_the_options_of_its_server(program, device, first, others):
    failure = told(f"{program}\n{FULL.replace('CUDA', device)}")
    assert failure.judgement.cause is StatedCause.CAPACITY
    assert first in failure.advice[0].text
    said = words(failure)
    assert all(each in said for each in others)
    names = ("--max-num-seqs", "--enforce-eager", "--gpu-memory-utilization", "--max-model-len")
    assert any(name in said for name in names) is ("sglang" not in program)
    assert "fp8" not in said or device == "CUDA"


@pytest.mark.parametrize(
    ("before", "is_loading"),
    [
        ('File "vllm/v1/worker/gpu_worker.py", line 9, in load_model\n', True),
        ('File "sglang/srt/model_executor/model_runner.py", line 9, in load_model\n', True),
        ('sglang Load weight end.\nFile "sglang/srt/eagle_worker.py", line 9, in load_model\n', False),
        ('File "vllm/v1/worker/gpu_worker.py", line 9, in execute_model\n', False),
    ],
)
def test_weights_that_do_not_fit_leave_no_cache_to_shrink(before, is_loading):
    failure = told(before + FULL)
    assert (kinds(failure)[0] == "smaller_model_or_precision") is is_loading
    assert ("kv_cache_size" in kinds(failure)) is not is_loading
    assert ("load_model" in words(failure)) is is_loading


def test_sglang_without_room_for_its_cache():
    failure = told("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.")
    assert failure.judgement.cause is StatedCause.CAP_BY_SETTING
    assert "trial run" not in failure.judgement.sentence
    assert failure.advice[0].text == "Raise --mem-fraction-static."
    assert "--tp-size" in words(failure)
    assert not [word for word in ("--max-num-seqs", "--max-model-len", "--tensor") if word in words(failure)]


@pytest.mark.parametrize(
    ("text", "facts", "first"),
    [
        (
            "RuntimeError: Not enough memory to handle 6144 prefill tokens. You need to decrease `--max-batch-p...`",
            {"prefill_tokens": 6144},
            "--max-batch-prefill-tokens below 6,144",
        ),
        (
            "RuntimeError: Not enough memory to handle 24000 total tokens with 4 prefill tokens. You need to decrease",
            {"prefill_tokens": 4, "total_tokens": 24000},
            "--max-batch-total-tokens below 24,000",
        ),
    ],
)
def test_text_generation_inference_names_what_to_lower(text, facts, first):
    failure = told(text)
    assert (failure.stated.framework, failure.stated.facts) == ("Text Generation Inference", facts)
    assert (failure.judgement.cause, failure.judgement.second) == (StatedCause.UNKNOWN, StatedCause.CAPACITY)
    assert first in failure.advice[0].text
    both = told(f"{FULL}\nThe above exception was the direct cause of the following exception:\n{text}")
    assert (both.stated.framework, both.judgement.cause) == ("PyTorch CUDA", StatedCause.CAPACITY)
    assert first in both.advice[0].text
    assert "In training" not in words(both)


@pytest.mark.parametrize(
    ("file", "framework", "second", "first"),
    [
        (
            "/src/bitsandbytes/csrc/pythonInterface.c",
            "bitsandbytes",
            StatedCause.HOST_MEMORY,
            "system_memory",
        ),
        (
            "D:\\a\\bitsandbytes-win\\csrc\\ops.cu",
            "bitsandbytes",
            StatedCause.CAPACITY,
            "free_other_processes",
        ),
        ("../src/solver.cu", "CUDA", None, None),
    ],
)
def test_a_call_of_cuda_at_a_line_of_a_file(file, framework, second, first):
    failure = told(f"Error out of memory at line 77 in file {file}")
    assert (failure.stated.framework, failure.judgement.cause) == (framework, StatedCause.UNKNOWN)
    if second is not None:
        assert (failure.judgement.second, kinds(failure)[0]) == (second, first)
        assert "paged" in words(failure)


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("", "up to 38.50 GiB"),
        ("Including non-PyTorch memory, this process has 8.50 GiB memory in use. ", "They hold 38.00 GiB"),
    ],
)
def test_others_hold_at_most_what_lies_outside_of_the_pool(listed, said):
    text = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 47.50 GiB of which 1.00 GiB is "
        f"free. {listed}Of the allocated memory 8.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch "
        "but unallocated."
    )
    failure = told(text)
    assert failure.judgement.cause is StatedCause.OTHER_PROCESS
    assert said in failure.advice[0].text
    assert ("APU" in words(told(text.replace("CUDA", "HIP")))) is not listed


def test_a_refusal_beside_others_looks_for_them_first():
    text = (
        "CUDA out of memory. Tried to allocate 300.00 MiB (GPU 0; 23.00 GiB total capacity; {live} GiB already "
        "allocated; 800.00 MiB free; {live} GiB reserved in total by PyTorch)"
    )
    failure = told(text.format(live="12.00"))
    assert failure.judgement.cause is StatedCause.DRIVER_REFUSED
    assert kinds(failure)[:2] == ["free_other_processes", "driver_or_runtime_bug"]
    assert "nvidia-smi --query-compute-apps" in failure.advice[0].text
    assert "free_other_processes" not in kinds(told(text.format(live="21.50")))


def test_a_refusal_on_windows_is_told_of_the_page_file():
    text = ASYNC.format(allocated="5.00 GiB", requested="16.00 MiB", free="6.00 GiB")
    failure = told(text)
    assert failure.judgement.cause is StatedCause.DRIVER_REFUSED
    assert kinds(failure)[0] == "system_memory"
    assert "page file" in failure.advice[0].text
    assert "ulimit" in words(failure)  # the text does not say which system it is
    assert "ulimit" not in words(told(f'File "C:\\ComfyUI\\execution.py", line 2\n{text}'))
    linux = (
        "CUDA out of memory. Tried to allocate 8.00 MiB (GPU 0; 12.00 GiB total capacity; 5.00 GiB already "
    )
    failure = told(f"{linux}allocated; 6.00 GiB free; 5.00 GiB reserved in total by PyTorch)")
    assert "page file" not in words(failure)


def test_what_the_pool_of_the_driver_keeps_is_not_told_as_others():
    failure = told(ASYNC.format(allocated="9.00 GiB", requested="2.00 GiB", free="0 bytes"))
    assert failure.judgement.cause is StatedCause.CAPACITY
    said = failure.judgement.sentence
    assert (
        "3.00 GiB more of the device are in use, but are not live tensors: what the driver's pool keeps"
        in said
    )
    assert "No setting" not in said
    assert "cached in its pools" in str(failure.account)
    assert "reserved_bytes.all.current" in words(failure)
    assert "_record_memory_history" not in words(failure)  # this allocator refuses to record
    others = told(ASYNC.format(allocated="2.00 GiB", requested="1.00 GiB", free="0 bytes"))
    assert others.judgement.cause is StatedCause.OTHER_PROCESS
    assert "10.00 GiB are not live tensors of this process" in others.judgement.sentence


@pytest.mark.parametrize(("limit", "size"), [("6.80", "4.00 GiB"), ("9.07", ""), ("27.20", "")])
def test_memory_of_a_mac_is_shared_only_on_apple_silicon(limit, size):
    failure = told(MPS.format(limit=limit))
    assert failure.judgement.cause is StatedCause.CAPACITY
    said = words(failure)
    assert (f"GPU with {size}" in said) is bool(size)
    assert ("on Apple silicon memory is shared" in said) is not size


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "(GPU 0; 15.50 GiB total capacity; 9.00 GiB already allocated; 9.50 GiB reserved in total by PyTorch)",
            "",
        ),
        ("GPU 0 has a total capacity of 15.50 GiB. Of the allocated memory 9.00 GiB is", "2.2 or later"),
    ],
)
def test_old_words_of_xpu_tell_no_version(text, version):
    assert (
        told(f"RuntimeError: XPU out of memory. Tried to allocate 8.00 GiB {text}").stated.version == version
    )
    assert told(f"RuntimeError: CUDA out of memory. Tried to allocate 8.00 GiB {text}").stated.version


@pytest.mark.parametrize(
    ("case", "cause", "second", "first"),
    [
        (("CUDA", "3.00", "15.50"), StatedCause.UNKNOWN, StatedCause.CAPACITY, "Give the whole message"),
        (("XPU", "3.00", "15.50"), StatedCause.UNKNOWN, StatedCause.CAPACITY, "Reduce the batch"),
        (("XPU", "5.00", "15.50"), StatedCause.UNKNOWN, StatedCause.DRIVER_REFUSED, "UR_L0_ENABLE_RELAXED"),
        (
            ("XPU", "48.00", "48.00"),
            StatedCause.REQUEST_EXCEEDS_DEVICE,
            StatedCause.DRIVER_REFUSED,
            "Split the tensor",
        ),
        (("CUDA", "48.00", "48.00"), StatedCause.REQUEST_EXCEEDS_DEVICE, None, "Split the tensor"),
    ],
)
def test_a_message_cut_after_the_size_of_the_device(case, cause, second, first):
    device, asked, total = case
    failure = told(
        f"{device} out of memory. Tried to allocate {asked} GiB. GPU 0 has a total capacity of {total} GiB"
    )
    assert (failure.judgement.cause, failure.judgement.second) == (cause, second)
    assert failure.stated.fact("device_total") == round(float(total) * (1 << 30))
    assert "does not say how much the device has" not in failure.judgement.sentence
    assert first in failure.advice[0].text
    assert ("for a lack of memory" in words(failure)) is False
    assert ("UR_L0_ENABLE_RELAXED" in words(failure)) is (second is StatedCause.DRIVER_REFUSED)


def test_the_limit_of_an_extension_is_not_one_of_the_driver():
    failure = told(
        "Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate 5.00 GiB (GPU 0; "
        "16.00 GiB total capacity; 0 bytes already allocated; 0 bytes reserved in total by PyTorch)"
    )
    assert (failure.judgement.cause, failure.judgement.second) == (StatedCause.REQUEST_EXCEEDS_LIMIT, None)
    assert "below 4.00 GiB" in failure.advice[0].text
    assert "UR_L0" not in words(failure)


@pytest.mark.parametrize(
    ("total", "live", "cause"),
    [("2.00", "1.30", StatedCause.CAPACITY), ("2.00", "1.00", StatedCause.OTHER_PROCESS)],
)
def test_what_a_context_takes_of_a_small_device_is_no_other_process(total, live, cause):
    failure = told(
        f"CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; {total} GiB total capacity; {live} GiB already "
        f"allocated; 4.00 MiB free; {live} GiB reserved in total by PyTorch)"
    )
    assert failure.judgement.cause is cause
    assert {cause, failure.judgement.second} == {StatedCause.CAPACITY, StatedCause.OTHER_PROCESS}


@pytest.mark.parametrize(
    "before",
    [
        "(EngineCore_DP0 pid=9) ",
        "ERROR 03-04 01:02:03 [core.py:77] ",
        "(VllmWorker rank=1 pid=9) ERROR 03-04 01:02:03 [multiproc_executor.py:9] ",
        "  File a/core_client.py, line 7\n",
    ],
)
def test_the_processes_of_a_server_name_it(before):
    failure = told(before + FULL)
    assert failure.judgement.cause is StatedCause.CAPACITY
    assert "--gpu-memory-utilization" in failure.advice[0].text


@pytest.mark.parametrize(
    ("before", "first", "is_graph"),
    [
        (
            '(VllmWorker rank=1 pid=9)   File "torch/cuda/graphs.py", line 8, in capture_end\n',
            "gpu-memory-util",
            True,
        ),
        ('  File "a/sglang/srt/managers/tp_worker.py", line 1, in forward\n', "--mem-fraction-static", False),
    ],
)
def test_a_call_of_a_server_is_refused_for_the_share_that_it_takes(before, first, is_graph):
    text = "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported\n"
    failure = told(before + text)
    assert (failure.judgement.cause, failure.judgement.second) == (StatedCause.UNKNOWN, StatedCause.CAPACITY)
    assert failure.stated.framework == "PyTorch CUDA"
    assert ("captured a CUDA graph" in failure.judgement.sentence) is is_graph
    assert first in failure.advice[0].text
    assert ("--enforce-eager" in words(failure)) is is_graph
    alone = told(text)
    assert alone.judgement.second is StatedCause.OTHER_PROCESS


def test_a_version_that_names_a_setting_which_its_builds_ignore():
    failure = told(
        "HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is "
        "free. Of the allocated memory 15.00 GiB is allocated by PyTorch, and 7.00 GiB is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
    assert failure.judgement.cause is StatedCause.CACHED_FRAGMENTATION
    assert "builds for ROCm ignore expandable_segments" in failure.advice[0].text


TRACEBACK = (
    'Traceback (most recent call last):\n  File "a.py", line 7, in main\n    run()\n  File "nn/modules/module.py", '
    "line 9, in {name}\n    {code}\n"
)


@pytest.mark.parametrize(
    ("before", "is_moved"),
    [
        (TRACEBACK.format(name="_apply", code="param_applied = fn(param)"), True),
        (TRACEBACK.format(name="to", code="return self._apply(convert)"), True),
        (TRACEBACK.format(name="load_state_dict", code="load(self, state_dict)"), True),
        (TRACEBACK.format(name="main", code="optimizer.load_state_dict(saved)"), False),
        (TRACEBACK.format(name="_call_impl", code="return forward_call(*args)"), False),
        (
            TRACEBACK.format(name="_apply", code="fn(p)")
            + 4 * TRACEBACK.format(name="forward", code="self.a(x)"),
            False,
        ),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_weights_on_their_way_to_the_device_have_no_batch(before, is_moved, is_first):
    failure = told(before + FULL if is_first else FULL + before)
    assert failure.judgement.cause is StatedCause.CAPACITY
    assert (kinds(failure)[0] == "smaller_model_or_precision") is is_moved
    batch = {"smaller_request_or_batch", "gradient_checkpointing", "sequence_or_context_length"}
    assert bool(batch & set(kinds(failure))) is not is_moved
    assert ("device_map" in words(failure)) is is_moved


@pytest.mark.parametrize(
    ("sizes", "is_told"),
    [
        (("500.00 MiB", "500.00 MiB", "500.00 MiB"), True),
        (("500.00 MiB", "300.00 MiB", "500.00 MiB"), False),
        (("500.00 MiB",), False),
        (("5.00 GiB", "5.00 GiB"), False),
    ],
)
def test_equal_small_processes_are_contexts_of_other_ranks(sizes, is_told):
    listed = "".join(f"Process {pid} has {size} memory in use. " for pid, size in enumerate(sizes, 20))
    failure = told(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 1 has a total capacity of 64.00 "
        f"GiB of which 1.00 GiB is free. {listed}Including non-PyTorch memory, this process has 52.00 GiB memory in "
        "use. Of the allocated memory 45.00 GiB is allocated by PyTorch, and 6.00 GiB is reserved by PyTorch but "
        "unallocated.\n"
    )
    assert failure.judgement.cause is StatedCause.CACHED_FRAGMENTATION
    assert ("set_device(local_rank)" in words(failure)) is is_told
    assert kinds(failure)[0] == "expandable_segments"


@pytest.mark.parametrize(("allocated", "is_told"), [("13.00 GiB", True), ("10.00 GiB", False)])
def test_other_processes_are_looked_for_where_live_tensors_and_the_request_would_fit(allocated, is_told):
    requested = "500.00 MiB" if is_told else "6.00 GiB"
    text = ASYNC.format(allocated=allocated, requested=requested, free="0 bytes")
    failure = told(text.replace("12.00 GiB", "15.00 GiB"))
    assert failure.judgement.cause is StatedCause.CAPACITY
    assert failure.judgement.second is StatedCause.OTHER_PROCESS
    assert kinds(failure)[0] == "smaller_request_or_batch"
    assert ("free_other_processes" in kinds(failure)) is is_told


def test_what_lies_outside_of_the_pools_of_a_mac_may_pass_the_limit():
    text = MPS.format(limit="9.00").replace("2.10 GB", "6.00 GB").replace("900.00 MB", "512 bytes")
    failure = told(text.replace("other allocations: 9.00", "other allocations: 4.00"))
    assert failure.judgement.cause is StatedCause.CAPACITY
    assert "1.0 GiB more than the limit" in str(failure.account)
    assert "cannot be that of these pools" not in str(failure.account)

"""Words that any program may print when memory runs out: whose memory, which numbers, and what is no failure."""

import random

import pytest
from shared import SHARED

from bfcviz.analysis.message_answer import StatedAnswer
from bfcviz.analysis.message_verdict import StatedCause
from bfcviz.formats.message_tables import TABLES
from bfcviz.importers import message_reader
from bfcviz.importers.message_reader import read_messages, stated_size

GPU, SYSTEM, EITHER = "capacity", "host_memory", ""


def read(text):
    """The answer for a text, also for one without a failure."""
    return StatedAnswer.of(*read_messages([text.encode()]))


@pytest.mark.parametrize(
    ("text", "program", "memory", "facts"),
    [
        ("CUDA error = 2 at /a/b.h:20 'cudaMalloc(&p, n)'. Error string: out of memory.", "CUDA", GPU, {}),
        ("Cuda error: cudaMalloc of points failed: out of memory.", "CUDA", GPU, {}),
        ("hipErrorTbd (ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY ) in /a/b.cc:3:record", "oneAPI", GPU, {}),
        ("[a_nvenc @ 0x5] CreateBitstreamBuffer failed: out of memory (10): (none)", "NVENC", GPU, {}),
        ("[.WebGL-0000] GL_OUT_OF_MEMORY: Error allocating Texture2D.", "OpenGL", GPU, {}),
        ("[1:0909/131036.0:ERROR:a.cc(9)] GL ERROR :GL_OUT_OF_MEMORY : glTexImage2D:", "OpenGL", GPU, {}),
        ("D3D11: Failed to create RenderTexture (64 x 32 fmt 2), error 0x8007000e", "Unity", GPU, {}),
        ("panicked at 'wgpu error: Out of Memory', /a/direct.rs:3:5", "WebGPU", GPU, {}),
        ("MIOpen Error: /a/handlehip.cpp:7: Memory not available to allocate buffer: 655360000",
         "MIOpen", GPU, {"requested": 655360000}),
        ("10:10:12 TREX: [ID=1, GPU #1], Device does not have enough free memory. Required: 4 GB, free: 3 GB.",
         "T-Rex", GPU, {"requested": 4 << 30, "device_free": 3 << 30}),
        ("fatal error: runtime: out of memory\n\nruntime stack:\nruntime.throw(0x1, 0x2)", "Go", SYSTEM, {}),
        ("fork/exec /usr/bin/a: cannot allocate memory", "Linux", SYSTEM, {}),
        ("a: error de fork: No se pudo asignar memoria", "Unknown program", SYSTEM, {}),
        ("a.py failed: [Errno 12] \u65e0\u6cd5\u5206\u914d\u5185\u5b58", "Linux", SYSTEM, {}),
        ("{ [Error: out of memory] code: '53200', detail: 'Failed on request of size 8388608.' }",
         "PostgreSQL", EITHER, {"requested": 8388608}),
        ("Could not allocate memory: System out of memory!\nTrying to allocate: 67108864B. MemoryLabel: Array",
         "Unity", SYSTEM, {"requested": 67108864}),
        ("Stopped due to insufficient system resources. It requires approximately 16 GB: model loading guardrails",
         "LM Studio", "cap_by_setting", {"requested": 16 << 30}),
        ("ERROR: Insufficient memory, statevector simulator. Required memory: 4096M, max memory: 1024M",
         "Qiskit", "request_exceeds_limit", {"requested": 4 << 30, "limit": 1 << 30}),
        ("a::out_of_memory_error\n [a.hpp:38]: cudaMalloc of bytes = 4294967312 failed: out of memory",
         "CUDA", GPU, {"requested": 4294967312}),
        ("E/A: java.lang.OutOfMemoryError: Failed to allocate a 8000000 byte allocation with 1000000 free bytes",
         "Java", SYSTEM, {"requested": 8000000, "available": 1000000}),
        ("\u5185\u5b58\u8d44\u6e90\u4e0d\u8db3 (HRESULT:0x80070008)", "Windows", SYSTEM, {}),
        ("0xC0000017 (no quota)", "Windows", SYSTEM, {}),
        ("terminate 'thrust::system_error'\n  what():  parallel_for failed: out of memory", "CUDA", GPU, {}),
        ("2022-05-05 12:33:54,767 ERROR [a.py:7] Your GPU ran out of memory with this batch",
         "Unknown program", GPU, {}),
        ("virtual memory exhausted: Cannot allocate memory", "Unknown program", SYSTEM, {}),
        ("/usr/bin/ld: failed to set sizes: memory exhausted", "ld", EITHER, {}),
        ("a-tool.exe: not enough memory", "a-tool", EITHER, {}),
        ("error: not enough memory", "Unknown program", EITHER, {}),
        ("init_frames: cannot allocate memory", "Unknown program", EITHER, {}),
        ("plugins/intel_gpu/a.cpp:185:\n[GPU] out of GPU resources", "OpenVINO", GPU, {}),
        ("CatboostError: a/b.h: bad allocation", "CatBoost", SYSTEM, {}),
        ("LLVM ERROR: out of memory\nProgram arguments: /opt/rocm/bin/llvm-link", "LLVM", SYSTEM, {}),
        ("A(9,0x1) malloc: can't allocate region\nb failed", "Unknown program", SYSTEM, {}),
        ("Message: OpenGL Exception: (Post render, Out of memory)", "OpenGL", GPU, {}),
        ("System.OutOfMemoryException: Array dimensions exceeded supported range.", ".NET", SYSTEM, {}),
        ("ERR_OUT_OF_CPU_MEM: Not enough host memory to execute the query", "HeavyDB", SYSTEM, {}),
        ("[ERROR] plus alloc size : 300000000 is more than total mem size : 29000000000. [mindspore/ccsrc/a.cc:3]",
         "MindSpore", EITHER, {"requested": 300000000, "limit": 29000000000}),
        ("[a-vulkan.plugin] vkCreateFence failed with ERROR_OUT_OF_HOST_MEMORY", "Vulkan", SYSTEM, {}),
        ("PaddleCheckError: out of memory at [/a/device_context.cc:9]", "PaddlePaddle", EITHER, {}),
        ("RuntimeError: DML allocator out of memory!", "DirectML", GPU, {}),
        ("[a/Engine] OUT OF VIDEO MEMORY! ( vmaAllocateMemory )", "Vulkan", GPU, {}),
        ("directx: ID3D12Device::CreateCommittedResource failed: Out of memory.", "Direct3D", GPU, {}),
        ("GPU 1: error when allocating memory or building the DAG. Disabling card.", "Unknown program", GPU, {}),
        ("RuntimeError: Malloc for kernel output failed, Memory isn't enough, node:a", "MindSpore", EITHER, {}),
        ("[drm ERROR :amdgpu_cs_ioctl] Not enough memory for command submission!", "AMD driver", GPU, {}),
        ("[drm:b [nvidia_drm]] *ERROR* [GPU ID 0x1] Failed to allocate NVKMS memory", "NVIDIA driver", GPU, {}),
        ("[a.cpp] CUresult error: 2 (out of memory) file=core.cpp", "CUDA", GPU, {}),
        ("a.detect ERROR : setup failed for stream #0:0 : Cannot allocate memory", "Unknown program", EITHER, {}),
        ("CUDA error in func a at line 123 out of memory on CUDA device 01:00.0", "CUDA", GPU, {}),
        ("AError: Check failed: (result) is false: Failed to allocate 99121664 bytes with alignment 16 bytes",
         "Unknown program", EITHER, {"requested": 99121664}),
    ],
)  # fmt: skip
def test_words_that_any_program_prints(text, program, memory, facts):
    (failure,) = read(f"{text}\n").failures
    assert failure.stated.message == "any-memory"
    assert failure.stated.framework == program
    assert dict(failure.stated.facts) == facts
    judged = failure.judgement
    told = {str(judged.cause), str(judged.second)}
    assert memory in told if memory else StatedCause.HOST_MEMORY not in told
    assert failure.advice


@pytest.mark.parametrize(
    "text",
    [
        "The client should detect cuda out of memory and lower the size.",
        "It may run out of memory on a GPU of 8 GB, see config.txt:3.",
        "The GPU uses 2 of 8 GB, so you are not running out of memory.",
        "MemoryErrors caused by allocated overly large arrays are more descriptive",
        "Out of memory errors are common with cudaMalloc().",
        "The error `Out of memory in foo()` says that the device is full.",
        '    raise RuntimeError(f"failed to allocate {size} bytes of GPU memory")',
        "    return OUT_OF_MEMORY;",
        "from torch.cuda import OutOfMemoryError",
        "def is_out_of_memory(error): ...",
        "// the driver returns an error: out of memory",
        'printf("error: failed to allocate %d bytes of memory", n);',
        "error: failed to allocate time for a meeting",
        "[INFO] 10:00:00 memory 5 of 8 GB, allocated 3",
        'if status.Reason == "OOMKilled" { kills = 1 }',
        'if (error.Message.Contains("cudaErrorMemoryAllocation", StringComparison.Ordinal))',
        "Note: 8 GB of GPU memory is not enough for training with batch_size=8.",
        "memory too low warning threshold: 512 MB (config.yml:3)",
        "zeMemAllocDevice size=2048 bytes, result=0x0, ptr=0x70000003aa",
        "The router reports address allocation failed on eth0: error 5",
        "ImportError: a.so: cannot allocate memory in static TLS block",
    ],
)
def test_sentences_and_sources_are_no_failures(text):
    assert not read(f"{text}\n").failures


def test_words_of_any_program_count_only_where_no_known_text_tells_of_a_failure():
    text = (
        "ERROR a_b: failed to allocate 5 MiB of memory\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        "a_b error: ran out of memory\n"
    )
    (failure,) = read(text).failures
    assert failure.stated.framework == "PyTorch CUDA"


def test_words_of_any_program_leave_a_refusal_soft():
    soft = (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.50GiB with freed_by_count=0. The caller "
        "indicates that this is not a failure\nwarning: a_b out of memory\n"
    )
    answer = read(soft)
    assert not answer.failures
    assert answer.soft


@pytest.mark.parametrize(
    "text",
    [
        "vkAllocateMemory failed, a_b: out of video memory, trying again in system memory as a fallback.",
        "WARNING a.cc:7 Failed to allocate 67108864 bytes of pinned memory\nfalling back to pageable memory",
        "| WARNING: ran out of memory on GPU #2, skipping batch",
        "[a] Log: Windows reports memory too low on GPU 0 to reliably allocate 1297920 byte\n[a] it will fall back",
        "10:00:00 WARN: GPU #0(000100): not enough memory to hold all of it, the rate will be lower",
        "[10:00:00] [a] [warning] Failed to allocate 5 MiB of GPU memory",
    ],
)
def test_a_program_that_goes_on_did_not_fail(text):
    answer = read(f"{text}\n")
    assert not answer.failures
    (told,) = answer.soft
    assert told.judgement.cause is StatedCause.NOT_A_FAILURE


def test_the_address_of_a_device_is_not_its_number():
    (failure,) = read("CUDA error in func a at line 123 out of memory on CUDA device 01:00.0\n").failures
    assert failure.stated.devices == ()


def test_a_warning_with_an_error_in_it_is_a_failure():
    (failure,) = read("WARNING: a_b error: out of GPU memory\n").failures
    assert failure.stated.framework == "Unknown program"


def test_a_later_line_without_another_way_is_a_failure():
    text = "a_b error: out of GPU memory, falling back to the CPU\n\na_b error: out of CPU memory\n"
    (failure,) = read(text).failures
    assert failure.stated.line == 3


def test_of_several_lines_the_one_with_numbers_counts():
    text = "a_b error: out of memory\nb\nc\nd\na_b error: cudaMalloc: failed to allocate 12345678 bytes of memory\n"
    (failure,) = read(text).failures
    assert failure.stated.facts["requested"] == 12345678
    assert failure.stated.line == 5


def test_a_program_without_a_name():
    (failure,) = read("a_b error: out of GPU memory\n").failures
    assert failure.judgement.sentence.startswith("A program was refused memory of the device.")


def test_a_request_whose_size_overflowed_exceeds_the_device():
    text = (
        "CUDA out of memory. Tried to allocate 67109892.01 GiB. GPU 0 has a total capacity of 24.00 GiB of which 17.00 "
        "GiB is free. Of the allocated memory 6.00 GiB is allocated by PyTorch, and 21.80 MiB is reserved by PyTorch "
        "but unallocated.\n"
    )
    (failure,) = read(text).failures
    assert failure.judgement.cause is StatedCause.REQUEST_EXCEEDS_DEVICE


def test_a_size_in_hexadecimal_digits():
    assert stated_size("0x639c00").value == 0x639C00
    assert stated_size("0xzz") is None


@pytest.mark.parametrize(
    ("text", "program", "cause", "facts"),
    [
        ("cc1plus.exe: out of memory allocating 65536 bytes after a total of 284622848 bytes",
         "GCC", SYSTEM, {"requested": 65536}),
        ("com.nvidia.spark.rapids.jni.GpuRetryOOM: GPU OutOfMemory", "Spark RAPIDS", GPU, {}),
        ("com.nvidia.spark.rapids.jni.RetryOOM: task should retry operation", "Spark RAPIDS", GPU, {}),
        ("com.nvidia.spark.rapids.jni.CpuRetryOOM: CPU OutOfMemory", "Spark RAPIDS", SYSTEM, {}),
        ("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
         "JavaScript", SYSTEM, {}),
        ("Uncaught RangeError: Array buffer allocation failed", "JavaScript", SYSTEM, {}),
        ("[a-0] terminated with exit code (137). Reason [Error].", "Linux", SYSTEM, {}),
        ("OSError: [WinError 1455] \u9875\u9762\u6587\u4ef6\u592a\u5c0f", "Windows", SYSTEM, {}),
        ("pyopencl.RuntimeError: clEnqueueReadBuffer failed: out of resources", "OpenCL", GPU, {}),
        ("Error on nvEncOpenEncodeSessionEx: 10 (no memory)", "NVENC", "cap_by_setting", {}),
        ("error loading model: unable to allocate CUDA_Host buffer", "llama.cpp", SYSTEM, {}),
        ("ANet: insufficient shared memory available on the GPU.", "CUDA", "request_exceeds_limit", {}),
        ("Failed to set the allowed dynamic shared memory size to 73728",
         "CUDA", "request_exceeds_limit", {"requested": 73728}),
        ("failed assertion `[A] Error: total bytes of NDArray > 2**32'", "Metal", "request_exceeds_limit", {}),
        ("[error] bm_alloc_gmem failed, dev_id = 0, size = 0x100000", "Sophgo", GPU, {"requested": 1 << 20}),
        ("Buffer size (870585948) exceeds the max buffer size limit (536870912). - While calling [Device].b",
         "WebGPU", "request_exceeds_limit", {"requested": 870585948, "limit": 536870912}),
        ("Caused by:\n    In a\n    Buffer size 640000000 is greater than the maximum buffer size (268435456)",
         "WebGPU", "request_exceeds_limit", {"requested": 640000000, "limit": 268435456}),
        ("OperationError: Required limit (1073741824) is greater than the supported limit (134217728).",
         "WebGPU", "request_exceeds_limit", {"requested": 1 << 30, "limit": 1 << 27}),
        ("Binding size (141557760) of [Buffer] is larger than the maximum storage buffer binding size (134217728).",
         "WebGPU", "request_exceeds_limit", {"requested": 141557760, "limit": 1 << 27}),
        ("is false: storage failure, attempted to allocate 16785408 at offset 0 in region that is 16777216bytes",
         "TVM", "request_exceeds_limit", {"requested": 16785408, "limit": 1 << 24}),
        ("ERROR: vmaCreateImage failed with error -2.", "Vulkan", GPU, {}),
        ("zeMemAllocDevice size=21583194624 bytes (20.10 GiB), result=0x70000003, ptr=(nil)",
         "oneAPI", GPU, {"requested": 21583194624}),
        ("EL0004: [PID: 3] Failed to allocate memory.\n  resource[DeviceMemory] with info [size:2147483648].",
         "Ascend CANN", GPU, {"requested": 2 << 30}),
        ("Device #1: Device does not provide enough allocatable device-memory", "hashcat", GPU, {}),
        ("Windows diagnosed a low virtual memory condition: a (38) consumed 37757956096 bytes, b (9) 2",
         "Windows", SYSTEM, {"process_in_use": 37757956096}),
        ("a failed in clCreateBuffer with error code=-4", "OpenCL", GPU, {}),
        ("LogicError: cuMemHostAlloc failed: OS call failed or operation not supported", "CUDA", SYSTEM, {}),
        ("java.lang.RuntimeException: Can't allocate [DEVICE] allocation buffer memory!", "ND4J", GPU, {}),
        ("ERROR on proc 6: Failed to reallocate 1650272 bytes for array a:b (src/memory.cpp:1)",
         "LAMMPS", SYSTEM, {"requested": 1650272}),
        ("a.scope: systemd-oomd killed 12 process(es) in this unit.", "systemd-oomd", SYSTEM, {}),
        ("An application has requested more GPU memory than is\navailable in the system.", "NVIDIA driver", GPU, {}),
        ("'oneflow::RuntimeException'\n  what():  Error: CUDA out of memory. Tried to allocate 32.0 MB\nYou can",
         "OneFlow", GPU, {"requested": 32 << 20}),
        ("failed with result RMM_ERROR_OUT_OF_MEMORY (4) Attempted to allocate: 4000000000 bytes.",
         "RMM", GPU, {"requested": 4000000000}),
    ],
)  # fmt: skip
def test_more_words_of_known_programs(text, program, cause, facts):
    (failure,) = read(f"{text}\n").failures
    assert failure.stated.framework == program
    assert dict(failure.stated.facts) == facts
    assert cause in {str(failure.judgement.cause), str(failure.judgement.second)}
    assert failure.advice


# ------------------------------------------------------------------------------
# The search for messages by the words of a text finds what a search for every message of the tables finds.

VALUES = {
    "{bytes}": "2.00 GiB", "{size}": "3.00 GiB", "{number}": "1234", "{skip}": "abc", "{word}": "wOrd", "{sep}": ": ",
    "{count}": "3", "{start}": "", "{end}": "",
}  # fmt: skip


def told(text):
    """Where each beginning of the tables stands, and the clients and programs that the words name."""
    places = [
        (each.start, each.stop, each.order, each.variant)
        for each in message_reader._message_beginnings(text, 0)
    ]
    return places, message_reader.hints_of(text)


def instance(begins):
    for place, value in VALUES.items():
        begins = begins.replace(place, value)
    return begins


def assert_nothing_is_missed(monkeypatch, text):
    found = told(text)
    with monkeypatch.context() as patch:
        patch.setattr(
            message_reader._WordSearch, "possible", lambda self, small: list(range(len(self._needs)))
        )
        assert told(text) == found
    return found[0]


@pytest.mark.parametrize(
    "changed",
    [str, str.upper, str.lower, lambda text: text.replace(" ", "\n"), lambda text: text.replace(" ", "")],
)
def test_every_message_of_the_tables_is_possible(changed):
    orders = [(order, variant) for order, entry in enumerate(TABLES) for variant in range(len(entry.begins))]
    assert [each[:2] for each in message_reader._BEGINNINGS] == orders
    for number, (order, variant) in enumerate(orders):
        line = f"é\u2019{changed(instance(TABLES[order].begins[variant]))}\u2026"
        assert number in message_reader._BEGINNING_SEARCH.possible(line.lower())


def test_the_words_miss_nothing_of_real_texts(monkeypatch):
    texts = [
        path.read_text(errors="replace") for path in sorted((SHARED / "real" / "messages").glob("*.txt"))
    ]
    texts += [path.read_text(errors="replace") for path in sorted((SHARED / "real" / "logs").glob("*.log"))]
    if not texts:
        pytest.skip("the real messages are not here")
    assert sum(len(assert_nothing_is_missed(monkeypatch, text)) for text in texts) >= 26
    assert_nothing_is_missed(monkeypatch, "\n".join(texts).upper())


def test_a_plain_log_is_searched_for_few_messages():
    rng = random.Random(1)
    lines = [
        f"2026-01-0{rng.randint(1, 9)} 12:{rng.randint(10, 59)} INFO step {step} loss {rng.random():.4f}, "
        f"memory used {rng.random():.2f} GiB"
        for step in range(5_000)
    ]
    text = "\n".join([*lines, "CUDA out of memory. Tried to allocate 2.00 GiB.", *lines[:10]])
    assert (
        len(message_reader._BEGINNING_SEARCH.possible(text.lower())) < len(message_reader._BEGINNINGS) // 20
    )
    assert [text.count("\n", 0, start) for start, *_ in told(text)[0]] == [len(lines)]


@pytest.mark.parametrize(
    ("text", "failures"),
    [
        ("[RMM] [error] [A][Stream 0x3][Upstream 4096B][FAILURE maximum pool size exceeded]", 1),
        ("9 tests passed; maximum pool size exceeded is what test_limit expects", 0),
    ],
)
def test_words_of_rmm_in_a_sentence_are_no_failure(text, failures):
    assert len(read_messages([text.encode()])[0]) == failures


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (" in run", "How much was asked, and how much was free, is not in the text."),
        (" (7 GiB free)", "7.00 GiB were free; how much was asked is not in the text."),
    ],
)
def test_a_free_part_that_the_text_states_is_not_said_to_be_missing(rest, said):
    assert said in " ".join(str(read(f"ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY{rest}")).split())

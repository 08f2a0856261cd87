"""Texts that name an error and tell of no failure, texts in other letters, and processes that a signal ended."""

import pytest

from bfcviz.analysis.message_advice import advise
from bfcviz.analysis.message_verdict import judge
from bfcviz.importers.message_reader import read_messages, read_pasted

MIB = 1 << 20


def told(text):
    """The failures of a text, also of one without any."""
    return read_messages([text.encode()]).failures


@pytest.mark.parametrize(
    "text",
    [
        '    if "CUDA out of memory" in str(error):\n        size //= 2',
        'except RuntimeError as e:\n    if x and "CUDNN_STATUS_ALLOC_FAILED" in str(e): raise',
        '        "CUDA out of memory. Tried to allocate ",\n        format_size(size),',
        'f"CUDA out of memory. Tried to allocate {size} bytes"',
        'with raises(RuntimeError, match="CUDA out of memory. Tried to allocate 3.00 GiB"):',
        'known = [\n    "CUDA out of memory.",  # GPU\n    "DefaultCPUAllocator: can\'t allocate memory",  # C',
        "    CUDA_ERROR_OUT_OF_MEMORY   = 2,",
        "  cudaErrorMemoryAllocation = 2, // enough",
        '    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";',
        "if (status == cudaErrorMemoryAllocation) retry();",
        'logger.warning("CUDA out of memory, once more")',
        '-    raise RuntimeError("CUDA error: out of memory")\n+    raise RuntimeError("CUDA error: out of memory!")',
    ],
)
def test_lines_of_programs_are_no_failures(text):
    assert told(f"{text}\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "| `CUDA_ERROR_OUT_OF_MEMORY` | 2 | too little memory |",
        "- Fix `CUDA error: out of memory` of the second model",
        "- Handle RESOURCE_EXHAUSTED: Out of memory while trying to allocate in the server",
        'XLA_FLAG=.5: where you see "RESOURCE_EXHAUSTED: Out of memory while trying to allocate" errors, lower it.',
        "For example, OOM when allocating tensor with shape[...]",
        'I read that "CUDA out of memory" can come from a large batch.',
        "  --retry   once more when `CUDA out of memory` is raised",
        '--share  If you see "No available memory for the cache blocks", raise it.',
        "Error in memory profiling can come from another process.",
        'Known: "No available memory for the cache blocks" means: raise it.\nRuntimeError: no kernel image',
        "If it prints `exitcode: -9`, read on.",
        "Memory: Allocation on device is lazy; see Allocation on device and host.",
        "memory allocation on device is lazy",
        "The runtime returns cudaErrorMemoryAllocation when it cannot serve a request.",
        "CUBLAS_STATUS_ALLOC_FAILED: Resource allocation failed inside the cuBLAS library.",
        'We do not see "CUDA error: out of memory" after the last change.',
        'With 2.3 there is no "RuntimeError: CUDA error: out of memory" any more, thanks.',
        'No "CUDA out of memory" here, but\nRuntimeError: CUDA error: device-side assert triggered',
    ],
)
def test_documentation_and_prose_are_no_failures(text):
    assert told(f"{text}\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "训练顺利完成\uff0c没有出现 CUDA out of memory。",
        "CUDA out of memory は発生しませんでした。",
        "次のエラーが出たら、小さくしてください: RuntimeError: CUDA out of memory.",
        "INFO no OOM so far (0 CUDA out of memory errors in 10000 steps)",
        'What does "Tried to allocate" mean in a CUDA out of memory message?',
        "What is the difference between RuntimeError: CUDA out of memory and RuntimeError: CUDA error: out of memory?",
        'add_argument("--retry", action="store_true", help="retry with half if CUDA out of memory")',
        'add_argument("--retry", help="after CUDA out of memory: once more")',
        "catch RuntimeError as e:\n  # RuntimeError: CUDA error: out of memory\n  pass",
        "// RuntimeError: CUDA error: out of memory\nretry();",
        "#SBATCH --mem=64G\n# slurmstepd: error: Detected 1 oom-kill event(s) -> raise --mem\nsrun a",
        (
            'RE = re.compile(r"CUDA out of memory\\. Tried to allocate ([0-9.]+) MiB")\n'
            'assert RE.search("CUDA out of memory. Tried to allocate 20.00 MiB")'
        ),
        "CL_OUT_OF_RESOURCES = -5,\nHSA_STATUS_ERROR_OUT_OF_RESOURCES = 0x1008,",
        "## 2.4.1\n* `RuntimeError: MPS backend out of memory` now suggests --lowvram",
        "| RuntimeError: CUDA error: out of memory | the GPU is full |\n| CUBLAS_STATUS_ALLOC_FAILED | no room |",
        "If you see torch.cuda.OutOfMemoryError: CUDA out of memory, lower the batch size.",
        "### torch.cuda.OutOfMemoryError: CUDA out of memory\n\nIf you see this error, lower `--batch-size`.",
        "If a container exceeds its limit, Kubernetes reports the reason OOMKilled with exit code 137.",
        "<alice> lol I got Killed by the boss again\n<bob> Killed",
        "mutation: Killed\nerror handling returned in 3 tests",
        "[12:00:33] Player1 was slain by Zombie\nKilled\n[12:00:40] Player1 respawned",
        (
            "commit 1234567\n    Fix cudaErrorMemoryAllocation in texture creation\n\n"
            "    terminate called after throwing an instance of 'std::bad_alloc' was thrown when N > 2^31."
        ),
        'WARNING! This may cause "CL_OUT_OF_RESOURCES" or other errors.',
        'msgid "Your session crashed after using all available RAM."',
    ],
)
def test_an_error_that_did_not_occur_is_no_failure(text):
    assert told(f"{text}\n") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("RuntimeError: CUDA out of memory. 请问怎么解决\uff1f", "torch-cuda"),
        ("显存没有用完\uff0cCUDA out of memory", "torch-cuda"),
        ("CUDA out of memory が解決できませんでした", "torch-cuda"),
        ("学習を実行したら、CUDA out of memory になりました", "torch-cuda"),
        ("What does this mean: RuntimeError: CUDA out of memory", "torch-cuda"),
        ("rank 0 CUDA out of memory", "torch-cuda"),
        ("GPU 0 CUDA out of memory errors", "torch-cuda"),
        ("# RuntimeError: CUDA out of memory\n\nIt ends after one epoch.", "torch-cuda"),
        ("### RuntimeError: CUDA out of memory\n\nThis error occurs when I train.", "torch-cuda"),
        ('#   File "a.py", line 3\n#     y = f(x)\n# RuntimeError: CUDA error: out of memory', "cuda-call"),
        ("* RuntimeError: CUDA out of memory", "torch-cuda"),
        ("  | RuntimeError: CUDA error: out of memory", "cuda-call"),
        ("If I use a batch of 8, I get RuntimeError: CUDA out of memory", "torch-cuda"),
        ("How to avoid RuntimeError: CUDA out of memory?", "torch-cuda"),
        ("If you see my log: it ends with RuntimeError: CUDA out of memory", "torch-cuda"),
        ("The difference between both runs: the second has CUDA out of memory", "torch-cuda"),
        ("I cannot train it without CUDA out of memory", "torch-cuda"),
        ("CUDA out of memory が出ないようにしたい", "torch-cuda"),
        ("以前没有遇到 CUDA out of memory", "torch-cuda"),
        ("| CUDA out of memory | 8 | 24 GB |", "torch-cuda"),
        ("If the data set is large, the job exited with code 137", "host-exit"),
        ("[10:00] <stderr> 3.25\n$ ./a\nKilled", "host-shell"),
        (
            "step...4255 done\ndone\nKilled\n[ERROR] quitting:\n\t/a/b -0 returned with code 35072.",
            "host-shell",
        ),
    ],
)
def test_a_report_in_other_words_is_a_failure(text, message):
    (found,) = told(f"{text}\n")
    assert found.message == message


def test_a_heading_is_not_counted_beside_the_message():
    (found,) = told(f"How to avoid RuntimeError: CUDA out of memory.\n\n{OLD}\n")
    assert (found.line, found.count) == (3, 1)


@pytest.mark.parametrize(
    "text",
    [
        "my cudaMalloc returns cudaErrorMemoryAllocation",
        "It fails with CUBLAS_STATUS_ALLOC_FAILED: what can I do?",
        "I get CUDA error: out of memory since the update, and it was not so before.",
        'after a while the editor crashes and shows "out of video memory trying to allocate a rendering resource"',
        "It does 50 views before hitting `a failed in clCreateBuffer with error code=-4`. I am on Linux.",
    ],
)
def test_what_a_person_reports_is_a_failure(text):
    assert len(told(f"{text}\n")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CUDA out of memory.", "torch-cuda"),
        ("RuntimeError: CUDA out of memory", "torch-cuda"),
        ("I get CUDA out of memory", "torch-cuda"),
        ('"RuntimeError: CUDA out of memory"', "torch-cuda"),
        ("RuntimeError('CUDA out of memory')", "torch-cuda"),
        ('{"error": "CUDA out of memory", "step": 4}', "torch-cuda"),
        ('level=ERROR error="CUDA out of memory" source=server.go', "torch-cuda"),
        ('cuMemAlloc failed with "CUDA_ERROR_OUT_OF_MEMORY" (2)', "cuda-call"),
        ("I read `RuntimeError: CUDA error: out of memory` in the log", "cuda-call"),
        ("Allocation on device \nThis error means that memory is full", "torch-async"),
        ("Allocation on device 0 would exceed allowed memory. (out of memory)", "torch-async"),
        ('  File "a.py", line 3, in f\n    raise RuntimeError("CUDA out of memory")', "torch-cuda"),
        ("OOM when allocating tensor with shape[8,4] and type q", "tf-tensor"),
    ],
)
def test_errors_without_numbers_are_failures(text, message):
    (found,) = read_pasted(f"{text}\n").failures
    assert found.message == message


def test_a_sentence_does_not_hide_what_a_program_printed():
    signal = "launch: ['python', 'a.py'] exits with return code = -9\n"
    (found,) = told(f"I never see any CUDA out of memory, it just ends:\n{signal}")
    assert (found.message, found.line) == ("host-signal", 2)
    code = '  File "a.py", line 9, in f\n    if "CUDA out of memory" in str(e): raise\n'
    (found,) = told(
        f"{code}RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(h)`\n"
    )
    assert (found.message, found.line) == ("cuda-call", 3)
    (found,) = told(f"RuntimeError: CUDA out of memory\n{signal}")
    assert found.message == "torch-cuda"


OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 48.00 MiB (GPU 0; 6.00 GiB total capacity; 5.00 GiB already "
    "allocated; 0 bytes free; 5.50 GiB reserved in total by PyTorch)"
)


@pytest.mark.parametrize(
    "text", [OLD.lower(), OLD.upper(), f"\u0130 {OLD.lower()}"], ids=["small", "capital", "wide"]
)
def test_a_text_in_other_letters_is_read(text):
    (found,) = read_pasted(f"{text}\n").failures
    (same,) = read_pasted(f"{OLD}\n").failures
    assert (found.message, found.framework, found.facts) == (same.message, same.framework, same.facts)
    assert found.facts["requested"] == 48 * MIB


def test_other_letters_do_not_hide_a_message():
    (found,) = told("runtimeerror: cuda error: out of memory\n")
    assert (found.message, judge(found).second) == ("cuda-call", "capacity")
    (found,) = told(f"cuda out of memory\n{OLD}\n")
    assert (found.line, found.facts["requested"], found.count) == (2, 48 * MIB, 1)


def test_a_signal_does_not_say_who_sent_it():
    (found,) = told("$ kill -9 77\nexitcode: -9\n")
    judged = judge(found)
    assert (judged.cause, judged.second) == ("unknown", "host_memory")
    assert "by a person" in judged.sentence
    first, second = advise(found, judged)
    assert "dmesg" in first.text
    assert second.text.startswith("If system memory ran out")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "kernel: Out of memory: Killed process 12 (mysqld) total-vm:8kB, anon-rss:4kB, file-rss:0kB",
            "mysqld",
        ),
        ("Out of memory: Kill process 12 (java) score 800 or sacrifice child", "java"),
        ("Memory cgroup out of memory: Killed process 12 (redis server) total-vm:8kB", "redis server"),
        ("oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=nginx,pid=12,uid=0", "nginx"),
    ],
)
def test_the_system_names_what_it_ended(text, name):
    (found,) = read_pasted(f"{text}\n").failures
    judged = judge(found)
    assert (judged.cause, found.op) == ("host_memory", name)
    assert f"ended {name} because" in judged.sentence
    assert f"If {name} is not your program" in judged.sentence
    assert ("reached its limit" in judged.sentence) == ("cgroup" in text)
    (advice,) = advise(found, judged)
    assert name in advice.text
    assert "data loader" not in advice.text


def test_a_python_program_that_the_system_ended():
    (found,) = told(
        "Out of memory: Killed process 12 (python3.11) total-vm:8000000kB, anon-rss:4000000kB, file-rss:0kB\n"
    )
    (advice,) = advise(found, judge(found))
    assert "data loader" in advice.text


@pytest.mark.parametrize(
    ("name", "shown", "kib"), [("python3", "python3", 5000), ("(a-daemon)", "(a-daemon)", 4000)]
)
def test_a_small_process_that_the_system_ended_does_not_fill_its_memory(name, shown, kib):
    text = f"Out of memory: Killed process 12 ({name}) total-vm:99000kB, anon-rss:{kib}kB, file-rss:0kB\n"
    (found,) = told(text)
    judged = judge(found)
    assert (judged.cause, found.op, found.fact("process_in_use")) == ("host_memory", shown, kib << 10)
    assert "another process, or the kernel" in judged.sentence
    (advice,) = advise(found, judged)
    assert "data loader" not in advice.text
    assert "slabtop" in advice.text


def test_the_reaper_names_what_the_system_ended():
    (found,) = told(
        "kernel: a-tool invoked oom-killer: gfp_mask=0x140cca, order=0\n"
        "kernel: oom_reaper: reaped process 77 (train_net), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB\n"
    )
    assert (judge(found).cause, found.op) == ("host_memory", "train_net")
    assert "ended train_net" in judge(found).sentence
    assert "process_in_use" not in found.facts

"""Texts of systems that ended a process, of refused system memory, and of servers, libraries and fixed buffers."""

import pytest

from bfcviz.analysis.message_advice import AdviceWord
from bfcviz.analysis.message_answer import StatedAnswer, StatedFailureAnswer
from bfcviz.errors import FileError
from bfcviz.importers.message_reader import read_messages, read_pasted

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SYSTEM, RECORD = AdviceWord.SYSTEM_MEMORY, AdviceWord.RECORD
LESS, CACHE = AdviceWord.SMALLER_REQUEST, AdviceWord.KV_CACHE
OTHERS, LIBRARIES = AdviceWord.OTHER_PROCESSES, AdviceWord.PREALLOCATION
FREE = AdviceWord.FREE_CACHE

HOST, MAYBE_HOST = "host_memory", "unknown: host_memory"
MAYBE_FULL, MAYBE_OTHERS = "unknown: capacity", "unknown: other_process"

# Text, framework, verdict, its numbers, a part of its sentence, and what the first advice is about.
TEXTS = [
    # Ended by a signal: who sent it is not in the text.
    ("Exit Code: 137", "Linux", MAYBE_HOST, {}, "137 is 128 + 9", RECORD),
    ("      exitCode: 137", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("trainer-1 exited with code 137", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("Process finished with exit code 137 (interrupted by signal 9)", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("make: *** [Makefile:3: train] Error 137", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("Command '['a']' died with <Signals.SIGKILL: 9>.", "Linux", MAYBE_HOST, {}, "by a person", RECORD),
    ("The exit codes of the workers are {EXIT(1), SIGKILL(-9)}", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("ProcessExitedException: process 1 terminated with signal SIGKILL", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("Error: llama runner process has terminated: signal: killed", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("zsh: killed     python train.py", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("run.sh: line 7: 4711 Killed                  python train.py", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("Loading: 33%|###  | 1/3\nKilled", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    (" 6%|##   | 37/62 [04:47<1:10, 1.2it/s]Killed\n\nThanks.", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("Epoch 0/1\nlr = 1.00e-05\nKilled\n\nWhat may be the reason?", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ('"task: non-zero exit (137)"', "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("[rank1]: step 4, loss 0.5\n[rank1]: Killed", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("$ python train.py\nKilled\n(base) me@box:~$ ", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("torch.bfloat16 --> float32, 35\nKilled`", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("process rank 3 with PID 0 on node n1 exited on signal 9 (Killed).", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("c++: fatal error: Killed signal terminated program cc1plus", "Linux", MAYBE_HOST, {}, "SIGKILL", SYSTEM),
    ("INFO - Task exited with return code Negsignal.SIGKILL", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("nanny - INFO - Worker process 4161 was killed by signal 9", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("fish: Job 1, 'a' terminated by signal SIGKILL (Forced quit)", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("a.service: Main process exited, code=killed, status=9/KILL", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("exit_status  : 137          (Killed)", "Linux", MAYBE_HOST, {}, "137 is 128 + 9", RECORD),
    ('"OOMKilled": false,\n"ExitCode": 137,', "Linux", MAYBE_HOST, {}, "is false in the text", RECORD),
    ("$ timeout -s KILL 5 ./bench\nKilled\n$ echo $?\n137", "Linux", "unknown: not_lack_of_memory", {},
     "when the time is over", RECORD),
    ("The kernel appears to have died. It will restart.", "Jupyter", MAYBE_HOST, {}, "a crash of a library", SYSTEM),
    ("The kernel for a.ipynb appears to have died.", "Jupyter", MAYBE_HOST, {}, "without a word", SYSTEM),
    # A limit of system memory.
    (("systemd[1]: a.service: A process of this unit has been killed by the OOM killer.\n"
      "systemd[1]: a.service: Main process exited, code=killed, status=9/KILL\n"
      "systemd[1]: a.service: Failed with result 'oom-kill'."),
     "systemd", HOST, {}, "a process of a unit", SYSTEM),
    ("370626      train OUT_OF_ME+    0:125       64G", "Slurm", HOST, {}, "its limit", SYSTEM),
    ("=>> PBS: job killed: mem 68157440kb exceeded limit 67108864kb",
     "PBS", HOST, {"memory_used": 65 * GIB, "memory_total": 64 * GIB}, "65.00 GiB of 64.00 GiB", SYSTEM),
    ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 137.",
     "LSF", HOST, {}, "LSF ended it", SYSTEM),
    ("Your notebook tried to allocate more memory than is available.", "Kaggle", HOST, {}, "its machine", SYSTEM),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in step 3.batch cgroup", "Slurm", HOST, {}, "its limit", SYSTEM),
    ("slurmstepd: error: Detected 2 oom_kill events in StepId=3.0.", "Slurm", HOST, {}, "its limit", SYSTEM),
    ("srun: error: n6: task 0: Out Of Memory", "Slurm", HOST, {}, "not GPU memory", SYSTEM),
    ("State: OUT_OF_MEMORY (exit code 0)", "Slurm", HOST, {}, "not GPU memory", SYSTEM),
    ("slurmstepd: error: Job 3 exceeded memory limit (2048 > 1024), being killed",
     "Slurm", HOST, {"memory_used": 2 * MIB, "memory_total": MIB}, "2.00 MiB of 1.00 MiB", SYSTEM),
    ("slurmstepd: error: Exceeded step memory limit at some point.", "Slurm", MAYBE_HOST, {}, "ended well", SYSTEM),
    ("  Reason:       OOMKilled\n  Exit Code:    137", "Kubernetes", HOST, {}, "A container", SYSTEM),
    ('"State": {"OOMKilled": true, "ExitCode": 137}', "Docker", HOST, {}, "A container", SYSTEM),
    ("trainer-0   0/1     OOMKilled   3 (10m ago)   5m", "Kubernetes", HOST, {}, "A container", SYSTEM),
    ("The node was low on resource: memory. Threshold: 100Mi", "Kubernetes", HOST, {}, "its node", SYSTEM),
    (("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node "
      "(IP: 10.0.0.1, ID: 8c5a) where the task (task ID: 41617bc7, name=load, pid=548, memory used=12.00GB) was "
      "running was 20.00GB / 32.00GB (0.625), which exceeds the memory usage threshold of 0.6."),
     "Ray", HOST, {"process_in_use": 12 * GIB, "memory_used": 20 * GIB, "memory_total": 32 * GIB},
     "20.00 GiB of 32.00 GiB", SYSTEM),
    (("(raylet) node_manager.cc:3064: 12 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers "
      "crashed due to other reasons at node (ID: b8aad7ac)"),
     "Ray", HOST, {"killed_workers": 12}, "Ray ended workers", SYSTEM),
    ("Container killed by YARN for exceeding memory limits. 17.5 GB of 16 GB physical memory used.",
     "YARN", HOST, {"memory_used": 35 * GIB // 2, "memory_total": 16 * GIB}, "17.50 GiB of 16.00 GiB", SYSTEM),
    ("Worker tcp://127.0.0.1:4 (pid=12) exceeded 95% memory budget. Restarting...", "Dask", HOST, {}, "nanny", SYSTEM),
    ("KilledWorker: Attempted to run task ('f', 3) on 3 different workers, but all those workers died while",
     "Dask", MAYBE_HOST, {}, "most often", SYSTEM),
    (("systemd-oomd[8]: Killed /user.slice due to memory used (15884398592) / total (16509730816) and swap used "
      "(3925868544) / total (4294963200) being more than 90.00%"),
     "systemd-oomd", HOST, {"memory_used": 15884398592, "memory_total": 16509730816}, "14.79 GiB of 15.38 GiB",
     SYSTEM),
    ("Your session crashed after using all available RAM.", "Colab", HOST, {}, "its machine", SYSTEM),
    ("[ 6.4] python3 invoked oom-killer: gfp_mask=0x140cca, order=0", "Linux", HOST, {}, "later line names", SYSTEM),
    # Refused system memory.
    ("unable to write to file </torch_1_5>: No space left on device (28)", "Linux", HOST, {}, "shm) is full", SYSTEM),
    (("n1:3:3 [2] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-A1 to 8388608 bytes, error: "
      "No space left on device (28)"),
     "Linux", HOST, {"requested": 8 * MIB}, "shm) is full", SYSTEM),
    ("RuntimeError: unable to mmap 4096 bytes from file </torch_1_6>: Cannot allocate memory (12)",
     "Linux", MAYBE_HOST, {"requested": 4096}, "number of its mappings", SYSTEM),
    ("OSError: [Errno 12] Cannot allocate memory", "Linux", MAYBE_HOST, {}, "error 12", SYSTEM),
    ("OSError: Cannot allocate memory (os error 12)", "Linux", MAYBE_HOST, {}, "error 12", SYSTEM),
    ("Os { code: 12, kind: OutOfMemory, message: ", "Linux", MAYBE_HOST, {}, "error 12", SYSTEM),
    ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1152921504606846976 bytes. Error code 12",
     "PyTorch CPU", "request_exceeds_device: None", {"requested": 1 << 60}, "1.00 EiB of system memory",
     AdviceWord.SHAPE_BUG),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "C++", MAYBE_HOST, {}, "most often", SYSTEM),
    ('  File "a.py", line 3, in f\n    x = [0] * n\nMemoryError', "Python", HOST, {}, "not GPU memory", SYSTEM),
    ("<ipython-input-1> in <module>\n----> 1 x = [0] * n\n\nMemoryError: ", "Python", HOST, {}, "refused", SYSTEM),
    ("memory allocation of 8589934592 bytes failed", "Rust", HOST, {"requested": 8 * GIB}, "8.00 GiB", SYSTEM),
    ("cv2.error: OpenCV(4.8.0) alloc.cpp:73: error: (-4:Insufficient memory) Failed to allocate 6291456 bytes in",
     "OpenCV", HOST, {"requested": 6 * MIB}, "6.00 MiB of system", SYSTEM),
    ("CPU memory allocation failed n=8055160832", "DyNet", HOST, {"requested": 8055160832}, "7.50 GiB", SYSTEM),
    ("lightgbm.basic.LightGBMError: Out of Host Memory", "LightGBM", HOST, {}, "not GPU memory", SYSTEM),
    ("MemoryError: Unable to allocate 201. GiB for an array with shape (2999, 2999, 2999) and data type int64",
     "NumPy", HOST, {"requested": 2999**3 * 8}, "200.96 GiB", None),
    ("MemoryError: Unable to allocate array with shape (9681, 9681) and data type float64",
     "NumPy", HOST, {"requested": 9681**2 * 8}, "715.04 MiB", SYSTEM),
    (  # cut before its shape: not known as NumPy's
        "Unable to allocate 139. MiB for an array",
        "Unknown program",
        "unknown: None",
        {"requested": 139 << 20},
        "whether of the system or of the GPU",
        SYSTEM,
    ),
    (('level=WARN msg="model request too large for system" requested="5.5 GiB" available="3.4 GiB" total="6.0 GiB" '
       'free="3.4 GiB" swap="0 B"'),
     "Ollama", HOST, {"requested": 11 * GIB // 2, "available": 3650722202, "memory_total": 6 * GIB, "swap": 0},
     "3.40 GiB of it are free", SYSTEM),
    ("State: OUT_OF_MEMORY (exit code 0)\nMemory Utilized: 63.20 GB\nMemory Efficiency: 98.75% of 64.00 GB",
     "Slurm", HOST, {"memory_used": round(63.2 * GIB), "memory_total": 64 * GIB}, "63.20 GiB of 64.00 GiB", SYSTEM),
    (("JobID           State     ReqMem     MaxRSS\n------------ ---------- ---------- ----------\n"
      "7            OUT_OF_ME+        16G           \n7.batch      OUT_OF_ME+             16252928K"),
     "Slurm", HOST, {"memory_used": 31 * GIB // 2, "memory_total": 16 * GIB}, "15.50 GiB of 16.00 GiB", SYSTEM),
    ("JobID|State|ReqMem|MaxRSS|\n7|OUT_OF_MEMORY|16Gn||\n7.batch|OUT_OF_MEMORY|16Gn|16252928K|",
     "Slurm", HOST, {"memory_used": 31 * GIB // 2, "memory_total": 16 * GIB}, "15.50 GiB of 16.00 GiB", SYSTEM),
    ("JobState=OUT_OF_MEMORY Reason=OutOfMemory", "Slurm", HOST, {}, "its limit", SYSTEM),
    ("srun: error: n4: tasks 0-3: Out Of Memory", "Slurm", HOST, {}, "its limit", SYSTEM),
    ("Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes.",
     "Ray", MAYBE_HOST, {}, "without a word", SYSTEM),
    ("=   EXIT STRING: Killed (signal 9)", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("srun: error: n4: tasks 0-3: Killed", "Linux", MAYBE_HOST, {}, "SIGKILL", RECORD),
    ("exit_status  137\nmaxvmem      65.000G\ncategory     -l h_vmem=64G",
     "Linux", HOST, {"memory_used": 65 * GIB, "memory_total": 64 * GIB}, "65.00 GiB of the 64.00 GiB", RECORD),
    ("Out of Memory Error: failed to allocate data of size 256.0 MiB (260.0 MiB/476.0 MiB used)",
     "DuckDB", HOST, {"requested": 256 * MIB, "memory_used": 260 * MIB, "memory_total": 476 * MIB},
     "260.00 MiB of 476.00 MiB", SYSTEM),
    ("Out of Memory Error: could not allocate block of 262144 bytes",
     "DuckDB", HOST, {"requested": 256 * KIB}, "memory_limit", SYSTEM),
    ("pyarrow.lib.ArrowMemoryError: realloc of size 2147483648 failed", "Arrow", HOST, {"requested": 2 * GIB}, "2.00",
     SYSTEM),
    ("Error: cannot allocate vector of size 7.5 Gb", "R", HOST, {"requested": 15 * GIB // 2}, "7.50 GiB", SYSTEM),
    ("Error: vector memory exhausted (limit reached?)", "R", HOST, {}, "that it keeps to", SYSTEM),
    ("Error: vector memory limit of 16.0 Gb reached, see", "R", HOST, {"memory_total": 16 * GIB}, "the limit", SYSTEM),
    ('Out of memory. Type "help memory" for your options.', "MATLAB", HOST, {}, "not GPU memory", SYSTEM),
    ("Requested 100000x100000 (74.5GB) array exceeds maximum array size preference (31.9GB).",
     "MATLAB", "request_exceeds_limit: host_memory", {"requested": round(74.5 * GIB), "limit": round(31.9 * GIB)},
     "at most 31.90 GiB", SYSTEM),
    (('Kokkos failed to allocate memory for label "x". Allocation using MemorySpace named "Host" failed with the '
      "following error: Allocation of size 24.5 G failed, likely due to insufficient memory."),
     "Kokkos", HOST, {"requested": 49 * GIB // 2}, "24.50 GiB of system", SYSTEM),
    # Calls beside the allocator of a framework.
    (('Kokkos failed to allocate memory for label "x". Allocation using MemorySpace named "Cuda" failed with the '
      "following error: Allocation of size 64 K failed because of an unknown error."),
     "Kokkos", "not_lack_of_memory: None", {"requested": 64 * KIB}, "another error", AdviceWord.DRIVER_BUG),
    (("ERROR TDRV:dmem_alloc_internal Failed to alloc DEVICE memory: 524288000\n"
       'RuntimeError: nrt_tensor_allocate status=4 message="Allocation Failure"'),
     "AWS Neuron", MAYBE_FULL, {"requested": 500 * MIB}, "500.00 MiB were refused", LESS),
    ("Could not load the model status=4 message=Allocation Failure", "AWS Neuron", MAYBE_FULL, {}, "device", LESS),
    ("RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::268435456 (256)MB",
     "Intel Gaudi", MAYBE_FULL, {"requested": 256 * MIB}, "256.00 MiB were refused", LESS),
    ("Out of memory on device. To view more detail about available memory on the GPU, use 'gpuDevice()'.",
     "MATLAB", MAYBE_FULL, {}, "the device", LESS),
    (("[GPU] Exceeded max size of memory object allocation: requested 4831838208 bytes, but max alloc size "
      "supported by device is 1073741824 bytes."),
     "OpenVINO", "request_exceeds_limit: driver_refused_with_memory_free", {"requested": 9 * GIB // 2, "limit": GIB},
     "One buffer of 4.50 GiB", LESS),
    ("clWaitForEvents, error code: -5 CL_OUT_OF_RESOURCES", "OpenCL", MAYBE_FULL, {}, "a kernel that failed", LESS),
    ("[TM][ERROR] CUDA runtime error: out of memory x.cu:7", "LMDeploy", MAYBE_FULL, {}, "KV cache", CACHE),
    ("cuCtxCreate failed: out of memory", "CUDA", MAYBE_OTHERS, {}, "could not make a context", OTHERS),
    ("CUDA error at cuCtxCreate: Out of memory", "CUDA", MAYBE_OTHERS, {}, "could not make a context", OTHERS),
    ("cuMemHostAlloc failed: out of memory", "CUDA", MAYBE_HOST, {}, "pinned system memory", SYSTEM),
    ("[HAMI-core ERROR (pid:3 thread=4 allocator.c:53)]: Device 0 OOM 3221225472 / 2147483648",
     "HAMi", "cap_by_setting: capacity", {"total_with_request": 3 * GIB, "limit": 2 * GIB},
     "1.00 GiB more than the 2.00 GiB", AdviceWord.RAISE_LIMIT),
    ("[HAMI-core ERROR (pid:3 thread=4 allocator.c:53)]: Device 0 OOM 18446744073707737660 / 2147483648",
     "HAMi", "unknown: cap_by_setting", {"limit": 2 * GIB}, "its counter is wrong", AdviceWord.DRIVER_BUG),
    ("allocator.c:115)]: cuMemoryAllocate failed res=2", "CUDA", MAYBE_FULL, {}, "The driver refused", LESS),
    ("CUDA error 2 in file a/Arena.cpp line 169: out of memory !!!", "CUDA", MAYBE_FULL, {}, "The driver", LESS),
    ("arena.cc:250] Init] cudaHostAlloc failed, ret[2], out of memory", "CUDA", MAYBE_HOST, {}, "pinned", SYSTEM),
    ("ERROR: HIPError(code hipErrorOutOfMemory, out of memory)\n [3] Runtime.Mem.HostBuffer(bytesize::Int64)",
     "ROCm", MAYBE_HOST, {}, "pinned system memory", SYSTEM),
    ("MemoryError: Cannot allocate 2147483648 bytes: no memory is available.",
     "tinygrad", MAYBE_FULL, {"requested": 2 * GIB}, "2.00 GiB were refused", LESS),
    ("Requested texture size [6567x6567] greater than WebGL maximum on this browser / GPU [4096x4096].",
     "TensorFlow.js", "request_exceeds_limit: driver_refused_with_memory_free", {}, "more than the driver allows",
     LESS),
    ("Caused by:\n    In Device::create_buffer\n      note: label = `a b`\n    Not enough memory left",
     "WebGPU", MAYBE_FULL, {}, "the device", LESS),
    (("Device store exhausted, unable to allocate 4294967296 bytes. Total RMM allocated is 2147483648 bytes.\n"
      "SplitAndRetryOOM: GPU OutOfMemory: could not split inputs and retry"),
     "Spark RAPIDS", MAYBE_FULL, {"requested": 4 * GIB, "reserved": 2 * GIB}, "4.00 GiB were refused", LESS),
    ("CpuSplitAndRetryOOM: CPU OutOfMemory: could not split inputs and retry", "Spark RAPIDS", HOST, {}, "not GPU",
     SYSTEM),
    ("bm_alloc_gmem failed, dev_id = 0, size = 0xc0fb4000", "Sophgo",
     MAYBE_FULL, {"requested": 0xC0FB4000}, "device", LESS),
    ("Memory_Allocation_Failure(EL0004): GE.\nCall rtMalloc fail, purpose: page, type = 2, size:4294967296, dev",
     "Ascend CANN", MAYBE_FULL, {"requested": 4 * GIB}, "4.00 GiB", LESS),
    ("Failed to allocate 1048576 bytes from DEVICE [0] memory", "GPU program", MAYBE_FULL, {"requested": MIB},
     "1.00 MiB", LESS),
    ("Can't allocate [HOST] memory: 4194304; threadId: 1;", "ND4J", HOST, {}, "not GPU memory", SYSTEM),
    ("java.lang.OutOfMemoryError: Java heap space", "Java", HOST, {}, "the heap", SYSTEM),
    ("OutOfMemoryError: Physical memory usage is too high: physicalBytes (6144M) > maxPhysicalBytes (5120M)",
     "Java", HOST, {"memory_used": 6 * GIB, "memory_total": 5 * GIB}, "6.00 GiB of 5.00 GiB", SYSTEM),
    ("NVRM: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)", "NVIDIA driver", MAYBE_HOST, {}, "kernel",
     SYSTEM),
    ("NVRM: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)\nkernel: TIMER invoked oom-killer: gfp_mask=0x140cca",
     "Linux", HOST, {}, "later line names", SYSTEM),
    ('whisper_model_load: x\nGGML_ASSERT: D:\\a\\ggml-backend.c:460: data != NULL && "failed to allocate buffer"',
     "whisper.cpp", HOST, {}, "not GPU memory", SYSTEM),
    ("ggml_vulkan: Device memory allocation of size 4294967296 failed.\n[ERROR] ggml_extend.hpp:7 - buffer failed",
     "stable-diffusion.cpp", MAYBE_FULL, {"requested": 4 * GIB}, "4.00 GiB", AdviceWord.SMALLER_MODEL),
    ("program executable - Out of host memoryError", "TensorFlow Lite", HOST, {}, "not GPU", SYSTEM),
    ("what(): Error: CPU can't allocate memory. Tried to allocate 1490116.1 GB",
     "OneFlow", "request_exceeds_device: None", {"requested": 1599999979185766}, "no system has so much", SYSTEM),
    ("0: ALLOCATE: 4096 bytes requested; not enough memory", "Fortran", HOST, {"requested": 4096}, "4.00 KiB", SYSTEM),
    ("ERROR on proc 1: Failed to allocate -156019200 bytes for array _n (src/memory.cpp:64)",
     "Program on the CPU", "request_exceeds_device: None", {"below_zero": 156019200}, "156,019,200 bytes below zero:",
     AdviceWord.SHAPE_BUG),
    # A status that is not only one of memory.
    ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.",
     "XLA", MAYBE_FULL, {"requested": GIB}, "1.00 GiB were refused", LESS),
    ("StatusCode.RESOURCE_EXHAUSTED\ndetails = 'Received message larger than max (17777780 vs. 4194304)'",
     "gRPC", "not_lack_of_memory: None", {"requested": 17777780, "limit": 4 * MIB}, "no memory was refused",
     AdviceWord.RAISE_LIMIT),
    ("429 RESOURCE_EXHAUSTED. {'error': 1}", "gRPC", "not_lack_of_memory: None", {}, "a quota", AdviceWord.RAISE_LIMIT),
    ("RESOURCE_EXHAUSTED: ", "Unknown program", "unknown: None", {}, "something ran out", RECORD),
    # A table of the compiler without its first line.
    ("Exceeded hbm capacity by 6.00G.\nTotal hbm usage >= 22.50G:\n    reserved 512.00M\n    program 22.00G",
     "XLA TPU", "request_exceeds_device: request_exceeds_limit",
     {"program": 22 * GIB, "exceeded": 6 * GIB, "total_usage": 45 * GIB // 2, "system_reserved": 512 * MIB},
     "6.00 GiB more than a core can use", None),
    ("Total hbm usage >= 22.50G:\n    program 22.00G", "XLA TPU", "unknown: request_exceeds_device",
     {"program": 22 * GIB, "total_usage": 45 * GIB // 2}, "which is missing", None),
    ("RuntimeError: CUDA driver error: out of memory", "PyTorch CUDA", MAYBE_FULL, {}, "expandable", LESS),
    ("Vulkan Error, code=-2: VK_ERROR_OUT_OF_DEVICE_MEMORY", "Vulkan", MAYBE_FULL, {}, "driver", LESS),
    ("[carb.graphics] VkResult: ERROR_OUT_OF_DEVICE_MEMORY", "Vulkan", MAYBE_FULL, {}, "driver", LESS),
    ("Memory_Allocation_Failure(EL0004): Failed to allocate", "Ascend CANN", MAYBE_FULL, {}, "the device", LESS),
    ("RuntimeError: Failed to allocate private MTLBuffer for size 4831838208",
     "PyTorch MPS", MAYBE_FULL, {"requested": 9 * GIB // 2}, "only the GPU uses", LESS),
    (("n7:8:4 [5] include/alloc.h:264 NCCL WARN Cuda failure 2 'out of memory'\n\n"
      "n7:8:4 [5] include/alloc.h:271 NCCL WARN Failed to CUDA calloc async 10485760 bytes"),
     "CUDA", MAYBE_OTHERS, {"requested": 10 * MIB}, "NCCL asked the driver for 10.00 MiB", OTHERS),
    ("[rank3]: Last error:\n[rank3]: Cuda failure 2 'out of memory'", "CUDA", MAYBE_OTHERS, {}, "NCCL", OTHERS),
    ("RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED", "PyTorch CUDA", MAYBE_FULL, {}, "outside", FREE),
    ("RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
     "PyTorch CUDA", MAYBE_FULL, {}, "outside", FREE),
    (("  File 'pin_memory.py', line 58, in pin_memory\n    return data.pin_memory(device)\n"
      "RuntimeError: CUDA error: out of memory"),
     "CUDA", MAYBE_HOST, {}, "pinned system memory", SYSTEM),
    ("RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCCachingHostAllocator.cpp:278",
     "PyTorch CUDA", MAYBE_HOST, {}, "pinned system memory", SYSTEM),
    ("(EngineCore_0 pid=3) CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:56",
     "vLLM", MAYBE_FULL, {}, "sleep mode", FREE),
    (("[E:onnxruntime:Default, cuda_call.cc:118 CudaCall] CUDA failure 2: out of memory ; GPU=0 ; hostname=a ; "
      "file=/a/cuda/cuda_allocator.cc ; line=47 ; expr=cudaMalloc((void**)&p, size);"),
     "ONNX Runtime", MAYBE_FULL, {}, "ONNX Runtime asked the driver", LESS),
    ("onnxruntime::CudaCall CUDA failure 2: out of memory ; GPU=0 ; hostname=a ; expr=cudaStreamCreateWithFlags(&s)",
     "ONNX Runtime", MAYBE_OTHERS, {}, "outside", OTHERS),
    (('Kokkos failed to allocate memory for label "A". Allocation of size 4.5 G failed, likely due to insufficient '
       'memory. (The Cuda allocation returned the error code ""cudaErrorMemoryAllocation".)'),
     "Kokkos", MAYBE_FULL, {"requested": 9 * GIB // 2}, "4.50 GiB were refused", LESS),
    (("WebGPU device error(2): Out of memory\n"
      "Buffer size (3221225472) exceeds the max buffer size limit (1073741824)"),
     "WebGPU", "request_exceeds_limit: driver_refused_with_memory_free", {"requested": 3 * GIB, "limit": GIB},
     "One buffer of 3.00 GiB", LESS),
    ("dl_fn->cuda_dl->cuCtxCreate(&ctx, 0, cu_device) failed -> CUDA_ERROR_OUT_OF_MEMORY: out of memory",
     "CUDA", MAYBE_OTHERS, {}, "could not make a context", OTHERS),
    ("cudaDriver().CuDevicePrimaryCtxRetain( &context, dev.get() ) returned (2): Out of memory",
     "OptiX", MAYBE_OTHERS, {}, "could not make a context", OTHERS),
    ("Out of video memory trying to allocate a rendering resource. Make sure your video card has the minimum",
     "Unreal Engine", MAYBE_FULL, {}, "Unreal Engine was refused", LESS),
    (("Error: cudaErrorMemoryAllocation (2): out of memory\n\nterminate called after throwing an instance of "
      "'std::bad_alloc'"),
     "CUDA", MAYBE_FULL, {}, "The driver refused", LESS),
    (("Vulkan0 KV buffer size = 13800.00 MiB\nggml_vulkan: Device memory allocation of size 2166360064 failed.\n"
      "ggml_vulkan: Requested buffer size exceeds device memory allocation limit: ErrorOutOfDeviceMemory"),
     "llama.cpp", "request_exceeds_limit: driver_refused_with_memory_free", {"requested": 2166360064},
     "One buffer of 2.02 GiB", None),
    (("load_tensors: Vulkan0 model buffer size = 800.00 MiB\n"
      "ggml_vulkan: Device memory allocation of size 118497280 failed."),
     "llama.cpp", MAYBE_FULL, {"requested": 118497280}, "A buffer of 113.01 MiB", None),
    (("I bfc_allocator.cc:921] Sum Total of in-use chunks: 10.05GiB\nI bfc_allocator.cc:923] "
      "total_region_allocated_bytes_: 10818990080 memory_limit_: 10818990285 available bytes: 205"),
     "TensorFlow", "capacity: unknown",
     {"reserved": 10818990080, "limit": 10818990285, "available": 205, "in_use": round(10.05 * GIB)},
     "10.05 GiB of 10.08 GiB are in use", LESS),
    (("CUDA out of memory. Tried to allocate 1.73 GiB (GPU 0; 8.00 GiB total capacity; 17.20 GiB already allocated; "
      "0 bytes free; 19.15 GiB reserved in total by PyTorch)"),
     "PyTorch CUDA", "spilled_to_system: capacity",
     {"requested": round(1.73 * GIB), "device_total": 8 * GIB, "allocated": round(17.2 * GIB), "device_free": 0,
      "reserved": round(19.15 * GIB)},
     "17.20 GiB of it in use, are allocated on a device of 8.00 GiB: the driver moved at least 9.20 GiB", None),
    ("cupy.cuda.cufft.CuFFTError: CUFFT_ALLOC_FAILED", "CuPy", MAYBE_FULL, {}, "pool of CuPy", LIBRARIES),
    ("Check failed: cusolverDnCreate(&h) == CUSOLVER_STATUS_SUCCESS Failed to create cuSolverDN instance.",
     "TensorFlow", MAYBE_FULL, {}, "could not start", LIBRARIES),
    ("XlaRuntimeError: INTERNAL: operation gpusolverDnCreate(&handle) failed: cuSolver internal error",
     "JAX", MAYBE_FULL, {}, "could not start", LIBRARIES),
    ("XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above",
     "JAX", MAYBE_FULL, {}, "could not start", LIBRARIES),
    ("[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, stream->get()): out of memory (/a.h)",
     "CUDA", MAYBE_FULL, {}, "The driver refused", LESS),
    ("error: (-217:Gpu API call) out of memory in function 'allocate'", "OpenCV", MAYBE_FULL, {}, "driver", LESS),
    ("[LightGBM] [Fatal] [CUDA] out of memory /a/cuda_utils.hu 97", "LightGBM", MAYBE_FULL, {}, "driver", LESS),
    (("aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary "
      "resources. Available Free mem : 12 MB code: 0x1008"),
     "ROCm", MAYBE_FULL, {"device_free": 12 * MIB}, "12.00 MiB of the device were free", LESS),
    # Servers, and buffers of fixed size.
    (("RuntimeError: Executor creation failed due to insufficient GPU memory.\n\nThe following component could not "
      "be created: KV cache\nTotal GPU memory (GiB): 140.00\nFree GPU memory before component creation attempt "
      "(GiB): 108.50\n\nPreviously created components and free GPU memory before/after creation (GiB):\n"
      "Model: 139.50 / 110.75\nSampler: 110.75 / 110.75"),
     "TensorRT-LLM", MAYBE_FULL,
     {"device_total": 140 * GIB, "device_free": 217 * GIB // 2, "before_model": 279 * GIB // 2,
      "after_model": 443 * GIB // 4},
     ("(KV cache) at its start: memory of the device was refused. 108.50 GiB of 140.00 GiB were free before that. "
      "The model took 28.75 GiB."),
     CACHE),
    ("Decode out of memory. Try to lower your batch size.\nTry to allocate 148 tokens.\nAvaliable tokens: 2048",
     "SGLang", "cap_by_setting: capacity", {"asked_tokens": 148, "free_tokens": 2048}, "whole pages of tokens", LESS),
    (("[TP0] Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens.\n"
      "Available tokens: 7123 (available_size=7123 + evictable_size=0)"),
     "SGLang", "cap_by_setting: capacity", {"asked_tokens": 8192, "free_tokens": 7123},
     "8,192 tokens asked, 7,123 free. It has", LESS),
    (("RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`. "
      "self.req_to_token_pool.available_size()=1, num_reqs=2,"),
     "SGLang", "cap_by_setting: None", {"asked_requests": 2, "free_requests": 1}, "2 requests asked, 1 free", LESS),
    ("ggml_new_tensor_impl: not enough space in the context's memory pool (needed 7082923680, available 7082732800)",
     "llama.cpp", "request_exceeds_limit: None", {"requested": 7082923680, "available": 7082732800},
     "186.41 KiB too little", AdviceWord.DRIVER_BUG),
    ("ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit",
     "Transformers", MAYBE_FULL, {}, "No device refused anything", OTHERS),
    (("[ 7][error ] [A][Stream 0x55][Upstream 5872684800B][FAILURE maximum pool size exceeded]\n"
       'C++ exception with description "std::bad_alloc: out_of_memory: RMM failure at:/pool_memory_resource.hpp:269: '
       'Maximum pool size exceeded" thrown'),
     "RMM", "cap_by_setting: capacity", {"requested": 5872684800}, "5.47 GiB", AdviceWord.RAISE_LIMIT),
    ('level=ERROR source=a.go:1 msg="llama runner terminated" error="signal: killed"', "Linux", MAYBE_HOST, {},
     "SIGKILL", RECORD),
    ("std::runtime_error: [METAL] Command buffer execution failed: Insufficient Memory", "Metal", MAYBE_FULL, {},
     "a running command", LESS),
    (("ggml_vulkan: Requested buffer size exceeds device buffer size limit: ErrorOutOfDeviceMemory\n"
      "ggml_gallocr_reserve_n_impl: failed to allocate Vulkan0 buffer of size 6442450944"),
     "llama.cpp", "request_exceeds_limit: driver_refused_with_memory_free", {"requested": 6 * GIB},
     "One buffer of 6.00 GiB", None),
    (("E0203 04:05:06.700000    77 gpu_cudamallocasync_allocator.cc:1] gpu_async_0 cuMemAllocAsync failed to allocate "
      "4294967296 bytes: RESOURCE_EXHAUSTED\n Reported by CUDA: Free memory/Total memory: 1073741824/8589934592"),
     "XLA", MAYBE_FULL, {"requested": 4 * GIB, "device_free": GIB, "device_total": 8 * GIB},
     "3.00 GiB are missing", LESS),
    ("OutOfMemoryError: Container killed due to memory usage", "AWS", HOST, {}, "not GPU memory", SYSTEM),
    ("Error out of memory at line 7 in file /build/csrc/ops.cu", "bitsandbytes", MAYBE_FULL, {}, "bitsandbytes",
     OTHERS),
    ("AcceleratorError: CUDA error: out of memory", "PyTorch CUDA", MAYBE_OTHERS, {}, "outside of the framework",
     OTHERS),
    ("OPTIX_ERROR_DEVICE_OUT_OF_MEMORY: Device out of memory [a.cpp:9]", "OptiX", MAYBE_FULL, {}, "device", LESS),
    ("JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 68719476736 bytes.", "JAX", MAYBE_FULL,
     {"requested": 64 * GIB}, "64.00 GiB were refused", LESS),
    (("Error: Model loading was stopped due to insufficient system resources. Under the current settings, this model "
      "requires approximately NaN undefined of memory"),
     "LM Studio", "cap_by_setting: capacity", {}, "Nothing was refused", AdviceWord.RAISE_LIMIT),
    ("[ERROR] vkAllocateMemory: out of device memory; VRAM total: 8192 MB, VRAM free: 6656 MB", "Vulkan",
     "unknown: driver_refused_with_memory_free", {"device_total": 8 * GIB, "device_free": 13 * GIB // 2},
     "6.50 GiB of 8.00 GiB were free", LESS),
    ("renderer.cc:7: out of device memory, VRAM free: 6656 MB, requested: 512 MB", "Unknown program",
     "driver_refused_with_memory_free: None", {"requested": GIB // 2, "device_free": 13 * GIB // 2},
     "with 6.50 GiB free", None),
    ("Error: out of device memory: 2.0 GiB free of 8.0 GiB VRAM", "Unknown program", MAYBE_FULL,
     {"device_free": 2 * GIB, "device_total": 8 * GIB}, "2.00 GiB were free", LESS),
    ("RuntimeError: Out of device memory while making a table", "Unknown program", MAYBE_FULL, {}, "the device", LESS),
    ("ray.exceptions.RayTaskError(OutOfMemoryError): ray::fit() (pid=7, ip=10.0.0.3)", "Ray task", MAYBE_FULL, {},
     "of the device", LESS),
    ("Not enough resources to load the model with the current settings", "LM Studio", "cap_by_setting: capacity", {},
     "Nothing was refused", AdviceWord.RAISE_LIMIT),
    (("Out of Memory: Not enough space to allocate 8192 B DRAM buffer across 8 banks, where each bank needs to store "
      "1024 B, but bank size is 2048 B (allocated: 0 B, free: 2048 B, largest free block: 512 B)"),
     "Tenstorrent", "cached_fragmentation: capacity",
     {"buffer": 8192, "requested": 1024, "limit": 2048, "allocated": 0, "available": 2048, "largest_free": 512},
     "at most 512 B in one piece", AdviceWord.FREE_CACHE),
    (("Out of Memory: Not enough space to allocate 8192 B L1 buffer across 8 banks, where each bank needs to store "
      "1024 B, but bank size is only 512 B"), "Tenstorrent", "request_exceeds_limit: None",
     {"buffer": 8192, "requested": 1024, "limit": 512}, "can never fit", LESS),
    (("Not enough space to allocate 8192 B L1 buffer across 8 banks, where each bank needs to store 1024 B (allocated: "
      "9216 B, free: 768 B, largest free block: 768 B)"), "Tenstorrent", "capacity: None",
     {"buffer": 8192, "requested": 1024, "allocated": 9216, "available": 768, "largest_free": 768},
     "256 B are missing", LESS),
    ("Not enough space to allocate 8192 B L1_SMALL buffer across 8 banks, where each bank needs to store 1024 B",
     "Tenstorrent", "unknown: capacity", {"buffer": 8192, "requested": 1024}, "is not in the text", LESS),
    (("Assertion failed: maxTokensInPagedKvCache (64) must be large enough to process at least 1 sequence to "
      "completion"), "TensorRT-LLM", "cap_by_setting: capacity", {"kv_tokens": 64}, "fewer tokens", None),
    (("Memory on the node (IP: 10.0.0.3, ID: ab) where the task (task ID: cd, name=f, pid=7, memory used=3.00GB) was "
      "running was 7.00GB / 8.00GB (0.875), which exceeds the memory usage threshold of 0.8"), "Ray", HOST,
     {"process_in_use": 3 * GIB, "memory_used": 7 * GIB, "memory_total": 8 * GIB}, "Ray ended workers", None),
    ("WARNING: Job failed: exit code 137", "Linux", "unknown: host_memory", {}, "SIGKILL", None),
]  # fmt: skip


def read(text: str) -> StatedAnswer:
    found = read_messages([f"{text}\n".encode()])
    return StatedAnswer.of(found.failures, found.soft)


def verdict(failure: StatedFailureAnswer) -> str:
    judged = failure.judgement
    return str(judged.cause) if judged.cause == HOST else f"{judged.cause}: {judged.second}"


@pytest.mark.parametrize("case", TEXTS, ids=[f"{case[1]} {number}" for number, case in enumerate(TEXTS)])
def test_each_text_is_read_and_judged(case):
    text, framework, cause, facts, words, first = case
    failures = read(text).failures
    if not framework:
        assert not failures
        return
    (failure,) = failures
    assert (failure.stated.framework, verdict(failure), failure.stated.facts) == (framework, cause, facts)
    assert words in failure.judgement.sentence
    assert first in {None, failure.advice[0].kind}


@pytest.mark.parametrize(
    "text",
    [
        "The system writes one word:\n\nKilled\n\nThen look at its log, which says more.",
        "A process can be Running, Stopped or\nKilled",
        "except MemoryError:\n    pass",
        "These errors are known:\nValueError\nMemoryError",
        "With too little memory it is ended, and exited with code 137, as Docker says.",
        "A container process exited with code 137, indicating it received a signal",
        "A program that exited with code 137 was most likely ended by the system.",
        "(raylet) 0 Workers (tasks / actors) killed due to memory pressure (OOM), 2 Workers crashed",
        "[rank7]: Cuda failure 1 'invalid argument'",
        "OSError: [Errno 28] No space left on device: '/tmp/a'",
        "ImportError: libgomp.so.1: cannot allocate memory in static TLS block",
        "Slurm: Detected 0 oom-kill events",
        "State: COMPLETED (exit code 0)",
        "memory allocation of N bytes failed",
        "  State: Running\n  Exit Code: 0",
    ],
)
def test_what_tells_of_no_lack_of_memory(text):
    answer = read(text)
    assert not answer.failures
    assert not answer.soft


def test_a_server_that_puts_requests_back_goes_on():
    line = "[TP1] Decode out of memory happened. #retracted_reqs: 3, #new_token_ratio: 0.14 -> 0.18"
    answer = read(line)
    assert not answer.failures
    (soft,) = answer.soft
    assert (soft.stated.framework, soft.stated.facts) == ("SGLang", {"retracted_requests": 3})
    assert "put requests back" in soft.judgement.sentence
    assert "--schedule-conservativeness" in soft.advice[0].text


@pytest.mark.parametrize(
    ("line", "framework", "words"),
    [
        ("Sequence group 0 is preempted by PreemptionMode.SWAP mode because there is not enough KV cache space.",
         "vLLM", "put requests back"),
        ("failed to allocate pinned system memory: no pinned memory pool, falling back to non-pinned system memory",
         "Triton Inference Server", "other memory serves"),
        (("LMCache DEBUG: Failed to allocate memory for tensor(torch.Size([2, 8]), torch.float16) because no memory is "
         "available"), "LMCache", "computed again"),
        ("LMCache WARNING: Failed to allocate memory object, retrying... (a.py:7:lmcache.v1.a)", "LMCache", "not kept"),
        ("| NVIDIA-SMI 550.78 |\n| N/A 33C | 17592186044134MiB / 23028MiB |", "NVIDIA driver", "a table of devices"),
        ("State: COMPLETED\nMemory Utilized: 4.00 GB\nMemory Efficiency: 25.00% of 16.00 GB",
         "Slurm", "used 4.00 GiB"),
    ],
)  # fmt: skip
def test_a_notice_is_no_failure(line, framework, words):
    answer = read(line)
    assert not answer.failures
    (soft,) = answer.soft
    assert soft.stated.framework == framework
    assert words in soft.judgement.sentence


def test_a_large_request_of_system_memory_is_a_warning():
    line = "W tensorflow/core/a.cc:82] Allocation of 1207959552 exceeds 10% of free system memory."
    answer = read(f"{line}\n{line}")
    assert not answer.failures
    (soft,) = answer.soft
    assert (soft.stated.facts, soft.stated.count) == ({"requested": 1152 * MIB}, 2)
    assert "a warning, not a failure" in soft.judgement.sentence
    (failure,) = read(f"{line}\nexitcode: -9").failures
    assert failure.stated.text == "exitcode: -9"


def test_a_model_whose_layers_lie_on_no_device():
    answer = read(
        'msg=offload layers.model=35 layers.offload=0 layers.split="" memory.available="[3.2 GiB]" '
        'memory.required.full="2.5 GiB"'
    )
    assert not answer.failures
    (soft,) = answer.soft
    assert soft.stated.facts["device_needed"] == 5 * GIB // 2
    assert "no layer" in soft.judgement.sentence
    assert "these numbers are not the reason" in soft.judgement.sentence
    assert "ollama ps" in soft.advice[0].text


AUTOTUNING = "E1 torch/_inductor/select_algorithm.py:1] [0/0] "


def test_a_way_that_the_compiler_left_out_is_no_failure():
    lines = (
        "Runtime error during autotuning:",
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB of which 1 GiB is free.",
        "Ignoring this choice.",
    )
    answer = read("\n".join(AUTOTUNING + line for line in lines))
    assert not answer.failures
    (soft,) = answer.soft
    assert soft.stated.facts["requested"] == 2 * GIB


def test_a_server_without_a_pool_of_pinned_memory_goes_on():
    answer = read(
        "I1 a.cc:2] unable to create backend memory for type: CPU_PINNED id: 0: all allocation types failed:\n"
        "\tCPU_PINNED: failed to allocate pinned system memory: the driver is too old\n"
        "\tCPU_PINNED_POOL: failed to allocate pinned system memory: no pinned memory pool"
    )
    assert not answer.failures
    assert "Triton Inference Server" in answer.soft[0].judgement.sentence


def test_what_may_run_out_did_not():
    with pytest.raises(FileError):
        read_pasted("[Low VRAM Warning] Computations may fall to the CPU or go Out of Memory.")


@pytest.mark.parametrize("between", ["\n", " ("])
def test_pinned_memory_that_ordinary_memory_replaces(between):
    line = "Requested buffer size exceeds device memory allocation limit: ErrorOutOfDeviceMemory"
    head = "ggml_vulkan: Failed to allocate pinned memory"
    answer = read(f"{head}.\nggml_vulkan: {line}" if between == "\n" else f"{head} ({line})")
    assert not answer.failures
    (soft,) = answer.soft
    assert soft.judgement.sentence.startswith(
        "llama.cpp: pinned system memory was refused, and ordinary memory serves"
    )


NUMPY = "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 4.00 GiB for an array with shape (536870912,)"


@pytest.mark.parametrize(
    "texts", [(NUMPY, "CUDA error: out of memory"), ("CUDA error: out of memory", NUMPY)]
)
def test_a_refusal_of_the_gpu_beside_one_of_numpy(texts):
    failures = read("\nThen I tried\n".join(texts)).failures
    assert [each.stated.text in texts for each in failures] == [True, True]
    assert [each.stated.line for each in failures] == [1, 3]


@pytest.mark.parametrize(
    ("text", "shown", "hidden"),
    [
        ("| NVIDIA-SMI 535.1 | Driver 535.1 |\n| N/A 30C | 40413MiB / 40960MiB |",
         "free on the device in the table of nvidia-smi", "when the program started"),
        ("model weights take 7.51GiB; total_gpu_memory (15.77GiB) x gpu_memory_utilization (0.90) = 14.19GiB",
         "weights", "not accounted for"),
        (("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.00 GiB of which 1.00 "
           "GiB is free. Of the allocated memory 68.83 GiB is allocated by PyTorch, with 652.00 MiB allocated in "
           "private pools (e.g., CUDA Graphs), and 1.00 GiB is reserved by PyTorch but unallocated."),
         "live tensors, and the free memory of private pools", "live tensors\n"),
        (("CUDA out of memory. Tried to allocate 1.73 GiB (GPU 0; 8.00 GiB total capacity; 17.20 GiB already "
           "allocated; 0 bytes free; 19.15 GiB reserved in total by PyTorch)"),
         "19.2 GiB, 17.2 GiB of it in use, and the device only 8.0 GiB: at least 9.2 GiB", "11.15"),
    ],
)  # fmt: skip
def test_what_the_numbers_of_a_report_count(text, shown, hidden):
    report = str(read(text))
    assert shown in report
    assert hidden not in report


@pytest.mark.parametrize(
    "other", ["RuntimeError: CUDA error: out of memory", "[Errno 12] Cannot allocate memory"]
)
def test_a_signal_hides_no_text_that_says_more(other):
    for text in (
        f"exitcode: -9\n{other}",
        f"{other}\nmake: *** [train] Error 137",
        f"{other}\n$ python a.py\nKilled",
    ):
        (failure,) = read(text).failures
        assert failure.stated.text == other


def test_a_quota_that_is_asked_again_hides_no_lack_of_memory():
    quota = "ClientError: 429 RESOURCE_EXHAUSTED. Trying again in 3 s"
    for other in ("RuntimeError: CUDA error: out of memory", "Exit Code: 137"):
        (failure,) = read(f"{quota}\nstep 1\n{other}").failures
        assert failure.stated.text == other
    (failure,) = read(quota).failures
    assert failure.judgement.cause == "not_lack_of_memory"


def test_the_error_of_pytorch_before_that_of_its_server():
    text = next(text for text, framework, *_ in TEXTS if framework == "TensorRT-LLM")
    (failure,) = read(
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 90.00 GiB.\n{text}"
    ).failures
    assert (failure.stated.framework, failure.advice[0].kind) == ("PyTorch CUDA", CACHE)
    assert "free_gpu_memory_fraction" in failure.advice[0].text


def test_a_component_a_task_and_an_array_have_their_names():
    text = next(text for text, framework, *_ in TEXTS if framework == "Kokkos")
    assert "  array                 x" in str(read(text))
    text = next(text for text, framework, *_ in TEXTS if framework == "Ray")
    assert "  task                  load" in str(read(text))
    text = next(text for text, framework, *_ in TEXTS if framework == "TensorRT-LLM")
    assert "  component             KV cache" in str(read(text))
    text = next(text for text, framework, *_ in TEXTS if framework == "systemd")
    assert "  unit                  a.service" in str(read(text))
    assert str(read("Exit Code: 137")).startswith("Linux ended a process: perhaps host memory.")

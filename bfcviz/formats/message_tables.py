"""Every text of every framework about memory that ran out, in one table.

The texts of frameworks whose allocator bfcviz knows stand in a file each; those of drivers, systems and other programs
stand here.
"""

import re
from typing import Final

from bfcviz.formats import cupy, onnxruntime, rmm, tensorflow, torch, xla
from bfcviz.formats.message_grammar import Message, messages_of

# ------------------------------------------------------------------------------
# Texts of drivers and systems: a CUDA call that failed without numbers, system memory, and nvidia-smi's table.


SYSTEM: Final = messages_of(r"""
metal-buffer | Metal | family=mps behind=60
    = One buffer is larger than Metal allows for any.
    in mlx/backend/metal/allocator.cpp; ggml-metal.m (June 2023)
    > Attempting to allocate {number} bytes which is greater than the maximum allowed buffer size
    > buffer '{word}' size {number} is larger than buffer maximum of {number}
    requested: bytes of the buffer <- "allocate {number} bytes" "size {number} is larger"
    limit: the largest buffer of this device <- "buffer size of {number} bytes" "buffer maximum of {number}"
    mark one_buffer <- "buffer"
    mark ggml <- "ggml_metal"
metal-array | Metal | family=mps
    = One array is larger than Metal's library for tensors allows for any: 4 GiB, or 2^31 elements.
    in MetalPerformanceShaders, MPSNDArray.mm
    > Error: total bytes of NDArray > 2**32
    > Error: product of dimension sizes > 2**31
    mark one_buffer <- ""
metal-refused | MLX | family=mps
    = MLX asked for memory that GPU and system share, also with swapping, and was refused.
    in mlx/allocator.cpp
    > [malloc_or_wait] Unable to allocate {number} bytes
    > [malloc] Unable to allocate {number} bytes
    requested: bytes of the buffer <- "Unable to allocate {number} bytes"
bnb-call | bitsandbytes | family=cuda weak
    = A call of the CUDA runtime returned out of memory. In pythonInterface it is the one for managed memory, which a
        paged optimizer uses, and which needs system memory, too.
    in bitsandbytes/csrc/ops.cuh, CUDA_CHECK_RETURN
    > Error out of memory at line {number} in file {word}bitsandbytes
    > Error out of memory at line {number} in file {word}csrc/ops.cu
    mark managed <- "pythonInterface"
cuda-call | CUDA | behind=400 weak
    = A call of the CUDA or HIP runtime, or of cuBLAS, cuDNN, cuFFT, cuSOLVER or NCCL, returned out of memory. In
        PyTorch it is one outside of its allocator: for a context, a workspace, a graph, or pinned memory. With `in
        function alloc` it is ggml's pool for intermediate results. Only NCCL prints how much it asked for.
    in CUDA runtime and driver, cudaErrorMemoryAllocation (2)
    > CUDA error: out of memory
    > CUDA driver error: out of memory
    > CUDA Error: out of memory
    > Error out of memory at line {number} in file
    > CUDA error !!!!! <out of memory>
    > CUDA failed with error out of memory
    > cuda failed with error 2 out of memory
    > cuMemAlloc failed: out of memory
    > cuMemAllocPitch failed: out of memory
    > cuMemHostAlloc failed: out of memory
    > cuMemHostAlloc failed: OS call failed
    > cuCtxCreate failed: out of memory
    > cuModuleLoadDataEx failed: out of memory
    > error == cudaSuccess (2 vs. 0) out of memory
    > CudaMalloc_impl.hpp({number}): error: out of memory
    > CUresult error result=2 file=
    > pooled_storage_manager.h:{number}: Memory allocation failed
    > vk{word} failed -2{alone} <- "Vulkan"
    > vma{word} failed with error -2{alone} <- "Vulkan"
    > HIP error: out of memory <- "ROCm"
    > ROCm error: out of memory <- "ROCm"
    > cuda runtime error (2) : out of memory
    > cuda runtime err(2): out of memory
    > CUDA failure 2: out of memory
    > CUDA runtime error: out of memory
    > CUDA error 2: out of memory
    > CUDA Error 2, out of memory
    > CUDA error at {word} - out of memory
    > CUDA error at {word} Out of memory
    > CUDA error {number} in file {word} line {number}: out of memory
    > cudaHostAlloc failed, ret[2], out of memory
    > cuMemoryAllocate failed res=2
    > Cuda error in func {word} at line {number}: out of memory
    > CUDA: out of memory
    > CUDA malloc failed: out of memory
    > ) failed with error out of memory
    > error=2 : out of memory
    > '. Reason:out of memory
    > ERROR: out of memory in {word} at line {number} (error-code 2)
    > cublas runtime error : resource allocation failed
    > Cuda failure 'out of memory'
    > Cuda failure 2 'out of memory'
    > CUDA runtime error in {skip}{skip}: out of memory
    > (-217:Gpu API call) out of memory <- "OpenCV"
    > [CUDA] out of memory <- "LightGBM"
    > cudaMalloc failed: out of memory
    > cudaMalloc retry failed: out of memory
    > CUBLAS_STATUS_ALLOC_FAILED
    > CUDNN_STATUS_ALLOC_FAILED
    > Failed to CUDA calloc {number} bytes
    > Failed to CUDA calloc async {number} bytes
    > CUFFT_ALLOC_FAILED
    > CUSOLVER_STATUS_ALLOC_FAILED
    > CUDA_ERROR_OUT_OF_MEMORY
    > cudaErrorMemoryAllocation
    > hipErrorOutOfMemory <- "ROCm"
    > HIP_ERROR_OutOfMemory <- "ROCm"
    > ErrorOutOfDeviceMemory <- "Vulkan"
    > VK_ERROR_OUT_OF_DEVICE_MEMORY <- "Vulkan"
    > VkResult: ERROR_OUT_OF_DEVICE_MEMORY <- "Vulkan"
    > UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY <- "oneAPI"
    requested: bytes that NCCL asked for <- "Failed to CUDA calloc {number} bytes"
        "Failed to CUDA calloc async {number} bytes"
    requested: bytes of the request <- "cudaMalloc( bytes = {number} ) failed"
    mark torch <- "torch" "AcceleratorError" "TORCH_USE_CUDA_DSA" "TORCH_USE_HIP_DSA" "THC"
        "CUDA kernel errors might be" "CUDA driver error:" "when calling `cublas" "cuFFT error: C" "cusolver error: C"
    mark driver_call <- "driver error: out"
    mark storage <- "THCStorage"
    mark library_start <- "`cublasCreate"
    mark capture <- "capture_end" "capture_begin" "torch/cuda/graphs.py"
    mark saver <- "torch_memory_saver"
    mark library <- "CUBLAS_STATUS" "CUDNN_STATUS" "CUFFT_ALLOC" "CUSOLVER_STATUS"
    mark cupy <- "CuFftError" "CuFFTError"
    mark jax <- "mpi4jax" "MPI4JAX"
    mark ggml <- "ggml" "llama"
    mark pool <- "in function alloc"
    mark onnx <- "onnxruntime"
    mark onnx_pool <- "cuda/cuda_allocator.cc" "cuda\cuda_allocator.cc"
    mark cumem <- "cumem_allocator"
    mark pin_memory <- ".pin_memory(" "CachingHostAllocator" "HostAlloc failed" "Mem.HostBuffer("
    mark turbomind <- "[TM][ERROR]"
    mark no_context <- "cuCtxCreate" "DevicePrimaryCtxRetain" "torch._C._cuda_init()"
    mark nccl <- "NCCL WARN C" "Failed to CUDA calloc" "Cuda failure 2 '"
    mark mxnet <- "mxnet" "MXNet"
    mark mxnet_pool <- "pooled_storage_manager" "MXNetError: cudaMalloc"
    device <- "current device: {number}, in function" "[{number}] {word} NCCL WARN" "; GPU={number} ;"
paddle-call | PaddlePaddle | family=cuda weak
    = A request was refused; the message with its numbers stands further below, or was cut.
    in paddle/phi/core/memory/allocation, BadAlloc
    > instance of 'paddle::memory::allocation::BadAlloc'
    > raises an exception paddle::memory::allocation::BadAlloc
cuda-init | CUDA | weak
    = The driver could not start in the process: no device was asked for memory yet. What is short is memory of the
        system or a limit of the process, or the driver does not fit the kernel.
    in CUDA driver, cuInit; numba/cuda/cudadrv/driver.py, stream_executor/cuda/cuda_driver.cc
    > Call to cuInit results in CUDA_ERROR_OUT_OF_MEMORY
    > failed call to cuInit: CUDA_ERROR_OUT_OF_MEMORY
    > cuInit failed: out of memory
cuda-library | CUDA | weak
    = cuBLAS, cuDNN or cuSOLVER could not start. Most often too little of the device is free for what they allocate
        then; a driver that does not fit, or an earlier error of a kernel, such as an index out of range, says the
        same.
    in cublasCreate, cudnnCreate, cusolverDnCreate
    > CUBLAS_STATUS_NOT_INITIALIZED
    > CUDNN_STATUS_NOT_INITIALIZED
    > ould not create cudnn handle
    > failed to create cublas handle
    > Failed to create cuSolverDN instance
    > operation gpusolverDnCreate(&handle) failed
    > FAILED_PRECONDITION: DNN library initialization failed
    mark jax <- "operation gpusolver" "FAILED_PRECONDITION: DNN"
    mark tf <- "Failed to create cuSolverDN" "tensorflow" "stream_executor"
    mark torch <- "NOT_INITIALIZED"
cuda-algorithm | PyTorch CUDA | weak
    = cuDNN tried its algorithms for a convolution, and none ran. Most often none of them got its workspace; a cuDNN
        that does not fit the device says the same.
    in aten/src/ATen/native/cudnn/Conv_v7.cpp, Conv_v8.cpp
    > Unable to find a valid cuDNN algorithm to run convolution
    > GET was unable to find an engine to execute this computation
    mark torch <- "to run convolution" "GET was unable"
metal-command | Metal | family=mps behind=400
    = Metal could not keep the buffers of a running command in memory: those of the program are together more than the
        system leaves to the GPU.
    in Metal; ggml-metal.m and mlx/backend/metal/eval.cpp print it
    > kIOGPUCommandBufferCallbackErrorOutOfMemory
    > Insufficient Memory (IOAF code 8)
    > Command buffer execution failed: Insufficient Memory
    mark ggml <- "ggml" "llama"
trt-tactic | TensorRT | role=soft
    = While it builds an engine, TensorRT tries ways to compute a layer, and leaves out one that needs too much.
    in TensorRT, the builder
    > Requested amount of GPU memory ({number} bytes) could not be allocated
    > user allocator error allocating {number}-byte buffer
    > Tactic Device request: {size} Available: {size}
    requested: workspace of one way to compute a layer <- "GPU memory ({number} bytes)" "allocating {number}-byte"
        "Tactic Device request: {size}"
    available: what the builder may use, as it counts it <- "Tactic Device request: {skip} Available: {size}"
trt-skipped | TensorRT | role=retry
    = The builder left out a way to compute a layer: the failure before is none.
    in TensorRT, the builder
    > Skipping tactic {number} due to insufficient memory
    > Skipping tactic {number} due to insuficient memory
trt-build | TensorRT | role=after_all
    = The builder found no way to compute a layer, after it left out some that need too much: no engine was built.
        Without such lines before it, memory is not the reason, and bfcviz leaves it out.
    in TensorRT, the builder, Error Code 10
    > Could not find any implementation for node
    mark after_all <- "Could not find"
trt-memory | TensorRT
    = The driver refused memory for an engine, its weights or its workspace.
    in TensorRT, virtualMemoryBuffer.cpp, safeRuntime.cpp
    > Error Code 2: OutOfMemory
    > DefaultAllocator::allocate: 2 (out of memory)
    > Cuda Error in allocate: 2 (out of memory)
    > Requested amount of memory ({number} bytes) could not be allocated
    > OutOfMemory Error in allocate: 0
    > Error Code 2: out of Memory (Requested size was {number} bytes
    requested: bytes that the driver refused <- "Requested size was {number} bytes"
        "Requested amount of memory ({number} bytes)"
cuda-shared | Triton | family=kernel
    = A kernel needs more of the memory inside a multiprocessor than there is. The memory of the device has nothing to
        do with it.
    in triton/runtime/errors.py
    > out of resource: shared memory, Required: {number}
    > out of resource: shared memory Required: {number}
    > out of resource: triton_{word} Required: {number}
    requested: bytes of shared memory that the kernel needs <- "Required: {number}"
    limit: bytes that a kernel may use <- "Hardware limit: {number}" "Hardware limitation: {number}"
    mark on_chip <- "out of resource"
    mark soft <- "_inductor/select_algorithm.py:"
cuda-shared-call | CUDA | family=kernel weak
    = A kernel of a library needs more of the memory inside a multiprocessor than there is. The memory of the device
        has nothing to do with it.
    in tiny-cuda-nn; tvm/src/runtime/cuda/cuda_module.cc; ptxas
    > insufficient shared memory available on the GPU
    > set the allowed dynamic shared memory size to {number}
    > uses too much shared data ({number} bytes, {number} max)
    requested: bytes of shared memory that the kernel needs <- "memory size to {number}" "shared data ({amount}"
        "shared data ({number} bytes"
    limit: bytes that a kernel may use <- "bytes, {amount} max" "bytes, {number} max"
    mark on_chip <- "shared"
cuda-shared-skipped | PyTorch Inductor | role=retry family= within=6
    = The compiler of PyTorch tries ways to compute a kernel, and left out the one of the line before: the failure
        before is none.
    in torch/_inductor/select_algorithm.py
    > Ignoring this choice.
cuda-shared-none | PyTorch Inductor | role=after_all family=kernel
    = The compiler of PyTorch left out every way to compute a kernel. Without such lines before it, bfcviz leaves it
        out.
    in torch/_inductor/select_algorithm.py, NoValidChoicesError
    > No choices to select
    mark after_all <- "No choices"
cuda-kernel | CUDA | role=soft family=fault
    = A kernel failed while it ran, or was not started. No memory was refused.
    in CUDA runtime and driver, cudaErrorIllegalAddress (700), cudaErrorLaunchOutOfResources (701) and others
    > CUDA error: an illegal memory access was encountered
    > HIP error: an illegal memory access was encountered
    > CUDA error: misaligned address
    > CUDA error: unspecified launch failure
    > HIP error: unspecified launch failure
    > CUDA error: device-side assert triggered
    > CUDA error: too many resources requested for launch
    > results in CUDA_ERROR_LAUNCH_FAILED
    > CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access
    > Memory access fault by GPU node <- "ROCm"
    mark address <- "illegal memory access" "misaligned address" "access fault"
    mark registers <- "too many resources"
host-worker | PyTorch CPU
    = The system ended a process that loads data: `Killed` because system memory ran out, `Bus error` because
        /dev/shm, which the workers share, is full.
    in torch/utils/data/dataloader.py
    > DataLoader worker (pid {number}) is killed by signal: Killed
    > DataLoader worker (pid {number}) is killed by signal: Bus error
    > Unexpected bus error encountered in worker
    mark host <- "orker"
    mark shared_memory <- "Bus error" "bus error"
host-signal | Linux | behind=240 weak
    = A process was ended by SIGKILL, which it cannot catch: by the system because system memory ran out, by a limit
        of a container or a batch system, by its launcher, or by a person.
    in torch/distributed/elastic, deepspeed/launcher/launch.py
    > exitcode: -9
    > exitcode : -9
    > return code = -9
    > Signal 9 (SIGKILL) received
    > Job failed: exit code 137
    mark host <- "9"
    rank <- "Root Cause (first observed failure): [{skip}]: time : {word} host : {word} rank : {number} (local_rank"
host-numpy | NumPy
    = System memory was refused, not GPU memory.
    in numpy/_core/_exceptions.py
    > Unable to allocate {size} for an array with shape
    > Unable to allocate {size} for array with
    > Unable to allocate array with shape (
    requested: bytes of the array <- "Unable to allocate {size}"
    mark host <- "allocate"
host-library | oneMKL
    = System memory was refused, not GPU memory.
    in programs on oneMKL
    > mkl_malloc: failed to allocate memory
    mark host <- "mkl_malloc"
host-paging | Windows | behind=200 weak host
    = Windows refused system memory: what all programs asked for is as much as memory and page file together.
    in Windows, ERROR_COMMITMENT_LIMIT (1455)
    > paging file is too small for this operation to complete
    > WinError 1455
    > diagnosed a low virtual memory condition
    > (os error 1455)
    requested: bytes of the request <- "Ran out of memory allocating {number}"
    process_in_use: address space of the largest process <- "({skip}) consumed {number} bytes"
host-killed | Linux
    = The system killed a process because system memory, not GPU memory, ran out.
    in mm/oom_kill.c
    > Out of memory: Kill
    > Memory cgroup out of memory: Kill
    > oom-kill:constraint
    > Killed process {number} ({word}) total-vm
    process_in_use: system memory of the killed process <- "anon-rss:{size}"
    mark host <- "ill" "oom" "total-vm"
    mark cgroup <- "emory cgroup" "CONSTRAINT_MEMCG"
host-python | Python | place=traceback weak
    = System memory was refused, not GPU memory. There is no number in the text.
    in Python, MemoryError without a text
    > {start}MemoryError{end}
    mark host <- "MemoryError"
host-program | Program on the CPU | host
    = System memory was refused to a program or a library.
    in Rust (alloc::handle_alloc_error), opencv/modules/core/src/alloc.cpp, dynet/aligned-mem-pool.h, LightGBM,
        arrow/memory_pool.cc, R, MATLAB, OneFlow, Spark RAPIDS, ND4J, LAMMPS, NVIDIA's Fortran, TensorFlow Lite
    > memory allocation of {number} bytes failed <- "Rust"
    > (-4:Insufficient memory) Failed to allocate {number} bytes <- "OpenCV"
    > Insufficient memory (Failed to allocate {number} bytes) <- "OpenCV"
    > CPU memory allocation failed n={number} <- "DyNet"
    > out of memory allocating {number} bytes after a total of <- "GCC"
    > LightGBMError: Out of Host Memory <- "LightGBM"
    > ArrowMemoryError: malloc of size {number} failed <- "Arrow"
    > ArrowMemoryError: realloc of size {number} failed <- "Arrow"
    > cannot allocate vector of size {size} <- "R"
    > Out of memory. Type "help memory" for your options <- "MATLAB"
    > ({size}) array exceeds maximum array size preference ({size}) <- "MATLAB"
    > CPU can't allocate memory. Tried to allocate {size} <- "OneFlow"
    > CPU OutOfMemory: could not split inputs and retry <- "Spark RAPIDS"
    > rapids.jni.CpuSplitAndRetryOOM <- "Spark RAPIDS"
    > rapids.jni.CpuRetryOOM <- "Spark RAPIDS"
    > Can't allocate [HOST] memory <- "ND4J"
    > Failed to allocate {number} bytes for array
    > Failed to reallocate {number} bytes for array <- "LAMMPS"
    > ALLOCATE: {number} bytes requested; not enough memory <- "Fortran"
    > program executable - Out of host memory <- "TensorFlow Lite"
    > failed: CL_OUT_OF_HOST_MEMORY
    > error: CL_OUT_OF_HOST_MEMORY
    > error CL_OUT_OF_HOST_MEMORY
    > (CL_OUT_OF_HOST_MEMORY) <- "OpenCL"
    requested: bytes of the request <- "allocation of {number} bytes" "Failed to allocate {number} bytes"
        "Failed to reallocate {number} bytes" "failed n={number}" "allocating {number} bytes after"
        "alloc of size {number} failed" "vector of size {size}" "({size}) array exceeds" "Tried to allocate {size}"
        "ALLOCATE: {number} bytes"
    limit: the largest array that is allowed <- "array size preference ({size})"
nvidia-smi | NVIDIA driver | role=before family=
    = The driver's table of devices and processes: what is in use now, not at the moment of a failure.
    in nvidia-smi
    > NVIDIA-SMI {number}
    mark table <- "NVIDIA-SMI"
""")


HOST: Final = messages_of(r"""
host-sigkill | Linux | behind=120 weak host
    = A process was ended by SIGKILL, which it cannot catch.
    in Python's subprocess, torch/multiprocessing/spawn.py, joblib, Ollama, time, shells, Open MPI, MPICH, gcc,
        Airflow, Dask, systemd, srun
    > died with <Signals.SIGKILL: 9>
    > terminated with signal SIGKILL
    > terminated by signal 9
    > SIGKILL(-9)
    > terminated: signal: killed
    > terminated" error="signal: killed"
    > terminated\" error=\"signal: killed\"
    > zsh: killed
    > line {number}: {number} Killed
    > exited on signal 9 (Killed)
    > Killed signal terminated program
    > Negsignal.SIGKILL
    > was killed by signal 9
    > terminated by signal SIGKILL
    > code=killed, status=9/KILL
    > task {number}: Killed
    > tasks {word}: Killed
    > KILLED BY SIGNAL: 9 (Killed)
    > EXIT STRING: Killed (signal 9)
    mark compiler <- "signal terminated program"
    rank <- "process rank {number} with PID" "task {number}: Killed" "RANK {number} PID"
host-exit | Linux | weak alone host
    = Exit code 137 is 128 + 9: a process was ended by SIGKILL, which it cannot catch.
    in kubectl, docker, make, PyCharm, GitHub Actions, Grid Engine's qacct
    > Exit Code: 137
    > exited with code 137
    > exited with exit code 137
    > terminated with exit code 137
    > completed with exit code 137
    > finished with exit code 137
    > exit status 137
    > exit code (137)
    > exit status (137)
    > exitCode{sep}137
    > exit_status{sep}137
    > non-zero exit (137)
    > ] Error 137
host-shell | Linux | place=last weak host
    = The shell says that a program was ended by SIGKILL, which it cannot catch.
    in bash, sh
    > {start}Killed{end}
host-slurm | Slurm | host
    = The job, or a step of it, reached its limit of system memory, and the system ended processes of it. It is not
        GPU memory.
    in slurmstepd, srun, seff, sacct, scontrol
    > Detected {count} oom-kill event
    > Detected {count} oom_kill event
    > exceeded memory limit ({number} > {number}), being killed
    > task {number}: Out Of Memory
    > tasks {word}: Out Of Memory
    > OUT_OF_MEMORY (exit code
    > OUT_OF_ME+
    > |OUT_OF_MEMORY|
    > JobState=OUT_OF_MEMORY
    memory_used[K]: what the job used <- "exceeded memory limit ({number}"
    memory_total[K]: its limit <- "> {number}), being killed"
    rank <- "task {number}: Out Of Memory"
usage-slurm | Slurm | role=before family=host
    = What a job used of system memory, as Slurm sampled it, and what it asked for.
    in seff, sacct
    > Memory Utilized: {size}
    > {start}JobID {skip}{skip}{skip}MaxRSS
    > {start}JobID|
    memory_used: system memory that the job used <- "Memory Utilized: {size}"
    memory_total: what it asked for <- "Memory Efficiency: {skip} of {size}"
usage-grid | Grid Engine | role=before family=host
    = What a job used of address space, and the limit that it was given for it.
    in qacct
    > maxvmem {size}
    memory_used: address space that the job used <- "maxvmem {bytes}" "maxvmem {size}"
    memory_total: its limit, of each slot (h_vmem) <- "h_vmem={size}"
host-slurm-limit | Slurm | weak host
    = A step reached its limit of system memory, which is not GPU memory, at some point. What the system keeps of
        files counts there, too, so that the step may have ended well.
    in slurmstepd (until 2018)
    > Exceeded step memory limit at some point
    > Exceeded job memory limit at some point
host-pbs | PBS | host
    = The job reached its limit of system memory, and PBS ended it. It is not GPU memory.
    in pbs_mom
    > PBS: job killed: mem {number}kb exceeded limit {number}kb
    memory_used: what the job used <- "killed: mem {size} exceeded"
    memory_total: its limit <- "exceeded limit {size}"
host-lsf | LSF | host
    = The job reached its limit of system memory, and LSF ended it. It is not GPU memory.
    in bjobs, bhist, the mail of LSF
    > TERM_MEMLIMIT: job killed after reaching LSF memory usage limit
host-systemd | systemd | behind=160 host
    = The system ended a process of a unit because system memory, or what the unit or a group above it may use of it,
        ran out. It is not GPU memory.
    in systemd/src/core/unit.c
    > A process of this unit has been killed by the OOM killer
    > Failed with result 'oom-kill'
host-kubernetes | Kubernetes | host
    = A container reached its limit of system memory, or its node ran low on it, and the container was ended. It is
        not GPU memory.
    in kubectl describe pod, kubectl get pods, the kubelet
    > Reason{sep}OOMKilled
    > reason{sep}OOMKilled
    > {number}/{number} OOMKilled
    > The node was low on resource: memory
host-docker | Docker | host
    = A container reached its limit of system memory, and the system ended it. It is not GPU memory.
    in docker inspect; the states of tasks in AWS ECS and Batch
    > OOMKilled{sep}true
    > OutOfMemoryError: Container killed due to memory usage <- "AWS"
host-ray | Ray | host
    = A node ran low on system memory, and Ray ended workers on it. It is not GPU memory.
    in ray/src/ray/raylet/node_manager.cc
    > was killed due to the node running low on memory
    > Memory on the node (IP: {word}, ID: {word}) where the
    > {count} Workers (tasks / actors) killed due to memory pressure
    process_in_use: system memory of the worker <- "memory used={size}"
    memory_used: system memory in use on the node <- "running was {size} /"
    memory_total: all system memory of the node <- "running was {skip} / {size} ("
    killed_workers: workers that were ended <- "{count} Workers (tasks"
host-ray-lost | Ray | weak host
    = A worker of Ray ended without a word: most often because system memory, or the limit of a container, ran out;
        `ray stop` and a crash of the program say the same.
    in ray/src/ray/raylet/node_manager.cc
    > Worker unexpectedly exits with a connection error code
host-yarn | YARN | host
    = A container reached its limit of system memory, and YARN ended it. It is not GPU memory.
    in hadoop-yarn, ContainersMonitorImpl; Spark
    > killed by YARN for exceeding memory limits
    > killed by YARN for exceeding physical memory limits
    > running beyond physical memory limits
    memory_used: what the container used <- "{size} of {skip} physical memory used"
    memory_total: its limit <- "of {size} physical memory used"
host-dask | Dask | host
    = A worker reached its limit of system memory, and its nanny ended it and starts another. It is not GPU memory.
    in distributed/worker_memory.py
    > exceeded {number}% memory budget
host-dask-lost | Dask | weak host
    = Each worker that ran this task died: most often because system memory, or the limit of a worker, ran out; a
        crash of the program says the same.
    in distributed/scheduler.py, KilledWorker
    > different workers, but all those workers died
host-oomd | systemd-oomd | host
    = systemd-oomd ended a group of processes because system memory and swap ran low. It is not GPU memory.
    in systemd/src/oom/oomd-manager.c
    > due to memory used ({number}) / total ({number})
    > due to memory pressure for {word} being {number}%
    > systemd-oomd killed {count} process(es) in this unit
    memory_used: system memory in use <- "memory used ({number})"
    memory_total: all system memory <- "memory used ({skip}) / total ({number})"
host-colab | Colab | host
    = The session used all system memory of its machine, and was ended. It is not GPU memory.
    in Google Colab
    > session crashed after using all available RAM
host-kaggle | Kaggle | host
    = The notebook used all system memory of its machine, and was started again. It is not GPU memory.
    in Kaggle
    > Your notebook tried to allocate more memory than is available
host-jupyter | Jupyter | weak host
    = The process behind a notebook ended without a word: most often the system ended it because system memory, not
        GPU memory, ran out; a crash of a library says the same.
    in Jupyter
    > The kernel appears to have died
    > The kernel for {word} appears to have died
host-invoked | Linux | weak host
    = A program asked for system memory, none was left in the machine or in its container, and the system chose a
        process to end, which a later line names (Killed process). It is not GPU memory.
    in mm/oom_kill.c
    > invoked oom-killer:
host-reaped | Linux | weak host
    = The system took back the memory of a process that it had ended because system memory, not GPU memory, ran out.
    in mm/oom_kill.c
    > oom_reaper: reaped process {number} (
host-shared | Linux | host
    = Shared memory (/dev/shm) is full: not GPU memory. A container has 64 MiB of it where nothing else is set.
    in aten/src/ATen/MapAllocator.cpp; nccl/src/misc/shmutils.cc
    > unable to write to file </torch{word} No space left on device
    > unable to resize file </torch{word} to the right size: No space left on device
    > unable to open shared memory object </torch{word} in read-write mode: No space left on device
    > failed to extend /dev/shm/{word} to {number} bytes, error: No space left on device
    requested: bytes of a buffer of NCCL <- "to {number} bytes, error"
    mark shared_memory <- "No space"
host-mapping | Linux | weak host
    = The system refused memory to the process (error 12): system memory ran out, or a limit of the process or of its
        container on address space, or on the number of its mappings. It is not GPU memory.
    in Linux, ENOMEM; aten/src/ATen/MapAllocator.cpp; Rust (safetensors, tokenizers, Polars)
    > unable to mmap {number} bytes from file {word} Cannot allocate memory (12)
    > [Errno 12] Cannot allocate memory
    > Cannot allocate memory (os error 12)
    > code: 12, kind: OutOfMemory
    > fork: Cannot allocate memory
    requested: bytes of the mapping <- "unable to mmap {number} bytes"
host-nvidia | NVIDIA driver | weak host
    = The driver in the kernel was refused memory: most often system memory, from which it also takes tables for the
        GPU; on a device that shares the memory of the system, the same memory.
    in open-gpu-kernel-modules
    > Out of memory [NV_ERR_NO_MEMORY]
host-java | Java | host
    = The program reached a limit of system memory that it keeps to: the heap of the virtual machine, or, with
        JavaCPP, what all its memory may be. It is not GPU memory.
    in OpenJDK; javacpp/Pointer.java
    > OutOfMemoryError: Java heap space
    > OutOfMemoryError: GC overhead limit exceeded
    > Physical memory usage is too high: physicalBytes ({size}) > maxPhysicalBytes ({size})
    > OutOfMemoryError: Cannot allocate new {word} totalBytes
    memory_used: what the process uses <- "physicalBytes ({size})"
    memory_total: its limit <- "maxPhysicalBytes ({size})"
host-javascript | JavaScript | host
    = The heap of JavaScript reached the limit of system memory that Node.js or the browser keeps to, or one array is
        larger than it allows for any. It is not GPU memory.
    in node/src/node_errors.cc; v8
    > JavaScript heap out of memory
    > RangeError: Array buffer allocation failed
host-duckdb | DuckDB | host
    = DuckDB reached the limit of system memory that it keeps to (memory_limit, 80 % of it where nothing else is set),
        or, after `bad allocation`, the system refused memory. It is not GPU memory.
    in duckdb/src/storage/standard_buffer_manager.cpp
    > Out of Memory Error: failed to allocate data of size {size}
    > Out of Memory Error: could not allocate block of
    > Out of Memory Error: failed to allocate block of
    > Out of Memory Error: failed to pin block of
    requested: bytes of the request <- "data of size {size}" "block of size {size}" "block of {size}"
    memory_used: in use of the limit <- "({size}/{skip} used)"
    memory_total: the limit (memory_limit) <- "/{size} used)"
host-r-limit | R | host
    = R reached the limit of system memory that it keeps to. It is not GPU memory.
    in R, src/main/memory.c
    > vector memory exhausted (limit reached?)
    > vector memory limit of {size} reached
    > Reached total allocation of {size}: see help(memory.size)
    memory_total: its limit <- "memory limit of {size}" "total allocation of {size}"
host-cpp | C++ | weak host
    = A program in C++, or a library, was refused memory: most often system memory; some libraries say the same of
        memory of the GPU. There is no number in the text.
    in C++, std::bad_alloc
    > instance of 'std::bad_alloc'
    > {start}MemoryError: std::bad_alloc{end}
""")
"""Texts of which what they mean is all that there is to say; of a weak one it is only likely."""

BY_SIGNAL: Final = frozenset({"host-signal", "host-sigkill", "host-exit", "host-shell"})
"""Texts that say only that a process was ended by SIGKILL."""

LEAST: Final = (
    frozenset({"status-exhausted", "host-nvidia", "host-ray-lost"}),
    frozenset({"status-limit"}),  # programs try again
    BY_SIGNAL,
)
"""Weak texts that count only where no other weak one stands, those that say least first."""

ARRAY: Final = re.compile(
    r"array with (?:shape|form) \((?P<shape>[\d, ]{1,200})\) and data type (?P<type>\w{1,40})"
)
"""The array for which NumPy got no memory."""

PROFILED_TOKENS: Final = re.compile(r"larger than the profiled value (-?\d{1,15})")
"""Tokens for which SGLang finds room in its share of the device."""

SMI_DEVICE: Final = re.compile(r"(\d{1,9})MiB\s{0,9}/\s{0,9}(\d{1,9})MiB")
"""A device in nvidia-smi's table: MiB in use, and in all."""

SMI_PROCESS: Final = re.compile(
    r"\|\s{1,9}(?P<device>\d{1,3})\s(?:\s{0,12}(?:N/A|\d{1,3})){0,2}\s{1,12}(?P<pid>\d{1,10})\s{1,9}(?:C\+G|C|G)\s[^|\n]{0,90}?"
    r"(?P<used>\d{1,9})MiB\s{0,3}\|"
)
"""A process in nvidia-smi's table."""


NAMED: Final = {
    "host-systemd": re.compile(r"([\w@.:\\-]{1,80}\.(?:service|scope|slice)): (?:A process|Failed)"),
    "host-ray": re.compile(r"\(task ID: \w{1,80}, name=([^,\n]{1,80}), pid="),
    "program-kokkos": re.compile(r"memory for label \"([^\"\n]{1,120})\""),
    "trtllm-executor": re.compile(r"component could not be created:\s{1,9}(KV cache|[\w-]{1,40})"),
}
"""Name of an entry -> what its later lines name."""

KILLED: Final = re.compile(
    r"(?:Kill(?:ed)?|reaped) process \d{1,10},?(?: UID \d{1,10},)? \((\([^()\n]{1,62}\)|[^()\n]{1,64})\)"
    r"|\btask=([^,\n]{1,64}),pid="
)
"""The name of the process that the system killed; systemd puts that of a child that it starts in parentheses."""


# ------------------------------------------------------------------------------
# ggml, and the programs on it (llama.cpp, whisper.cpp, Ollama, LM Studio): what they print when memory runs out.

GGML: Final = messages_of(r"""
ggml-buffer | llama.cpp | behind=120
    = A buffer was refused. Weights, KV cache and compute buffers are one buffer each and device.
    in ggml/src/ggml-cuda/ggml-cuda.cu, ggml-alloc.c, ggml-vulkan.cpp, ggml-sycl.cpp, ggml-metal.m;
        src/llama-context.cpp
    > allocating {number} MiB on device {number}:
    > failed to allocate {word} buffer of size {number}
    > failed to allocate buffer of size {number}
    > Device memory allocation of size {number} failed
    > ggml_vulkan: Requested buffer size exceeds
    > unable to allocate {word} buffer
    > failed to allocate buffer, size = {number} MiB
    > failed to allocate compute buffers
    > failed to allocate buffer for kv cache
    > ggml_aligned_malloc: insufficient memory
    > can't allocate {number} Bytes of memory on device
    > GGML_ASSERT: {skip}{skip}{skip}NULL && "failed to allocate buffer"
    requested: the whole buffer <- "buffer of size {number}" "allocation of size {number} failed"
        "can't allocate {number} Bytes"
    requested_printed[M]: the same, rounded <- "allocating {number} MiB" "buffer, size = {number} MiB"
        "attempted to allocate {number} MB"
    mark host <- "cpu_buffer_type" "ggml_aligned_malloc" "allocate CPU buffer" 'NULL && "failed' "_Host buffer"
    mark sycl <- "Bytes of memory on device"
    mark compute <- "compute" "graph_reserve" "gallocr_reserve" "sched_reserve"
    mark kv <- "kv cache" "kv_cache"
    mark weights <- "load_tensors" "alloc_tensor_range" "loading model" "llm_load"
    mark given_weights <- "model buffer size ="
    mark copies <- "pipeline parallelism enabled"
    mark one_buffer <- "exceeds device memory allocation limit" "exceeds device buffer size limit"
    device <- "on device {number}:" "allocate CUDA{number} buffer" "allocate ROCm{number} buffer"
        "allocate Vulkan{number} buffer" "allocate SYCL{number} buffer"
ggml-retry | llama.cpp | role=retry
    = llama.cpp tries again with less: the failure before is none yet.
    in src/llama-context.cpp, sched_reserve
    > retrying without pipeline parallelism
    > retrying with fewer
ggml-pinned | llama.cpp | role=soft
    = Pinned system memory was refused; ggml takes ordinary memory instead.
    in ggml/src/ggml-cuda/ggml-cuda.cu, ggml-vulkan.cpp
    > failed to allocate {number} MiB of pinned memory
    > ggml_vulkan: Failed to allocate pinned memory. ggml_vulkan: {skip}{skip}ErrorOutOfDeviceMemory
    > ggml_vulkan: Failed to allocate pinned memory
    requested[M]: system memory <- "allocate {number} MiB of pinned"
ggml-wired | llama.cpp | role=soft behind=60
    = More is allocated than Metal recommends for one process. The program goes on, and may fail while it computes.
    in ggml/src/ggml-metal/ggml-metal.m
    > current allocated size is greater than the recommended max working set size
    allocated[M]: buffers of this process <- "( {number} /"
    limit[M]: what Metal recommends for one process <- "/ {number})"
ggml-nil | llama.cpp
    = No Metal buffer holds a tensor that is to be computed: its buffer was refused, or is too small.
    in ggml-metal.m (until 2024)
    > ggml_metal_get_buffer: error: buffer is nil
ollama-system | Ollama | family=host
    = The model needs more system memory than is free.
    in ollama/server/sched.go, llm/server.go
    > model requires more system memory
    > model request too large for system
    requested: system memory that the model needs <- "more system memory ({size})" "requested{sep}{size}"
    available: system memory that is free <- "than is available ({size})" "available{sep}{size}"
    memory_total: all system memory <- "total{sep}{size}"
    swap: swap space that is free <- "swap{sep}{size}"
    mark host <- "system"
ollama-offload | Ollama | role=soft family=ggml
    = Ollama lays no layer on the GPU, by its count of what is needed and free there. It goes on with the processor.
    in ollama/llm/memory.go, server.go (until 2025)
    > layers.offload=0 layers.split
    device_needed: what Ollama counts for the whole model <- "required.full={sep}{size}"
    device_available: free on the device, as Ollama counts <- 'available="[{size}'
    mark not_returned <- "usage didn't recover within timeout"
ggml-context | llama.cpp
    = The pool for the tensors of a context, a buffer of fixed size that the program allocates at its start, was too
        small.
    in ggml/src/ggml.c, ggml_new_object
    > not enough space in the context's memory pool (needed {number}, available {number}
    requested: bytes that the pool must have <- "(needed {number},"
    available: bytes of the pool <- ", available {number}"
ggml-device | llama.cpp | role=before
    = A device at the start: its memory, and what was free.
    in ggml/src/ggml-cuda/ggml-cuda.cu, src/llama.cpp
    > VRAM: {number} MiB
    > ) - {number} MiB free
    device_total[M]: the whole device <- "VRAM: {number} MiB"
    device_free_at_start[M]: free when the program started <- ") - {number} MiB free"
""")


# ------------------------------------------------------------------------------
# Libraries and programs with an allocator of their own, of which bfcviz knows only the text.

PROGRAMS: Final = messages_of(r"""
paddle | PaddlePaddle
    = The driver refused a request. What has been allocated is what all processes hold together, as the driver counts
        it; if a limit is set, what this process holds of it. Both numbers together are the device, or the limit.
    in paddle/phi/core/memory/allocation/cuda_allocator.cc
    > Out of memory error on GPU {number}. Cannot allocate {size}
    > enforce allocating <= available failed, {number} > {number}
    requested: bytes that were asked of the driver <- "Cannot allocate {size}" "available failed, {number} >"
    device_used: in use on the device by all processes, or of the limit by this one (2.0 and later) <-
        "{size} memory has been allocated"
    device_free: free on the device, or below the limit <- "available memory is only {size}"
        "available memory is {size}" "available failed, {skip} > {number}"
    limit[M]: FLAGS_gpu_memory_limit_mb: what this process may use <- "`FLAGS_gpu_memory_limit_mb` is {number}"
    device <- "error on GPU {number}."
program-julia | CUDA.jl
    = CUDA.jl collected garbage, returned its cache, asked again, and was refused by the driver or by its limit.
    in CUDA.jl/src/pool.jl, OutOfGPUMemoryError
    > Out of GPU memory trying to allocate {size}
    requested: bytes of the request <- "trying to allocate {size}"
    device_used: in use on the device by all processes <- "Effective GPU memory usage: {skip} ({size}/"
    device_total: the whole device <- "Effective GPU memory usage: {skip} ({skip}/{size})"
    allocated: what CUDA.jl holds, or of its pool what arrays use <- "CUDA allocator usage: {size}"
        "GPU memory usage: {size} (capped" "Memory pool usage: {size}"
    reserved: what the pool holds <- "Memory pool usage: {skip} ({size} reserved)"
    limit: the limit that was set <- "(capped at {size})" "Memory limit: hard = {size}"
        "Memory limit: {skip} hard = {size}"
program-julia-retry | CUDA.jl | role=soft
    = The driver refused a request; CUDA.jl frees what it can, and asks again.
    in CUDA.jl/src/pool.jl
    > CUDA memory allocation failed; attempting to free up memory
program-theano | Theano
    = The driver refused a request.
    in theano/sandbox/cuda/cuda_ndarray.cu
    > Error allocating {number} bytes of device memory
    requested: bytes of the request <- "allocating {number} bytes of device"
    device_free: free on the device <- "Driver report {number} bytes free"
    device_total: the whole device <- "bytes free and {number} bytes total"
program-xgboost | XGBoost
    = The driver refused a request.
    in xgboost/src/common/device_helpers.cu
    > Memory allocation error on worker {number}:
    > - Free memory: {size} - Requested memory: {size}
    requested: bytes of the request <- "Requested memory: {size}"
    device_free: free on the device <- "Free memory: {size}"
program-catboost | CatBoost
    = CatBoost takes most of the device at the start, as one pool. A request was larger than the block at the end of
        the pool that is free.
    in catboost/cuda/cuda_lib/memory_pool/stack_like_memory_pool.h
    > Error: Out of memory. Requested {number} MB; Free {number}
    > Out of memory. Requested {number}; Free
    requested[M]: bytes of the request <- "Out of memory. Requested {number}"
    available[M]: the free block at the end of the pool <- "; Free {number}"
program-opencl | OpenCL | behind=200 weak
    = OpenCL could not allocate a buffer: the device is full, or one buffer is larger than it allows for any.
    in OpenCL, error -4
    > MEM_OBJECT_ALLOCATION_FAILURE
    > Memory Object Allocation Failure
    > clCreateBuffer {skip}-4{alone}
    requested: bytes of the buffer <- "clCreateBuffer({skip}, {number},"
program-call | GPU program | family=program weak
    = A program that computes or draws on the GPU was refused memory of the device, or counted that it would be. Most
        print no number.
    in onnxruntime and others (WebGPU), Blender, OptiX, Mitsuba 2, hashcat, COLMAP, LAMMPS, Unreal Engine, MATLAB,
        OpenVINO, TensorFlow.js, tinygrad, Sophgo, Spark RAPIDS, ND4J
    > WebGPU device error(2): Out of memory <- "WebGPU"
    > Memory_Allocation_Failure(EL0004) <- "Ascend CANN"
    > Out of memory in cu{word}( <- "Blender"
    > Out of memory in hip{word}( <- "Blender"
    > System is out of GPU memory <- "Blender"
    > System is out of GPU and shared host memory <- "Blender"
    > returned (2): Out of memory <- "OptiX"
    > cuda_malloc(): out of memory <- "Mitsuba 2"
    > cuMemAlloc(): out of memory <- "hashcat"
    > Not enough allocatable device memory <- "hashcat"
    > Not enough GPU memory to match {number} features <- "COLMAP"
    > Insufficient memory on accelerator <- "LAMMPS"
    > out of video memory trying to allocate a rendering resource <- "Unreal Engine"
    > An application has requested more GPU memory than is available in the system <- "NVIDIA driver"
    > Out of memory on device. To view more detail about available memory on the GPU <- "MATLAB"
    > Exceeded max size of memory object allocation <- "OpenVINO"
    > EL0004: [PID: {number}] <- "Ascend CANN"
    > zeMemAlloc{word} {skip}{skip}0x70000003{alone} <- "oneAPI"
    > not provide enough allocatable device-memory <- "hashcat"
    > Requested texture size [{word}] greater than WebGL maximum <- "TensorFlow.js"
    > Device::create_buffer Not enough memory left <- "WebGPU"
    > Device::create_buffer note: label = {skip} Not enough memory left <- "WebGPU"
    > Device::create_texture Not enough memory left <- "WebGPU"
    > Cannot allocate {number} bytes: no memory is available <- "tinygrad"
    > bm_alloc_gmem failed, dev_id <- "Sophgo"
    > Device store exhausted, unable to allocate {number} bytes <- "Spark RAPIDS"
    > GPU OutOfMemory: could not split inputs and retry <- "Spark RAPIDS"
    > rapids.jni.SplitAndRetryOOM <- "Spark RAPIDS"
    > rapids.jni.RetryOOM <- "Spark RAPIDS"
    > rapids.jni.GpuSplitAndRetryOOM <- "Spark RAPIDS"
    > rapids.jni.GpuRetryOOM <- "Spark RAPIDS"
    > Failed to allocate {number} bytes from DEVICE [{number}] memory
    > Can't allocate [DEVICE] {word} {word} memory <- "ND4J"
    requested: bytes of the buffer <- "Buffer size ({number}) exceeds" "allocation: requested {number} bytes"
        "Cannot allocate {number} bytes" "unable to allocate {number} bytes"
        "Failed to allocate {number} bytes from DEVICE" "rtMalloc fail, {skip} size:{number},"
        "with info [size:{number}]" "zeMemAlloc{word} size={number} bytes"
        "bm_alloc_gmem failed, {skip}, size = {amount}"
    reserved: what RMM holds <- "Total RMM allocated is {number} bytes"
    limit: the largest buffer of this device <- "max buffer size limit ({number})"
        "supported by device is {number} bytes" "max alloc size is {number} bytes"
    mark counted <- "Not enough allocatable" "enough allocatable device-memory"
    mark cann <- "EL0004"
    mark shared_host <- "shared host memory"
    mark one_buffer <- "exceeds the max buffer size" "max size of memory object" "greater than WebGL maximum"
    mark no_context <- "cuCtxCreate" "DevicePrimaryCtxRetain" "torch._C._cuda_init()"
    device <- "bm_alloc_gmem failed, dev_id = {number},"
program-limit | WebGPU | family=program weak
    = A buffer is larger than its device was opened for, or than the region that it belongs to. How much memory is
        free has nothing to do with it.
    in Dawn, wgpu; tvm/src/runtime/relax_vm/memory_manager.cc
    > Buffer size ({number}) exceeds the max buffer size limit ({number})
    > Buffer size {number} is greater than the maximum buffer size ({number})
    > inding size ({number}) of {skip} is larger than the maximum {skip} size ({number})
    > Required limit ({number}) is greater than the supported limit ({number})
    > attempted to allocate {number} at offset {number} in region that is {number}bytes <- "TVM"
    requested: bytes of the buffer <- "uffer size ({number}) exceeds" "uffer size {number} is greater"
        "inding size ({number})" "equired limit ({number})" "to allocate {number} at offset"
    limit: the most that is allowed <- "max buffer size limit ({number})" "maximum buffer size ({number})"
        "the maximum {skip} size ({number})" "supported limit ({number})" "in region that is {number}bytes"
program-oneflow | OneFlow
    = The driver refused a request.
    in oneflow/core/ep/cuda/cuda_device.cpp
    > Error: CUDA out of memory. Tried to allocate {size} You can set ONEFLOW_DEBUG
    > oneflow::RuntimeException' what(): Error: CUDA out of memory.
    requested: bytes of the request <- "Tried to allocate {size}"
program-faiss | FAISS | behind=120
    = The driver refused a request: for vectors, or for the scratch memory that FAISS takes at the start.
    in faiss/gpu/StandardGpuResources.cpp
    > failed to cudaMalloc {number} bytes
    > size {number} bytes (cudaMalloc error out of memory
    requested: bytes of the request <- "cudaMalloc {number}" "size {number} bytes (cuda"
    device <- "dev {number} space"
program-hami | HAMi
    = HAMi, which divides a GPU between containers, refused: with this request the container would hold more than it
        may. The device itself refused nothing.
    in HAMi-core, src/allocator/allocator.c
    > Device {number} OOM {number} / {number}
    total_with_request: what the container would hold <- "OOM {number} /"
    limit: what it may hold <- "OOM {skip} / {number}"
    device <- "Device {number} OOM"
program-neuron | AWS Neuron
    = The runtime was refused memory of the device, for weights or for the buffers of a compiled program.
    in Neuron runtime (libnrt)
    > Failed to alloc DEVICE memory: {number}
    > status=4 message="Allocation Failure"
    > status=4 message=Allocation Failure
    > 'NERR_RESOURCE' (4) The runtime was unable to allocate
    > Failure: NRT_RESOURCE in
    requested: bytes that were asked of the device <- "DEVICE memory: {number}"
program-tenstorrent | Tenstorrent
    = No bank of a memory had room for its part of a buffer: the runtime divides each buffer over all banks.
    in tt-metal, tt_metal/impl/allocator/bank_manager.cpp
    > Not enough space to allocate {number} B {word} buffer across {number} banks
    buffer: bytes of the buffer in all banks <- "space to allocate {number} B"
    requested: bytes of it in each bank <- "each bank needs to store {number} B"
    limit: size of a bank <- "bank size is only {number} B" "bank size is {number} B"
    allocated: in use in a bank <- "(allocated: {number} B"
    available: free in a bank <- "free: {number} B"
    largest_free: the largest free piece of a bank <- "largest free block: {number} B"
program-gaudi | Intel Gaudi
    = PyTorch on Gaudi was refused memory of the device.
    in habana_frameworks.torch
    > MODULE:PT_DEVMEM Allocation failed for size::{number}
    requested: bytes of the request <- "failed for size::{number}"
program-kokkos | Kokkos
    = An array was refused, in the memory that the text names: that of the device, or that of the system (Host).
    in kokkos/core/src/impl/Kokkos_SharedAlloc
    > Kokkos failed to allocate memory for label
    > Kokkos::HostSpace::allocate[ {word} {word} {number} ) FAILED
    requested: bytes of the array <- "Allocation of size {size} failed" "( {number} ) FAILED"
    mark host <- 'MemorySpace named "Host"' "HostSpace"
    mark other_error <- "because of an unknown error"
program-warp | Warp
    = The driver refused a request.
    in warp/types.py, warp/context.py
    > Memory allocation failed on device: cuda{word} for {number} bytes
    > Memory allocation failed on device: cuda for {number} bytes
    > Failed to allocate {number} bytes on device 'cuda
    requested: bytes of the array <- "for {number} bytes" "allocate {number} bytes"
program-picongpu | PIConGPU
    = PIConGPU counts what is free before it reserves memory, and found too little. Ranks that share a device see what
        the others took.
    in PIConGPU
    > Cannot reserve {size} as there is only {size} free device memory left
    requested: bytes that it reserves <- "Cannot reserve {size} as"
    device_free: free on the device <- "there is only {size} free device"
program-kaldi | Kaldi
    = The driver refused a region for Kaldi's pool.
    in kaldi/src/cudamatrix/cu-allocator.cc
    > Failed to allocate a memory region of {number} bytes
    requested: bytes of the region <- "region of {number} bytes"
    device_free: free on the device <- "free:{size}"
    device_used: in use on the device by all processes <- "used:{size}"
    device_total: the whole device <- "total:{size}"
program-physx | PhysX
    = The driver refused a buffer of the simulation.
    in PhysX/source/gpucommon
    > PxgCudaDeviceMemoryAllocator fail to allocate memory {number} bytes
    requested: bytes of the buffer <- "allocate memory {number} bytes"
program-directml | DirectML
    = Direct3D refused memory for a tensor.
    in torch-directml
    > Could not allocate tensor with {number} bytes. There is not enough GPU video memory
    requested: bytes of the tensor <- "tensor with {number} bytes"
program-relion | RELION
    = RELION takes most of what is free on the device at the start, as one pool for each process. The pool had no
        piece that was large enough.
    in relion/src/acc/cuda/custom_allocator.cuh
    > udaCustomAllocator out of memory
    requested: bytes of the request <- "requestedSpace: {size}"
    largest_free: the largest free piece of the pool <- "ContinuousFreeSpace: {size}"
    available: free in the pool, in all pieces <- "totalFreeSpace: {size}"
program-exllama | ExLlama | weak
    = ExLlama puts layers and cache on one device after the other, and there was too little on the last for the rest:
        of its free memory, or of the share of it that is set.
    in exllamav3/model/model.py, exllamav2/model.py
    > Insufficient VRAM in split for model and cache
    > Insufficient VRAM for model and cache
program-resources | oneAPI | family=program weak
    = The driver returned `out of resources`: most often memory of the device, else what a kernel needs, or a kernel
        that failed.
    in oneAPI, Unified Runtime; OpenCL, error -5
    > UR_RESULT_ERROR_OUT_OF_RESOURCES <- "oneAPI"
    > PI_ERROR_OUT_OF_RESOURCES <- "oneAPI"
    > CL_OUT_OF_RESOURCES <- "OpenCL"
    > failed: out of resources <- "OpenCL"
    > Error: Out of resources <- "OpenCL"
program-hsa | ROCm | family=program weak
    = A queue of the GPU ended because the runtime could not allocate what it needs: memory of the device or of the
        system, or a thread.
    in ROCR-Runtime; clr/rocclr/device/rocm/rocdevice.cpp
    > HSA_STATUS_ERROR_OUT_OF_RESOURCES
    device_free[M]: free on the device <- "Available Free mem : {number} MB"
status-limit | gRPC | weak
    = A message is larger than gRPC allows for one, or a quota of requests is used up. No memory was refused.
    in gRPC, status 8
    > received message larger than max ({number} vs
    > trying to send message larger than max ({number} vs
    > Sent message larger than max ({number} vs
    > 429 RESOURCE_EXHAUSTED
    > RESOURCE_EXHAUSTED: Quota exceeded
    requested: bytes of the message <- "larger than max ({number} vs"
    limit: the most that one message may have <- "larger than max ({skip} vs {number})" "({skip} vs. {number})"
status-exhausted | Unknown program | weak
    = Something ran out. TensorFlow, XLA and JAX say so of memory; gRPC also of quotas, and of messages that are too
        large.
    in absl::StatusCode::kResourceExhausted (8)
    > {start}RESOURCE_EXHAUSTED
    > Error: RESOURCE_EXHAUSTED
    > StatusCode.RESOURCE_EXHAUSTED
    > code = ResourceExhausted
program-dispatch | Transformers | family=program weak
    = device_map found too little room on the devices for a quantized model, so that a part would lie in system memory
        or on disk, which bitsandbytes does not allow by default. No device refused anything.
    in transformers/quantizers/quantizer_bnb_4bit.py, quantizer_bnb_8bit.py
    > Some modules are dispatched on the CPU or the disk
program-encoder | NVENC | weak
    = The encoder of the GPU opened no session. Drivers allow a few sessions at once on a GeForce, and return this
        error above that; memory is rarely the reason.
    in ffmpeg, libavcodec/nvenc.c
    > OpenEncodeSessionEx failed: out of memory (10)
    > nvEncOpenEncodeSessionEx: 10 (
program-windows | Windows | weak
    = A call returned E_OUTOFMEMORY, as Direct3D and DirectML do when memory of the GPU or of the system runs out.
    in Windows, E_OUTOFMEMORY
    > 8007000E Not enough memory resources are available
""")


# ------------------------------------------------------------------------------
# vLLM and SGLang: what they say at the start, when their share of the device is too small or not free.

VLLM: Final = messages_of(r"""
vllm-profile | vLLM | role=before behind=300
    = What the trial run found: the share of the device, and what weights and activations take of it.
    in vllm/worker/worker.py (0.6 to 0.8)
    > model weights take {size}
    > Memory profiling results: total_gpu_memory
    device_total: the whole device <- "total_gpu_memory ({size})" "total_gpu_memory={size}"
    limit: gpu_memory_utilization x the device <- "gpu_memory_utilization ({skip}) = {size}"
    weights: weights of the model <- "model weights take {size}"
    outside: what lies outside of PyTorch's pool <- "non_torch_memory takes {size}" "non_torch_memory={size}"
    peak: activations at the peak of the trial run <- "activation peak memory takes {size}"
    kv_available: what is left for the KV cache <- "reserved for KV Cache is {size}" "kv_cache_size={size}"
vllm-blocks | vLLM | behind=4000
    = Nothing was refused by the device: gpu_memory_utilization x the device, less weights and the peak of a trial
        run, leaves nothing for the KV cache.
    in vllm/v1/core/kv_cache_utils.py
    > No available memory for the cache blocks
    kv_available: what is left for the KV cache <- "KV cache memory: {size}"
    mark kv <- "cache blocks"
vllm-length | vLLM | behind=300
    = The KV cache that fits holds fewer tokens than one request may have. Nothing was refused by the device.
    in vllm/v1/core/kv_cache_utils.py
    > larger than the maximum number of tokens that can be stored in KV cache
    > larger than the available KV cache memory
    requested: the KV cache of one request of the maximum length <- "({size} KV cache is needed"
    kv_available: what is left for the KV cache <- "available KV cache memory ({size})"
    max_tokens: the maximum length of a request <- "max seq len ({number})"
    kv_tokens: tokens that fit <- "stored in KV cache ({number})" "maximum model length is {number}"
    mark kv <- "KV cache"
    mark length <- "larger"
vllm-start | vLLM | behind=120
    = Before anything was loaded, less was free on the device than the share that vLLM is told to take. vLLM looks
        after it made its own context on the device.
    in vllm/v1/worker/gpu_worker.py
    > is less than desired GPU memory utilization
    device_free[G]: free at the start <- "({number}/"
    device_total[G]: the whole device <- "/{number} GiB)"
    requested: gpu_memory_utilization x the device <- "utilization ({skip}, {size})"
    device <- "on device cuda:{number} ("
vllm-warmup | vLLM | family=torch
    = vLLM made a trial run at the start, with so many made-up requests at once, and PyTorch was refused memory.
    in vllm/v1/worker/gpu_model_runner.py
    > CUDA out of memory occurred when warming up sampler with {number} dummy requests
    > CUDA out of memory occurred when warming up pooler {skip} with {number} dummy requests
    max_requests: requests at once (--max-num-seqs) <- "with {number} dummy requests"
    mark vllm <- "warming up"
vllm-profiling | vLLM | alone
    = Another process took or freed memory of the device while vLLM measured its own peak.
    in vllm/v1/worker/gpu_worker.py
    > Error in memory profiling
    device_free: free after the trial run <- "current free memory {size}"
    mark profiling <- "profiling"
sglang-fraction | SGLang | family=vllm behind=1000
    = The share of the device for weights and KV cache is too small for the weights.
    in sglang/srt/model_executor/model_runner.py
    > Not enough memory. Please try to increase --mem-fraction-static
    > Loaded weights leave no GPU memory for the KV cache
    weights: weights of the model on one device <- "mem usage={size}"
    device_free: free on the device after they were loaded <- "avail mem={size}"
    mark kv <- "mem-fraction-static"
sglang-tokens | SGLang | family=vllm
    = The pool for the KV cache, or the table of running requests, has no room for a batch. Both have the size that
        was set at the start. Nothing was refused by the device.
    in sglang/srt/mem_cache/common.py, sglang/srt/managers/schedule_batch.py
    > Decode out of memory. Try to lower your batch size
    > Prefill out of memory. Try to lower your batch size
    > alloc_req_slots runs out of memory
    asked_tokens: tokens that a batch needs <- "Try to allocate {number} tokens"
    free_tokens: tokens of the KV cache that are free, or may be replaced <- "Available tokens: {number}"
        "Avaliable tokens: {number}"
    asked_requests: requests of a batch <- "num_reqs={number}"
    free_requests: free entries in the table of running requests <- "req_to_token_pool.available_size()={number}"
    mark tokens <- "of memory. Try"
    mark prefill <- "Prefill out"
vllm-preempt | vLLM | role=soft
    = The KV cache was full while the server computed answers: it put requests back, and goes on with them later.
    in vllm/core/scheduler.py
    > mode because there is not enough KV cache space
    preemptions: requests that were put back since the start <- "preemption_cnt={number}"
        "cumulative_preemption={number}"
lmcache-full | LMCache | role=soft behind=160
    = The pool that LMCache keeps parts of the KV cache in was full, so that it did not keep or load one.
    in lmcache/v1/memory_management.py, lmcache/v1/storage_backend
    > torch.{word}) because no memory is available
    > torch.{word}) because no free blocks is available
    > LMCache WARNING: Failed to allocate memory block of size {number}
    > LMCache WARNING: Failed to allocate memory object, retrying
    > Memory allocation failed during {word} disk load. ({word}lmcache.
    requested: bytes of the part <- "memory block of size {number}"
triton-fallback | Triton Inference Server | role=soft behind=200
    = The pool of pinned system memory, or of CUDA memory, that the server made at its start is used up or was not
        made; the server takes other memory instead.
    in tritonserver, core/src/pinned_memory_manager.cc, backend/src/backend_memory.cc
    > falling back to non-pinned system memory
    > falling back to pinned system memory
    > pinned memory pool will not be available
    > unable to create backend memory for type
    requested: bytes of the buffer <- "memory with byte size {number}"
sglang-retract | SGLang | role=soft family=vllm
    = The KV cache was full while the server computed answers: it put requests back, and goes on with them later.
    in sglang/srt/managers/scheduler.py
    > Decode out of memory happened. #retracted_reqs
    > KV cache pool is full. Retract requests
    retracted_requests: requests that were put back <- "#retracted_reqs: {number}"
trtllm-tokens | TensorRT-LLM | family=vllm
    = The KV cache is too small for one sequence of the longest length that the engine may serve.
    in cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp
    > maxTokensInPagedKvCache ({number}) must be large enough to process at least 1 sequence
    kv_tokens: tokens that fit <- "PagedKvCache ({number})"
trtllm-executor | TensorRT-LLM | weak
    = A component could not be created at the start, such as the KV cache: PyTorch was refused memory.
    in tensorrt_llm/_torch/pyexecutor/py_executor_creator.py
    > Executor creation failed due to insufficient GPU memory
    device_total[G]: the whole device <- "Total GPU memory (GiB): {number}"
    device_free[G]: free before the component was created <- "before component creation attempt (GiB): {number}"
    before_model[G]: free before the model was loaded <- "Model: {number} /"
    after_model[G]: free after the model was loaded <- "Model: {skip} / {number}"
tgi-tokens | Text Generation Inference | family=torch
    = The trial run at the start found too little memory for the tokens of a batch that the options allow. The error
        of PyTorch before it has the numbers of the device.
    in text_generation_server/models/flash_causal_lm.py, warmup
    > Not enough memory to handle {number} prefill tokens
    > Not enough memory to handle {number} total tokens
    prefill_tokens: tokens of the prompts of the trial run <- "{number} prefill tokens"
    total_tokens: tokens for which the KV cache shall have room <- "{number} total tokens"
    mark tgi <- "Not enough memory to handle"
flashinfer-workspace | FlashInfer | family=vllm
    = The workspace of the attention kernels, a buffer of fixed size that the server allocates at the start, is too
        small for a batch. Nothing was refused by the device.
    in flashinfer/include/flashinfer/allocator.h
    > Failed to allocate memory for {word} with size {number} and alignment
    requested: bytes of the workspace for one purpose <- "with size {number} and"
    mark workspace <- "alignment"
""")


# ------------------------------------------------------------------------------
# What the other ranks of a job print when one of them ends or hangs.

PEERS: Final = messages_of(r"""
peer-lost | Distributed job | role=consequence behind=20
    = A rank waited too long for another one, or the connection to it broke: most often that one failed or hung
        before; a fault of the network says the same. It is no lack of memory of the rank that tells it.
    in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; gloo/transport/tcp/pair.cc; nccl/src/misc/socket.cc; Horovod;
        tsl/distributed_runtime/coordination
    > Watchdog caught collective operation timeout
    > pair.cc:{number}] Connection closed by peer
    > pair.cc:{number}] Read error {word}: Connection reset by peer
    > pair.cc:{number}] Write error {word}: Broken pipe
    > Timed out waiting {number}ms for recv operation to complete
    > remote process exited or there was a network error
    > ncclRemoteError: A call failed
    > socketProgress: Connection closed by remote peer
    > > failed : Connection reset by peer
    > Horovod has been shut down
    > This most likely indicates that another task died
    > Polled an error from coordination service
    > The following tasks are unhealthy (stopped sending heartbeats)
    rank <- "[Rank {number}] Watchdog"
peer-ended | Distributed job | role=consequence
    = A rank was ended by SIGTERM. Where another one failed, the launcher ends the rest of the job so.
    in torch/distributed/elastic/multiprocessing/errors; OpenMPI, Slurm
    > SignalException: Process {number} got signal: 15
    > Received SIGTERM
    > received signal 15
    > exited on signal 15 (Terminated)
    > task {number}: Terminated
    > failed (exitcode: -15)
    rank <- "task {number}: Terminated" "process rank {number} with PID"
""")


# ------------------------------------------------------------------------------
# Any other program: the words that programs print when memory runs out, and what the words around them say of it.

ANY: Final = messages_of(r"""
any-memory | Unknown program | place=printed weak
    = A program that bfcviz does not know was refused memory, in words that many print. The words around them say
        whether it is memory of the GPU or of the system, if the text says so.
    in any program; of Windows the numbers of its errors, of glibc the text of ENOMEM in other languages
    > out of memory
    > out of {word} memory
    > out of gpu resources
    > bad allocation
    > out_of_memory
    > out_of_{word}_memory
    > OutOfMemory
    > insufficient memory
    > insufficient {word} memory
    > insufficient system resources
    > not enough resources to load the model with the current settings
    > not enough resources to load the model
    > not enough memory
    > not enough {word} memory
    > not have enough memory
    > not have enough free memory
    > enough free memory
    > memory not available
    > memory isn't enough,
    > memory isn't enough{end}
    > memory is not enough,
    > memory is not enough{end}
    > memory too low on
    > memory too low to
    > allocate enough memory
    > cannot allocate
    > can't allocate
    > could not allocate
    > failed to allocate
    > unable to allocate
    > failed to reallocate
    > error allocating
    > error when allocating
    > error while allocating
    > memory exhausted
    > memory allocation failed
    > memory allocation error
    > allocation failed
    > more than total mem size
    > 0x8007000E
    > 0x80070008
    > 0xC0000017
    > No se pudo asignar memoria
    > Impossibile allocare memoria
    > Nicht genügend Hauptspeicher verfügbar
    > 无法分配内存
    requested: bytes of the request <- "to allocate {amount}" "to reliably allocate {amount}" "to allocate: {amount}"
        "to allocate a {amount}" "allocate buffer: {amount}" "alloc size : {amount}"
        "allocate {skip} of size {amount}" "allocation of {amount}" "allocation {amount}"
        "allocation error {word}: {amount}" "allocate {amount}" "required: {amount}" "required memory: {amount}"
        "bytes = {amount}" "failed to find {amount}" "requires approximately {amount}" "requires {amount}"
        "requested {amount}" "requested: {amount}" "request of size {amount}" "size {amount}" "size: {amount}"
        "size = {amount}" "size={amount}"
    device_free: free on the device <- "free VRAM {amount}" "VRAM free {amount}" "free VRAM: {amount}"
        "VRAM free: {amount}" "{amount} VRAM free" "free: {amount}" "{amount} free" "available: {amount}"
        "{amount} available"
    device_total: the whole device <- "total VRAM {amount}" "VRAM total {amount}" "total VRAM: {amount}"
        "VRAM total: {amount}" "free VRAM {skip} of {amount}" "{skip} free of {amount}"
    allocated: what the program holds <- "UsedMemStatistics : {amount}"
    limit: the most that the program may have <- "total mem size : {amount}" "max memory: {amount}"
        "memory limit: {amount}"
    device <- "[ID={number}," "GPU #{number}" "GPU {number}:" "device {number}{alone}" "device_id:{number}"
""")

ANY_PROGRAMS: Final = {
    name: re.compile(pattern)
    for name, pattern in (
        ("CUDA.jl", r"\.julia/packages/CUDA/|^ERROR: Out of GPU memory"),
        ("Go", r"runtime: out of memory"),
        ("Spark RAPIDS", r"spark\.rapids"),
        (".NET", r"System\.OutOfMemoryException"),
        ("LLVM", r"\bLLVM ERROR\b"),
        ("Java", r"java\.lang\.OutOfMemoryError"),
        ("Windows", r"0x80070008|0xC0000017"),
        ("Qiskit", r"[Qq]iskit|statevector(?:_gpu)? simulator"),
        ("AMReX", r"\bamrex::|\bAMReX"),
        ("HeavyDB", r"MapDHandler|ERR_OUT_OF_\w+_MEM|GPU_MGR"),
        ("MindSpore", r"mindspore|Malloc for kernel output"),
        ("PaddlePaddle", r"[Pp]addle"),
        ("OpenVINO", r"(?i)openvino|intel_gpu"),
        ("CatBoost", r"(?i)catboost"),
        ("DirectML", r"\bDML\b"),
        ("T-Rex", r"\bTREX:|ethash epoch"),
        ("Chromium", r"GpuProcessHost"),
        ("NVIDIA driver", r"\bNVRM\b|nvidia[-_]drm"),
        ("AMD driver", r"\[drm[^\]\n]{0,40}amdgpu"),
        ("MIOpen", r"MIOpen"),
        ("Unity", r"MemoryLabel|DynamicHeapAllocator|d3d11: failed to create|D3D11: Failed to create"),
        ("Ray task", r"RayTaskError\(OutOfMemoryError\)"),
        (
            "LM Studio",
            r"model loading guardrails|Model loading was stopped due|lmstudio|LM Studio|enough resources to load",
        ),
        ("TVM", r"\bTVMError|\btvm::|/tvm/"),
        ("PostgreSQL", r"AllocSetAlloc|\b53200\b|Failed on request of size \d"),
        ("NVENC", r"(?i)nvenc|nv_enc|cuvid"),
        ("WebGPU", r"(?i)\bwgpu|\bwebgpu|GPUDevice|GPUBuffer"),
        ("OpenGL", r"\bOpenGL\b|\bGL_|WebGL|\bgl(?:Tex|Buffer|Frame|Render)\w+"),
        ("Direct3D", r"(?i)\bd3d\d|\bdxgi|0x8007000e|\bHRESULT|CreateCommittedResource"),
        ("oneAPI", r"\bZE_RESULT|\bUR_RESULT|\bze[A-Z][a-z]\w+|(?i:\bsycl|level.?zero)"),
        ("ROCm", r"\bhip[A-Z]\w+|\bHIP|(?i:\brocm|\bhsa_)"),
        ("OptiX", r"\bOPTIX_"),
        ("CUDA", r"(?i:\bcuda)|Cuda|\bcu[A-Z]\w+|\bCU(?:DA)?_|\bCUresult|\bnv(?:rtc|jpeg)|\bthrust::"),
        ("Vulkan", r"(?i:vulkan)|\b(?:vk|vma)[A-Z]\w+|\bVK_"),
        ("OpenCL", r"(?i:opencl)|\bcl[A-Z]\w+|\bCL_"),
        ("Metal", r"\bMTL\w+|\bMetal\b|\bMPS"),
        ("Python", r"\bMemoryError\b"),
        ("Linux", r"fork/exec|(?i:\berrno 12\b|os error 12\b|\benomem\b)"),
    )
}
"""A program or a driver -> the words of its lines; the first that fits."""

ANY_OF_GPU: Final = re.compile(
    r"(?i:\bgpus?\b|gpu(?=[A-Z_])|for kernel output|vram|video memory|graphics memory|device[ _]memory|\bcuda|nvenc"
    r"|nvdec|texture|render|\bd3d|d3d(?=\d)|directml|\bdml\b|dxgi|vulkan|open[cg]l|webgl|\bwgpu|webgpu|\bhip|rocm|miopen"
    r"|mindspore|\boptix|\bnpu\b|\bhbm\b|accelerator|\bDAG\b|RayTaskError\(OutOf|\bsycl|\bthrust::|on device|device id)"
    r"|\b(?:cu|vk|vma|cl|hip|gl)[A-Z]\w|\b(?:GL|VK|CL|ZE|UR|CU|HSA)_|\bMTL|\bCUresult"
)
"""What only lines on memory of a GPU have."""

ANY_OF_HOST: Final = re.compile(
    r"(?i:\bheap\b|\bmalloc\b|\bcalloc\b|\bmmap\b|\bfork\b|fork/exec|\bram\b|system memory|system out of memory"
    r"|host[ _]memory|physical memory|virtual memory|\bswap\b|\bcpu\b|os error|errno|enomem|array ?buffer"
    r"|system resources|bad allocation)|\bruntime: out|(?:System|java\.lang)\.OutOfMemoryE|0x80070008|0xC0000017"
    r"|AllocSet|\bLLVM ERROR"
    r"|DynamicHeap|\bMemoryError\b|asignar memoria|allocare memoria|Hauptspeicher|分配内存"
)
"""What only lines on memory of the system have."""


# ------------------------------------------------------------------------------
# The table, and the page made from it.

TABLES: Final[tuple[Message, ...]] = (
    *SYSTEM,
    *HOST,
    *torch.MESSAGES,
    *xla.MESSAGES,
    *onnxruntime.MESSAGES,
    *tensorflow.MESSAGES,
    *cupy.MESSAGES,
    *rmm.MESSAGES,
    *GGML,
    *PROGRAMS,
    *VLLM,
    *PEERS,
    *ANY,
)
"""Of two texts that begin at one place, the longer counts, of two of one length the first."""

ENTRIES: Final = {entry.name: entry for entry in TABLES}
"""Name of an entry -> the entry."""


def counts(message: str, fact: str) -> str:
    """What a number of a message counts; "" where no table says it.

    Args:
        message: name of the entry that told the failure.
        fact: name of the number.
    """
    mine = ENTRIES[message]
    family = [entry for entry in TABLES if entry.family and entry.family == mine.family]
    near = [mine, *(entry for entry in family if entry.framework == mine.framework), *family]
    own, others = (
        next((number.counts for entry in entries for number in entry.numbers if number.name == fact), "")
        for entries in (near, TABLES)
    )
    return own or _DERIVED.get(fact, others)


_DERIVED: Final = {
    "device_total": "the whole device",
    "device_free": "free on the device",
    "device_used": "in use on the device by all processes",
    "device_free_at_start": "free on the device in the table of nvidia-smi",
    "missing_tokens": "tokens too few: the profile of the KV cache is below zero",
    "compiler_limit": "what XLA's compiler counted on for the program, by its warning before",
    "below_zero": "how far the size of the request is below zero",
}
"""Numbers that follow from others, where no table of the framework has them."""


def page() -> str:
    """The page of the guide on what each message of the tables means, as Markdown."""
    lines = []
    for framework in dict.fromkeys(entry.framework for entry in TABLES):
        lines += [f"### {framework}", ""]
        for entry in TABLES:
            if entry.framework == framework:
                lines += _message_table_section(entry)
    return "\n".join(lines).rstrip() + "\n"


def _message_table_section(entry: Message) -> list[str]:
    """The section of the guide on one message of the tables."""
    begins = " or ".join(f"`{_message_table_text(text)}`" for text in entry.begins[:3])
    lines = [f"**{begins}** ({entry.source}). {entry.means}", ""]
    if entry.numbers:
        lines += ["| number | what it counts | name in `--json` |", "| --- | --- | --- |"]
        lines += [
            f"| `{_message_table_text(number.texts[0])}` | {number.counts} | `{number.name}` |"
            for number in entry.numbers
        ]
        lines.append("")
    return lines


def _message_table_text(text: str) -> str:
    """A template of the tables as a person reads it."""
    for place in ("{size}", "{bytes}", "{amount}", "{number}", "{count}", "{skip}{skip}", "{skip}", "{word}"):
        text = text.replace(place, "...")
    for place in ("{start}", "{end}", "{alone}"):
        text = text.replace(place, "")
    return text.replace("{sep}", ": ").replace("|", r"\|")

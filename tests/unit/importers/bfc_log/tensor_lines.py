"""Lines of `__LOG_MEMORY__`, as TensorFlow writes them."""

PREFIX = "2017-01-26 10:13:30: I tensorflow/core/framework/log_memory.cc:35] __LOG_MEMORY__ "


BASE = 0x1_0200_0000


def allocation(
    number: int, address: int, requested: int, kernel: str = "a0", allocator: str = "gpu_bfc"
) -> str:
    allocated = -(-requested // 256) * 256
    return (
        f'{PREFIX}MemoryLogTensorAllocation {{ step_id: 2 kernel_name: "{kernel}" tensor {{ dtype: DT_FLOAT shape '
        f"{{ dim {{ size: 250 }} dim {{ size: 4 }} }} allocation_description {{ requested_bytes: {requested} "
        f'allocated_bytes: {allocated} allocator_name: "{allocator}" allocation_id: {number} '
        f"has_single_reference: true ptr: {address} }} }} }}\n"
    )


def free(number: int, allocator: str = "gpu_bfc") -> str:
    return (
        f'{PREFIX}MemoryLogTensorDeallocation {{ allocation_id: {number} allocator_name: "{allocator}" }}\n'
    )


LOG = (
    f'{PREFIX}MemoryLogStep {{ step_id: 1 handle: "->Print:0//0/;0" }}\n'
    + allocation(1, 0x5000, 12, "Unknown (from Proto)", "cpu")
    + allocation(1, BASE, 1000)
    + f'{PREFIX}MemoryLogTensorAllocation {{ step_id: 2 kernel_name: "g/Args" tensor {{ dtype: DT_INT32 shape '
    "{ dim { } } } }\n"
    + f'{PREFIX}MemoryLogStep {{ step_id: 2 handle: "->Print:0//0/;0" }}\n'
    + allocation(2, BASE + 1024, 5000, "conv")
    + "some text of the program\n"
    + free(1)
    + f'{PREFIX}MemoryLogRawAllocation {{ step_id: -3 operation: "TF_AllocateTensor" num_bytes: 512 ptr: {BASE} '
    'allocation_id: 3 allocator_name: "gpu_bfc" }\n'
)

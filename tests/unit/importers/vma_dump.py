"""A dump as the Vulkan Memory Allocator writes it."""

DUMP = {
    "General": {"API": "Vulkan"},
    "Total": {
        "BlockCount": 4,
        "BlockBytes": 9664,
        "AllocationCount": 4,
        "AllocationBytes": 2624,
        "UnusedRangeCount": 3,
    },
    "MemoryInfo": {
        "Heap 0": {
            "Size": 8000,
            "Budget": {"BudgetBytes": 7000, "UsageBytes": 6500},
            "MemoryPools": {"Type 0": {"Flags": []}},
        }
    },
    "DefaultPools": {
        "Type 0": {
            "PreferredBlockSize": 4096,
            "Blocks": {
                "0": {
                    "TotalBytes": 4096,
                    "Suballocations": [
                        {"Offset": 0, "Type": "BUFFER", "Size": 1000, "Usage": 3, "Name": "vertices"},
                        {"Offset": 1000, "Type": "FREE", "Size": 24},
                        {
                            "Offset": 1024,
                            "Type": "IMAGE_OPTIMAL",
                            "Size": 1024,
                            "Usage": 7,
                            "CustomData": "F5",
                        },
                        {"Offset": 2048, "Type": "FREE", "Size": 2048},
                    ],
                }
            },
            "DedicatedAllocations": [{"Type": "BUFFER", "Size": 500, "Usage": 1}],
        }
    },
    "CustomPools": {
        "Type 0": [
            {
                "Name": "staging",
                "Blocks": {
                    "0": {"TotalBytes": 4968, "Suballocations": [{"Offset": 0, "Type": "FREE", "Size": 4968}]}
                },
                "DedicatedAllocations": [{"Type": "UNKNOWN", "Size": 100}],
            }
        ]
    },
}

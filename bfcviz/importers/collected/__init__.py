"""What readers collect from a file before they make events of it.

`report_rows` keeps the allocations and frees of any file. `rmm_sections` splits RMM logs by heap, `kineto_events` finds
the memory events of a Chrome trace, `pprof_messages` reads the samples of a pprof profile.
"""

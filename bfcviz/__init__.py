"""bfcviz: see every split, merge and extension of a GPU memory heap.

The public names are loaded on first use: importing bfcviz loads no plotly, no widgets and no CUDA.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bfcviz.allocator.bfc_allocator import BFCAllocator as BFCAllocator
    from bfcviz.allocator.interface import Allocator as Allocator
    from bfcviz.allocator.interface import AllocatorOptions as AllocatorOptions
    from bfcviz.allocator.sub_allocators import HostSubAllocator as HostSubAllocator
    from bfcviz.allocator.sub_allocators import PythonSubAllocator as PythonSubAllocator
    from bfcviz.allocator.sub_allocators import SimulatedSubAllocator as SimulatedSubAllocator
    from bfcviz.dashboard import Inspector as Inspector
    from bfcviz.dashboard import LiveDashboard as LiveDashboard
    from bfcviz.dashboard.live_dashboard import follow as follow
    from bfcviz.devices.physical_devices import simulate_gpus as simulate_gpus
    from bfcviz.errors import BfcvizError as BfcvizError
    from bfcviz.errors import OutOfMemory as OutOfMemory
    from bfcviz.events.label_table import Labels as Labels
    from bfcviz.events.log import EventLog as EventLog
    from bfcviz.events.origin import Pool as Pool
    from bfcviz.events.storage.recording import Recording as Recording
    from bfcviz.events.trace import Trace as Trace
    from bfcviz.importers.open_trace import open_source as open  # noqa: A004, F401  bfcviz.open(path) reads well
    from bfcviz.live.cupy import observe_cupy as observe_cupy
    from bfcviz.live.cupy import serve_cupy as serve_cupy
    from bfcviz.live.jax import observe_jax as observe_jax
    from bfcviz.live.labels_and_marks import label as label
    from bfcviz.live.labels_and_marks import mark as mark
    from bfcviz.live.labels_and_marks import phase as phase
    from bfcviz.live.numpy import serve_numpy as serve_numpy
    from bfcviz.live.rmm import observe_rmm as observe_rmm
    from bfcviz.live.rmm import serve_rmm as serve_rmm
    from bfcviz.live.torch.observe import observe_torch as observe_torch
    from bfcviz.live.torch.serve import serve_torch as serve_torch
    from bfcviz.model import Model as Model
    from bfcviz.policy_comparison import compare_policies as compare_policies
    from bfcviz.public_functions import account as account
    from bfcviz.public_functions import compare_recordings as compare_recordings
    from bfcviz.public_functions import draw as draw
    from bfcviz.public_functions import explain as explain
    from bfcviz.public_functions import export as export
    from bfcviz.public_functions import growths as growths
    from bfcviz.public_functions import holders as holders
    from bfcviz.public_functions import leaks as leaks
    from bfcviz.public_functions import open_all as open_all
    from bfcviz.public_functions import peak as peak
    from bfcviz.public_functions import sql as sql
    from bfcviz.public_functions import what_grew as what_grew
    from bfcviz.public_functions import why as why
    from bfcviz.public_functions import worst_fragmentation as worst_fragmentation
    from bfcviz.samples import sample as sample
    from bfcviz.watching import Alert as Alert
    from bfcviz.watching import Watch as Watch
    from bfcviz.watching import watch as watch
    from bfcviz.watching.background import follow_search as follow_search
    from bfcviz.watching.background import follow_sweep as follow_sweep
    from bfcviz.watching.flight_recorder import flight_recorder as flight_recorder
    from bfcviz.watching.magics import load_ipython_extension as load_ipython_extension
    from bfcviz.watching.magics import unload_ipython_extension as unload_ipython_extension
    from bfcviz.watching.watch_workers import watch_workers as watch_workers
    from bfcviz.watching.workers_dashboard import follow_workers as follow_workers
    from bfcviz.whatif.best_options import best_options as best_options
    from bfcviz.whatif.largest_batch import largest_batch as largest_batch
    from bfcviz.whatif.policy_replay import replay as replay
    from bfcviz.whatif.policy_table import policy_of as policy_of
    from bfcviz.whatif.requests import stream_of as requests_of  # noqa: F401  bfcviz.requests_of(path) reads well
    from bfcviz.whatif.search import SearchControl as SearchControl
    from bfcviz.whatif.smallest_limit import smallest_limit as smallest_limit
    from bfcviz.whatif.sweep import SweepResults as SweepResults
    from bfcviz.whatif.sweep import sweep as sweep

_HOMES = {
    "Alert": ("bfcviz.watching", "Alert"),
    "Allocator": ("bfcviz.allocator.interface", "Allocator"),
    "AllocatorOptions": ("bfcviz.allocator.interface", "AllocatorOptions"),
    "BFCAllocator": ("bfcviz.allocator.bfc_allocator", "BFCAllocator"),
    "BfcvizError": ("bfcviz.errors", "BfcvizError"),
    "EventLog": ("bfcviz.events.log", "EventLog"),
    "HostSubAllocator": ("bfcviz.allocator.sub_allocators", "HostSubAllocator"),
    "Inspector": ("bfcviz.dashboard", "Inspector"),
    "Labels": ("bfcviz.events.label_table", "Labels"),
    "LiveDashboard": ("bfcviz.dashboard", "LiveDashboard"),
    "Model": ("bfcviz.model", "Model"),
    "OutOfMemory": ("bfcviz.errors", "OutOfMemory"),
    "Pool": ("bfcviz.events.origin", "Pool"),
    "PythonSubAllocator": ("bfcviz.allocator.sub_allocators", "PythonSubAllocator"),
    "Recording": ("bfcviz.events.storage.recording", "Recording"),
    "SearchControl": ("bfcviz.whatif.search", "SearchControl"),
    "SimulatedSubAllocator": ("bfcviz.allocator.sub_allocators", "SimulatedSubAllocator"),
    "SweepResults": ("bfcviz.whatif.sweep", "SweepResults"),
    "Trace": ("bfcviz.events.trace", "Trace"),
    "Watch": ("bfcviz.watching", "Watch"),
    "account": ("bfcviz.public_functions", "account"),
    "best_options": ("bfcviz.whatif.best_options", "best_options"),
    "compare_policies": ("bfcviz.policy_comparison", "compare_policies"),
    "compare_recordings": ("bfcviz.public_functions", "compare_recordings"),
    "draw": ("bfcviz.public_functions", "draw"),
    "explain": ("bfcviz.public_functions", "explain"),
    "export": ("bfcviz.public_functions", "export"),
    "flight_recorder": ("bfcviz.watching.flight_recorder", "flight_recorder"),
    "follow": ("bfcviz.dashboard.live_dashboard", "follow"),
    "follow_search": ("bfcviz.watching.background", "follow_search"),
    "follow_sweep": ("bfcviz.watching.background", "follow_sweep"),
    "follow_workers": ("bfcviz.watching.workers_dashboard", "follow_workers"),
    "growths": ("bfcviz.public_functions", "growths"),
    "holders": ("bfcviz.public_functions", "holders"),
    "label": ("bfcviz.live.labels_and_marks", "label"),
    "largest_batch": ("bfcviz.whatif.largest_batch", "largest_batch"),
    "leaks": ("bfcviz.public_functions", "leaks"),
    "load_ipython_extension": ("bfcviz.watching.magics", "load_ipython_extension"),
    "mark": ("bfcviz.live.labels_and_marks", "mark"),
    "observe_cupy": ("bfcviz.live.cupy", "observe_cupy"),
    "observe_jax": ("bfcviz.live.jax", "observe_jax"),
    "observe_rmm": ("bfcviz.live.rmm", "observe_rmm"),
    "observe_torch": ("bfcviz.live.torch.observe", "observe_torch"),
    "open": ("bfcviz.importers.open_trace", "open_source"),
    "open_all": ("bfcviz.public_functions", "open_all"),
    "peak": ("bfcviz.public_functions", "peak"),
    "phase": ("bfcviz.live.labels_and_marks", "phase"),
    "policy_of": ("bfcviz.whatif.policy_table", "policy_of"),
    "replay": ("bfcviz.whatif.policy_replay", "replay"),
    "requests_of": ("bfcviz.whatif.requests", "stream_of"),
    "sample": ("bfcviz.samples", "sample"),
    "serve_cupy": ("bfcviz.live.cupy", "serve_cupy"),
    "serve_numpy": ("bfcviz.live.numpy", "serve_numpy"),
    "serve_rmm": ("bfcviz.live.rmm", "serve_rmm"),
    "serve_torch": ("bfcviz.live.torch.serve", "serve_torch"),
    "simulate_gpus": ("bfcviz.devices.physical_devices", "simulate_gpus"),
    "smallest_limit": ("bfcviz.whatif.smallest_limit", "smallest_limit"),
    "sql": ("bfcviz.public_functions", "sql"),
    "sweep": ("bfcviz.whatif.sweep", "sweep"),
    "unload_ipython_extension": ("bfcviz.watching.magics", "unload_ipython_extension"),
    "watch": ("bfcviz.watching", "watch"),
    "watch_workers": ("bfcviz.watching.watch_workers", "watch_workers"),
    "what_grew": ("bfcviz.public_functions", "what_grew"),
    "why": ("bfcviz.public_functions", "why"),
    "worst_fragmentation": ("bfcviz.public_functions", "worst_fragmentation"),
}

_INSTEAD = {
    "attach": "bfcviz.LiveDashboard('run.bfc'), or `bfcviz attach FOLDER` in a shell",
    "compare": "bfcviz.compare_recordings(a, b)",
    "convert": "bfcviz.export(path, 'events.parquet')",
    "demo": "bfcviz.Inspector(bfcviz.sample('conv')), or `bfcviz demo` in a shell",
    "diff": "bfcviz.compare_recordings(a, b)",
    "fit": "bfcviz.smallest_limit(path, 'torch'), or bfcviz.why(path, size='512MiB')",
    "fragmentation": "bfcviz.draw('fragmentation_timeline', path), or bfcviz.worst_fragmentation(path)",
    "info": "bfcviz.open(path), and look at its `origin`",
    "inspect": "bfcviz.Inspector(path)",
    "load": "bfcviz.open(path)",
    "plan": "bfcviz.compare_policies(path, ['packed']), or `bfcviz plan FILE -o plan.parquet` in a shell",
    "plot": "bfcviz.draw(path), or bfcviz.draw('holders', path) and others",
    "read": "bfcviz.open(path)",
    "record": "bfcviz.watch(path='run') in a `with`, or `bfcviz record -- python train.py` in a shell",
    "report": "bfcviz.why(path), or `bfcviz report FILE` in a shell",
    "save": "bfcviz.open(path).save('trace.parquet')",
    "show": "bfcviz.Inspector(path), or bfcviz.draw(path).show()",
    "summary": "bfcviz.why(path), or print(bfcviz.open(path))",
    "timeline": "bfcviz.draw('stats_timeline', path)",
    "tune": "bfcviz.best_options(path, 'torch'), or `bfcviz tune FILE` in a shell",
    "view": "bfcviz.Inspector(path), or `bfcviz view FILE` in a shell",
    "what_if": "bfcviz.compare_policies(path, ['bfc', 'torch'])",
    "whatif": "bfcviz.compare_policies(path, ['bfc', 'torch'])",
}
"""What a user may try -> what to call."""

__all__ = list(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "hooks":
        return import_module("bfcviz.hooks")
    if name not in _HOMES:
        instead = f"; call {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(f"module 'bfcviz' has no attribute {name!r}{instead}")
    module, attribute = _HOMES[name]
    if module not in sys.modules:
        from bfcviz.unwatched import unwatched  # noqa: PLC0415  `import bfcviz` needs nothing

        with unwatched():  # its arrays live as long as Python
            import_module(module)
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

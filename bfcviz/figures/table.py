"""The numbers of the region map and of the bin histogram as Arrow tables, for `.csv` and `.parquet`."""

import numpy as np
import pyarrow as pa

from bfcviz.events.schema import MIN_CHUNK
from bfcviz.model import Model
from bfcviz.model.state.views import bin_numbers


def chunk_table(model: Model) -> pa.Table:
    """One row per chunk, by address; sizes in bytes."""
    chunks = model.chunks()
    in_use = chunks["in_use"]
    names = model.trace.labels
    return pa.table(
        {
            "address": chunks["address"],
            "size": chunks["size"],
            "requested": chunks["requested"],
            "waste": np.where(in_use, chunks["size"] - chunks["requested"], 0).astype(np.uint64),
            "state": pa.array(np.where(in_use, "in use", "free")),
            "bin": bin_numbers(chunks["size"]).astype(np.int8),
            "chunk": chunks["handle"],
            "region": chunks["region"],
            "label": pa.array([names.name(number) for number in chunks["label"].tolist()], pa.string()),
            "thread": chunks["thread"],
            "stream": chunks["stream"],
            "allocated_at_step": pa.array(chunks["born"] + np.uint64(1), mask=~in_use),
        }
    )


def bin_table(model: Model) -> pa.Table:
    """One row per bin: its least chunk size, and bytes and number of its chunks, free and in use."""
    bins = model.bins()
    return pa.table(
        {
            "bin": bins["bin"],
            "least_size": np.array([MIN_CHUNK << int(number) for number in bins["bin"]], dtype=np.uint64),
            "free_bytes": bins["free_bytes"],
            "free_chunks": bins["free_chunks"],
            "in_use_bytes": bins["in_use_bytes"],
            "in_use_chunks": bins["in_use_chunks"],
        }
    )

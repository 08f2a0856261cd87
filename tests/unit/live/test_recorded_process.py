"""Where each process of a program records."""

import json
import sys
import time
from types import SimpleNamespace

import pytest
from unit.live.record_orders import order

from bfcviz.events.memory_samples import DEVICE_FILE, read_samples
from bfcviz.events.storage.recording import Recording
from bfcviz.live import recorded_process as record
from bfcviz.live.recorded_process import MASK, begin_recording, device_sampler, without_secrets
from bfcviz.live.startup import sitecustomize


def test_there_is_a_most(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "MOST_PROCESSES", 3)
    monkeypatch.setenv("RANK", "0")
    found = [begin_recording(tmp_path, Recording) for _ in range(4)]
    assert [each and each.folder.name for each in found] == ["rank-0", "rank-0-2", "rank-0-3", None]
    for each in found[:3]:
        each.close()


def test_pytorch_tells_of_devices_on_another_driver_than_cudas(tmp_path, monkeypatch):
    monkeypatch.setattr(record.cuda_driver, "in_use", lambda: None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # half imported
    sampler = device_sampler(tmp_path)
    monkeypatch.setattr(record, "SAMPLE_EVERY_S", 0.01)
    sampler.start()
    try:
        time.sleep(0.05)
        cuda = SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: 2,
            memory_reserved=[0, 4096].__getitem__,
            mem_get_info={1: (5 << 20, 12 << 20)}.__getitem__,  # it would create a context on the other
        )
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
        until = time.monotonic() + 10
        while not (tmp_path / DEVICE_FILE).exists() and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        sampler.stop()
    (device, found), *more = read_samples(tmp_path, 0)["device_memory"].items()
    assert (device, {*found["used_bytes"]}, more) == ("1", {7 << 20}, [])


# ------------------------------------------------------------------------------
# Values that look like secrets are masked, all else is kept.


KEY = "Ab3" * 12


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("--api-key X", "--api-key ***"),
        ("--api_key X --epochs 3", "--api_key *** --epochs 3"),
        ("--token=X", "--token=***"),
        ("--hf-token X", "--hf-token ***"),
        ("--password X", "--password ***"),
        ("--db.password X", "--db.password ***"),
        ("--password --verbose", "--password --verbose"),
        ("PASSWORD=x", "PASSWORD=***"),
        ("PGPASSWORD=x", "PGPASSWORD=***"),
        ("AWS_SECRET_ACCESS_KEY=x", "AWS_SECRET_ACCESS_KEY=***"),
        ("wandb.api_key=x model.lr=0.1", "wandb.api_key=*** model.lr=0.1"),
        ("hf_abcdefghijklmnop", "***"),
        ("--login hf_abcdefghijklmnop", "--login ***"),
        ("sk-proj-abcdefghijklmnop", "***"),
        ("ghp_abcdefghijklmnop", "***"),
        ("AKIAABCDEFGHIJKLMNOP", "***"),
        ("0123456789abcdef0123456789abcdef01234567", "***"),
        (KEY, "***"),
        ("https://me:word@host/x", "https://***@host/x"),
        ("https://host/x?token=abc&page=2", "https://host/x?token=***&page=2"),
        ("postgres://me:word@db:5432/x", "postgres://***@db:5432/x"),
        ("postgres://me:a/word@db:5432/x", "postgres://***@db:5432/x"),
        ("--password=abc,def&ghi", "--password=***"),
    ],
)
def test_secrets_are_masked(given, kept):
    assert without_secrets(given.split()) == kept.split()


def test_secrets_in_code_and_headers_are_masked():
    code = "import wandb; wandb.login(key='abc'); d = {'api_key': \"zzz\"}; run(lr=0.1)"
    kept = f"import wandb; wandb.login(key='{MASK}'); d = {{'api_key': \"{MASK}\"}}; run(lr=0.1)"
    assert without_secrets(["-c", code]) == ["-c", kept]
    assert without_secrets(["--password=my secret words"]) == ["--password=***"]
    assert without_secrets(["-c", "login(password='a b,c', lr=1)"]) == ["-c", "login(password='***', lr=1)"]
    assert without_secrets(["-H", "Authorization: Bearer abcdefghijk"]) == [
        "-H",
        f"Authorization: Bearer {MASK}",
    ]


@pytest.mark.parametrize(
    "words",
    [
        "python train.py --epochs 3 --lr=1e-4 --data ./tokens",
        "python -m torch.distributed.run --nproc-per-node 8 train.py",
        "--max-tokens 512 --num_tokens=5 --tokenizer gpt2 --keyboard us --author me --monkey=5",
        "/home/me/Very-Long-Model-Name-With-Digits-2024-and-more/checkpoint_0000000001.pt",
        "git@github.com:me/it.git s3://bucket/key me@host:/path",
        "--key-frames 3",
    ],
)
def test_all_else_is_kept(words):
    assert without_secrets(words.split()) == words.split()


# ------------------------------------------------------------------------------
# What every Python that `bfcviz record` starts runs first.


def test_a_python_that_is_too_old_is_said(monkeypatch, tmp_path):
    asked = order(tmp_path, framework=None, home="")
    with monkeypatch.context() as patched:
        patched.setattr("sys.version_info", (3, 10, 2, "final", 0))
        sitecustomize.begin(asked, "numpy")
    (file,) = (tmp_path / "told").iterdir()
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [word["fact"] for word in told] == ["imported", "unable"]
    assert told[1]["why"] == "ImportError: bfcviz needs Python 3.11 or later, this is 3.10"

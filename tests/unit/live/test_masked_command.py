"""Values that look like secrets are masked, all else is kept."""

import pytest

from bfcviz.live.recorded_process import MASK, without_secrets

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

"""`bfcviz.hooks` in the trainers themselves, each skipped where it is not installed; and in a loop of its own."""

import os
import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from processes import needs_compiled
from shared import ROOT

import bfcviz
from bfcviz import hooks
from bfcviz.errors import LiveError

pytestmark = [needs_compiled, pytest.mark.filterwarnings("default")]  # the warnings of trainers are theirs
MIB = 1 << 20


def marks(trace):
    """How many marks of each name a trace has."""
    names = [trace.labels.name(int(row["label"])) for row in trace.read(0, len(trace)) if row["kind"] == 8]
    return Counter(names)


def values(trace, name):
    """The values of the marks of this name."""
    rows = trace.read(0, len(trace))
    return [
        int(row["size"]) for row in rows if row["kind"] == 8 and trace.labels.name(int(row["label"])) == name
    ]


# ------------------------------------------------------------------------------
# A loop of your own.


def test_steps_epochs_and_phases_are_marks_and_allocations_keep_their_names(tmp_path, capsys):
    held = []
    with hooks.loop(tmp_path / "run", numpy=True) as loop:
        for _ in loop.epochs(range(2)):
            held += [np.ones(batch * MIB >> 3) for batch in loop.steps([1, 2, 3])]
            loop.begin("validation")
            held.append(np.ones(MIB >> 3))
            loop.end("validation")
    trace = bfcviz.open(tmp_path / "run")
    assert marks(trace) == {"step": 6, "epoch": 2, "validation begins": 2, "validation ends": 2}
    assert (values(trace, "step"), values(trace, "epoch")) == ([1, 2, 3, 4, 5, 6], [1, 2])
    assert not any("validation" in each.name for each in loop.report.holders)
    assert loop.report.stats.bytes_in_use >= 14 * MIB
    said = capsys.readouterr().err
    assert f"{loop.count} steps" in said
    assert f"bfcviz view {tmp_path / 'run'}" in said
    found = bfcviz.leaks(trace)
    assert found.growth.steps.name == "step"
    assert len(held) == 8


def test_a_leak_in_a_loop_is_found(tmp_path):
    held = []
    with hooks.loop(tmp_path / "run", numpy=True) as loop:
        for _ in loop.steps(range(12)):
            held.append(np.ones(MIB >> 3))
            np.ones(3 * MIB >> 3)
    rows = bfcviz.leaks(tmp_path / "run").growth.to_arrow().to_pylist()
    assert rows
    assert len(held) == 12


def test_in_a_watched_program_a_hook_only_marks(tmp_path):
    with bfcviz.watch("numpy", dashboard=False) as watched:
        with hooks.loop() as loop:
            kept = [np.ones(100) for _ in loop.steps(range(4))]
        assert (loop.recorder, loop.report) == (None, None)
        assert marks(watched.trace)["step"] == 4
        with pytest.raises(LiveError, match="another watch"), hooks.loop(tmp_path / "run", numpy=True):
            pass
    assert len(kept) == 4


FAILS = """
import numpy as np
from bfcviz import hooks
with hooks.loop({path}, numpy=True, limit="64MiB", folder="flight") as loop:
    held = []
    for batch in loop.steps(range(100)):
        held.append(np.ones(1 << 20))
"""


@pytest.mark.parametrize("path", ["None", "'run'"])
def test_a_failure_names_the_file_and_the_verdict(path, tmp_path):
    done = ran(FAILS.format(path=path), tmp_path)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "bfcviz why " in line]
    file = tmp_path / line.split("bfcviz why ")[1].strip()
    assert file.is_dir() == (path != "None")
    trace = bfcviz.open(file)
    assert bfcviz.why(trace).requested >= 8 * MIB
    assert "needed 8.0 MiB" in done.stderr
    assert values(trace, "step") == list(range(1, marks(trace)["step"] + 1))


RANKS = """
import bfcviz
import numpy as np
with bfcviz.hooks.loop("run", numpy=True) as loop:
    for batch in loop.steps(range(2)):
        np.ones(1000)
"""


def test_each_rank_records_for_itself_and_the_first_one_reports(tmp_path):
    said = [ran(RANKS, tmp_path, {"RANK": rank}).stderr for rank in ("0", "1")]
    assert ["Peak of" in text for text in said] == [True, False]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["rank-0", "rank-1"]
    assert [marks(bfcviz.open(tmp_path / "run" / f"rank-{rank}"))["step"] for rank in (0, 1)] == [2, 2]


def ran(code, place, variables=None):
    env = {name: value for name, value in os.environ.items() if not name.endswith(("RANK", "PROCID"))}
    env |= {"PYTHONPATH": str(ROOT), **(variables or {})}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=place, env=env, capture_output=True, text=True, check=False
    )


# ------------------------------------------------------------------------------
# The trainers.


@pytest.fixture
def data():
    """64 samples of 8 numbers, and what they sum up to."""
    x = np.random.default_rng(0).normal(size=(64, 8)).astype("f4")
    return x, x.sum(axis=1, keepdims=True)


def test_keras_fits(data, tmp_path, monkeypatch):
    pytest.importorskip("jax", reason="JAX is not installed")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    hook = hooks.keras(tmp_path / "run", jax=True)
    x, y = data
    options = {"batch_size": 16, "epochs": 3, "validation_split": 0.25, "verbose": 0}
    model.fit(x, y, callbacks=[hook], **options)
    trace = bfcviz.open(tmp_path / "run")
    assert marks(trace) == {"step": 9, "epoch": 3, "validation begins": 3, "validation ends": 3}
    assert hook.loop.report.stats.bytes_in_use > 0
    model.fit(x, y, callbacks=[hook], **options)  # the same hook again: another folder
    assert marks(bfcviz.open(tmp_path / "run-2"))["step"] == 9
    assert pickle.loads(pickle.dumps(hook)).loop.count == 0  # noqa: S301  our own


def test_keras_ends_with_an_error(data, tmp_path, monkeypatch):
    pytest.importorskip("jax", reason="JAX is not installed")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                raise KeyError("mine")

    hook = hooks.keras(tmp_path / "run", numpy=True)
    with pytest.raises(KeyError):
        model.fit(*data, callbacks=[hook, Fails()], batch_size=16, verbose=0)
    model.fit(*data, callbacks=[hook], batch_size=16, verbose=0)  # ends the first watch, and begins another
    assert marks(bfcviz.open(tmp_path / "run"))["step"] == 3
    assert marks(bfcviz.open(tmp_path / "run-2"))["step"] == 4


def test_lightning_fits(data, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed").pytorch

    class Net(lightning.LightningModule):
        def __init__(self, *, fails=False):
            super().__init__()
            self.net, self.fails = torch.nn.Linear(8, 1), fails

        def training_step(self, batch, index):
            if self.fails and index == 2:
                raise MemoryError("mine")
            return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.log("loss", self.training_step(batch, 0))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    def trainer(hook):
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        rest = {"enable_model_summary": False, "accelerator": "cpu", "num_sanity_val_steps": 0}
        return lightning.Trainer(max_epochs=2, callbacks=[hook], **quiet, **rest)

    x, y = map(torch.from_numpy, data)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 16)
    hook = hooks.lightning(tmp_path / "run", numpy=True)
    trainer(hook).fit(Net(), loader, loader)
    found = marks(bfcviz.open(tmp_path / "run"))
    assert (found["step"], found["epoch"]) == (8, 2)
    assert {name: number for name, number in found.items() if " " in name} == {
        "backward begins": 8,
        "backward ends": 8,
        "validation begins": 2,
        "validation ends": 2,
    }
    assert hook.loop.report is not None
    failing = hooks.lightning(tmp_path / "failed", numpy=True)
    with pytest.raises(MemoryError) as caught:
        trainer(failing).fit(Net(fails=True), loader)
    assert any(f"bfcviz why {tmp_path / 'failed'}" in note for note in caught.value.__notes__)
    assert (failing.loop.report, bfcviz.Watch.current) == (None, None)
    assert marks(bfcviz.open(tmp_path / "failed"))["step"] == 2


def test_the_trainer_of_transformers_trains(data, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="Transformers is not installed")
    pytest.importorskip("accelerate", reason="Accelerate is not installed")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(8, 1)

        def forward(self, x, labels):
            found = self.net(x)
            return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}

    rows = [{"x": x, "labels": y} for x, y in zip(*data, strict=True)]
    hook = hooks.transformers(tmp_path / "run", numpy=True)
    settings = transformers.TrainingArguments(
        str(tmp_path / "out"),
        num_train_epochs=2,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        use_cpu=True,
        report_to=[],
        eval_strategy="epoch",
        save_strategy="no",
        disable_tqdm=True,
    )
    transformers.Trainer(
        Net(), settings, train_dataset=rows, eval_dataset=rows[:32], callbacks=[hook]
    ).train()
    found = bfcviz.open(tmp_path / "run")
    assert marks(found) == {"step": 8, "epoch": 2, "validation begins": 2, "validation ends": 2}
    assert values(found, "epoch") == [1, 2]
    assert hook.loop.report is not None


def test_accelerate_logs(data, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed")
    hook = hooks.accelerate(tmp_path / "run", numpy=True)
    accelerator = accelerate.Accelerator(cpu=True, log_with=hook)
    net = torch.nn.Linear(8, 1)
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.01))
    accelerator.init_trackers("project", {"rate": 0.01})
    x, y = map(torch.from_numpy, data)
    for at in range(0, 64, 16):
        loss = torch.nn.functional.mse_loss(net(x[at : at + 16]), y[at : at + 16])
        accelerator.backward(loss)
        optimizer.step()
        accelerator.log({"loss": loss.item()}, step=at)
    accelerator.end_training()
    assert accelerator.get_tracker("bfcviz", unwrap=True) is hook.loop
    assert marks(bfcviz.open(tmp_path / "run")) == {"step": 4}
    assert hook.loop.report is not None


def test_a_loop_of_flax_trains(data, tmp_path):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    nnx = pytest.importorskip("flax.nnx", reason="Flax is not installed")
    model = nnx.Linear(8, 1, rngs=nnx.Rngs(0))
    x, y = data

    @nnx.jit
    def step(model, x, y):
        loss, found = nnx.value_and_grad(lambda model: ((model(x) - y) ** 2).mean())(model)
        old = nnx.state(model)
        nnx.update(model, jax.tree.map(lambda weight, change: weight - 0.01 * change, old, found))
        return loss

    losses = []
    with hooks.loop(tmp_path / "run", jax=True) as loop:
        losses += [step(model, x[at : at + 16], y[at : at + 16]) for at in loop.steps(range(0, 64, 16))]
    trace = bfcviz.open(tmp_path / "run")
    assert marks(trace) == {"step": 4}
    assert loop.report.stats.bytes_in_use > 0
    assert len(losses) == 4


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    monkeypatch.setattr(hooks, "_is_trainer_installed", lambda module: False)
    monkeypatch.delitem(sys.modules, "keras")
    with pytest.raises(LiveError, match="pip install keras"):
        hooks.keras()

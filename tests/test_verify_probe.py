"""What a loop keeps from step to step, counted exactly: loops that leak and loops that do not, at two sizes of the batch."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from oomlint.verify.child.measuring import fake_cuda  # noqa: E402 - not without torch
from oomlint.verify.child.measuring.tensor_census import StepGrowth  # noqa: E402 - likewise
from oomlint.verify.thresholds import rate  # noqa: E402 - likewise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS = 12
BATCHES = (2, 10)


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """What the other tests have left is not walked through at each step."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Meter:
    def __init__(self) -> None:
        self.total: Any = 0
        self.seen: dict[str, list[Any]] = {"loss": []}


class Loop:
    """A small model, and a place to keep things in."""

    def __init__(self, batch: int) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(8, 4)
        self.batch = batch
        self.kept: list[Any] = []
        self.last = deque[Any](maxlen=2)
        self.meter = Meter()
        self.total: Any = 0
        self.running = torch.zeros(())
        self.all: Any = torch.zeros(0, 4)
        self.array: Any = np.zeros(0)

    def loss(self) -> Any:
        out = self.model(torch.ones(self.batch, 8))
        return (out * out).mean()

    def out(self) -> Any:
        return self.model(torch.ones(self.batch, 8))

    def free(self) -> Any:
        with torch.no_grad():
            return self.out()


def attribute(loop: Loop, value: Any) -> None:
    loop.meter.total = loop.meter.total + value


def add(loop: Loop, value: Any) -> None:
    loop.total += value


def grow(loop: Loop, value: Any) -> None:
    loop.all = torch.cat([loop.all, value])


def lengthen(loop: Loop, value: Any) -> None:
    loop.array = np.append(loop.array, value)


def clear(loop: Loop) -> None:
    loop.kept.clear()
    loop.kept.append(loop.loss())


def after_backward(loop: Loop) -> None:
    value = loop.loss()
    value.backward()
    loop.kept.append(value)


def cached(loop: Loop) -> None:
    for value in (loop.loss(), loop.loss()):
        value.backward()


# What a loop does in a step; whether storages, nodes and bytes of Python grow.
LEAKS: dict[str, tuple[Callable[[Loop], Any], int, int]] = {
    "append with graph": (lambda x: x.kept.append(x.loss()), 3, 4),  # input, output and mean; the product is not needed again
    "sum with graph": (lambda x: add(x, x.loss()), 2, 5),
    "sum in place": (lambda x: x.running.add_(x.loss()), 2, 5),
    "meter with graph": (lambda x: attribute(x, x.loss()), 2, 5),
    "dict of lists with graph": (lambda x: x.meter.seen["loss"].append(x.loss()), 3, 4),
    "graph after backward": (after_backward, 1, 4),
    "cpu without detach": (lambda x: x.kept.append(x.loss().cpu()), 3, 4),
    "append detached": (lambda x: x.kept.append(x.loss().detach()), 1, 0),
    "append under no_grad": (lambda x: x.kept.append(x.free()), 1, 0),
    "view keeps its base": (lambda x: x.kept.append(x.free()[0]), 1, 0),
    "batch kept": (lambda x: x.kept.append(torch.ones(x.batch, 8)), 1, 0),
}
CONTROLS: dict[str, Callable[[Loop], Any]] = {
    "nothing": lambda x: x.loss(),
    "backward": lambda x: x.loss().backward(),
    "two backwards": cached,
    "sum of numbers": lambda x: add(x, x.loss().item()),
    "sum detached": lambda x: add(x, x.loss().detach()),
    "in place, detached": lambda x: x.running.add_(x.loss().detach()),
    "meter of numbers": lambda x: attribute(x, float(x.loss().detach())),
    "deque": lambda x: x.last.append(x.loss()),
    "overwritten": lambda x: setattr(x, "total", x.loss()),
    "cleared": clear,
    "numpy that is dropped": lambda x: np.ones(x.batch * 100).sum(),
}


def measure(step: Callable[[Loop], Any], batch: int, **options: Any) -> tuple[StepGrowth, dict[str, float]]:
    loop = Loop(batch)
    with StepGrowth(**options) as growth:
        for _ in range(STEPS):
            growth.step()
            step(loop)
    return growth, {name: rate(deltas).a_step for name, deltas in growth.deltas().items()}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", CONTROLS)
def test_what_keeps_nothing_grows_by_exactly_nothing(name: str, batch: int) -> None:
    growth, rates = measure(CONTROLS[name], batch)
    assert rates == dict.fromkeys(rates, 0.0)
    assert not any(map(any, ([*map(abs, deltas[3:])] for key, deltas in growth.deltas().items() if key in {"storages", "storage_bytes", "nodes"})))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", LEAKS)
def test_what_is_kept_is_counted(name: str, batch: int) -> None:
    step, storages, nodes = LEAKS[name]
    growth, rates = measure(step, batch)
    assert (rates["storages"], rates["nodes"]) == (storages, nodes)
    assert rates["storage_bytes"] > 0
    assert rates["python_bytes"] >= 64
    deltas = growth.deltas()
    assert len(set(deltas["nodes"][3:])) == len(set(deltas["storages"][3:])) == 1  # the same in each step


def test_bytes_follow_the_batch() -> None:
    small, large = (measure(LEAKS["view keeps its base"][0], batch)[1]["storage_bytes"] for batch in BATCHES)
    assert (small, large) == (2 * 4 * 4, 10 * 4 * 4)


@pytest.mark.parametrize("batch", BATCHES)
def test_arrays_in_lists_are_bytes_of_python(batch: int) -> None:
    rates = measure(lambda x: x.kept.append(np.ones(x.batch * 100)), batch)[1]
    assert batch * 800 <= rates["python_bytes"] <= batch * 800 + 160
    assert rates["storages"] == rates["nodes"] == 0


def test_numbers_in_lists_are_benign() -> None:
    for batch in BATCHES:
        rates = measure(lambda x: x.kept.append(x.loss().item()), batch)[1]
        assert 0 < rates["python_bytes"] <= 64
        assert rates["storages"] == rates["nodes"] == 0


def test_quadratic_concatenation() -> None:
    growth, _ = measure(lambda x: grow(x, x.free()), 10)
    each = [new - old for old, new in zip(growth.column("copied"), growth.column("copied")[1:], strict=False)]
    assert each == [160 * n for n in range(1, STEPS)]
    growth, _ = measure(lambda x: lengthen(x, np.ones(10)), 10)
    each = [new - old for old, new in zip(growth.column("copied"), growth.column("copied")[1:], strict=False)]
    assert each == [80 * n for n in range(1, STEPS)]
    assert "oomlint" not in repr(getattr(np.append, "__globals__", {}).get("__name__"))


def test_what_is_saved_for_backward() -> None:
    saved = [measure(step, 10)[0].column("saved")[4:] for step in (lambda x: x.loss(), lambda x: x.free())]
    assert set(saved[0]) == {10 * 8 * 4 + 10 * 4 * 4}  # the input and the output, each once; no weights
    assert set(saved[1]) == {0}
    growth, _ = measure(lambda x: x.loss(), 10, saved=False)
    assert not any(growth.column("saved"))


def test_peaks_within_a_step() -> None:
    def large(_: Loop) -> None:
        value = torch.ones(1000) + 1
        del value
        np.ones(5000).sum()

    growth, rates = measure(large, 2)
    assert rates["storage_bytes"] == 0
    base = growth.levels()["storage_bytes"][-1]
    assert all(4000 <= peak - base <= 8400 for peak in growth.column("peak")[4:])
    assert all(peak >= 40000 for peak in growth.column("python_peak")[4:])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_may_begin_where_gradients_are_off(mode: Any) -> None:
    with mode():
        _, rates = measure(lambda x: x.kept.append(x.out()), 2)
        assert (rates["storages"], rates["nodes"]) == (1, 0)
        assert not torch.is_grad_enabled()


def test_errors_of_autograd_come_through() -> None:
    with StepGrowth():
        value = (torch.ones(3, requires_grad=True) ** 2).sum()
        value.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            value.backward()


def test_frozen_objects_are_free_again_unless_they_were_frozen_before() -> None:
    gc.unfreeze()
    with StepGrowth() as growth:
        growth.step()
    assert gc.get_freeze_count() == 0
    gc.freeze()
    with StepGrowth():
        pass
    assert gc.get_freeze_count() > 0


def test_nothing_is_counted_in_a_forked_process() -> None:
    with StepGrowth() as growth:
        growth.step()
        read, written = os.pipe()
        child = os.fork()
        if child == 0:
            import tracemalloc  # noqa: PLC0415 - only here

            kept = [torch.ones(3) for _ in range(3)]
            os.write(written, json.dumps([tracemalloc.is_tracing(), growth._tracker.count, len(kept)]).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert json.loads(os.read(read, 100)) == [False, growth._tracker.count, 3]
        os.close(read)
        os.close(written)


# -- a pretended device ------------------------------------------------------------------------------------------------


def on_device(step: Callable[[Any, list[Any]], Any]) -> tuple[float, float]:
    kept: list[Any] = []
    with fake_cuda.Pretend(), StepGrowth() as growth:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(device)
        for _ in range(STEPS):
            growth.step()
            with torch.no_grad():
                out = model(torch.randn(10, 8).to(device, non_blocking=True))
                assert out.device.type == "cuda"
                assert out.is_cuda
                step(out, kept)
    deltas = growth.deltas()
    return rate(deltas["device_storages"]).a_step, rate(deltas["device_bytes"]).a_step


def test_what_is_kept_on_a_pretended_device() -> None:
    assert on_device(lambda out, kept: kept.append(out)) == (1, 160)
    assert on_device(lambda out, kept: kept.append(out.cpu())) == (0, 0)
    assert on_device(lambda out, kept: kept.append(out.to("cpu", torch.float64))) == (0, 0)
    assert on_device(lambda out, kept: kept.append(out.cpu().numpy())) == (0, 0)
    assert on_device(lambda out, kept: kept.append(out.mean().item())) == (0, 0)
    assert on_device(lambda out, kept: kept.append(out.argmax(1)[:1])) == (1, 80)
    assert on_device(lambda _, kept: kept.append(torch.zeros(4, device="cuda"))) == (1, 16)
    assert on_device(lambda _, kept: kept.append(torch.zeros(4))) == (0, 0)
    assert torch.cuda.is_available() is False or torch.cuda.get_device_name() != fake_cuda.LABEL


def test_a_pretended_device_refuses_what_a_real_one_refuses() -> None:
    with fake_cuda.Pretend():
        there, here = torch.ones(3).cuda(), torch.ones(3)
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            there.numpy()
        with pytest.raises(TypeError, match="can't convert cuda:0"):
            np.asarray(there)
        with pytest.raises(RuntimeError, match="two devices, cuda:0 and cpu"):
            there + here
        assert (there * torch.tensor(2.0)).is_cuda
        assert there.to(here).device.type == "cpu"
        assert here.to(there).device.type == "cuda"
        assert torch.zeros_like(there).is_cuda
        assert there.new_zeros(2).is_cuda
        assert not torch.zeros_like(there, device="cpu").is_cuda
        assert there.tolist() == [1, 1, 1]
        here.copy_(there)
        assert not here.is_cuda
        assert torch.as_tensor(here, device="cuda").is_cuda
        assert not here.is_cuda
        assert torch.cuda.memory_allocated() >= 12
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert (torch.cuda.device_count(), torch.cuda.current_device()) == (1, 0)


def test_training_on_a_pretended_device() -> None:
    def train(device: str) -> list[Any]:
        torch.manual_seed(0)
        model = torch.nn.DataParallel(torch.nn.LSTM(8, 4, batch_first=True)).to(device) if device == "cuda" else torch.nn.LSTM(8, 4, batch_first=True)
        optimizer = torch.optim.Adam(model.parameters())
        scaler = torch.amp.GradScaler("cuda", enabled=device == "cuda")
        losses = []
        for _ in range(3):
            out = model(torch.ones(2, 3, 8).to(device))[0]
            loss = torch.nn.functional.cross_entropy(out[:, -1], torch.zeros(2, dtype=torch.long, device=device))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        assert next(iter(model.parameters())).device.type == device
        assert next(iter(model.parameters())).grad.device.type == device
        return losses

    plain = train("cpu")
    with fake_cuda.Pretend():
        assert train("cuda") == pytest.approx(plain)


def test_the_probe_itself_is_cheap_to_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import oomlint.verify.child.measuring.digests, sys; print('torch' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_an_operation_that_saves_its_own_output_keeps_nothing() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid(), torch.nn.Tanh(), torch.nn.ReLU(), torch.nn.Softmax(dim=1))
    with StepGrowth() as growth:
        for _ in range(12):
            growth.step()
            model(torch.ones(2, 4)).exp().sum().backward()
        growth.step()
    found = growth.deltas()
    assert (rate(found["storages"]).a_step, rate(found["nodes"]).a_step) == (0, 0)

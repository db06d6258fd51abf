"""What a safe fix of growing state must leave alone, and what it must keep where it fixes.

Each trap is a program with a place where the usual rewrite looks right and is not. One test holds that the safe fixes leave it alone, another that it is a
trap: with the usual rewrite the program computes something else, or stops. The same forms without a trap are fixed, and compute the same.
"""

from __future__ import annotations

import ast
import io
import tokenize
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from oomlint import engine
from oomlint.config import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

EVERYTHING: Final = Settings(preview=True).with_overrides(severity="note", min_confidence="low")
HEAD: Final = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x)


model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
samples = sum(range(9)) - 4  # 32, which a check does not compute: of a known few, workers keep no descriptors that count
data = TensorDataset(torch.randn(samples, 4), torch.randint(3, (samples,)))
train_loader = DataLoader(data, batch_size=8, shuffle=True)
val_loader = DataLoader(data, batch_size=8)
worker_loader = DataLoader(data, batch_size=8, num_workers=2)

"""


class Case(NamedTuple):
    """A program that leaves what it computes in ``result``, and the usual rewrite of its text."""

    program: str
    text: str
    rewritten: str


NO_GRAD: Final = ("def validate(", "@torch.no_grad()\ndef validate(")
TRAPS: Final = {
    # -- the graph is still wanted: detach
    "losses of tasks that are stacked and backpropagated": Case(
        """
        losses = []
        for x, y in train_loader:
            weight, bias = (p - 0.1 * g for p, g in zip(model.parameters(), torch.autograd.grad(criterion(model(x), y), model.parameters())))
            losses.append(criterion(F.linear(x, weight, bias), y))
        torch.stack(losses).mean().backward()
        optimizer.step()
        result = model.state_dict()
        """,
        "losses.append(criterion(F.linear(x, weight, bias), y))",
        "losses.append(criterion(F.linear(x, weight, bias), y).detach())",
    ),
    "a sum of losses that is backpropagated every few steps": Case(
        """
        total = 0
        for step, (x, y) in enumerate(train_loader):
            total += criterion(model(x), y) / 2
            if (step + 1) % 2 == 0:
                optimizer.zero_grad()
                total.backward()
                optimizer.step()
                total = 0
        result = model.state_dict()
        """,
        "total += criterion(model(x), y) / 2",
        "total += (criterion(model(x), y) / 2).detach()",
    ),
    "a window of losses": Case(
        """
        window = []
        for x, y in train_loader:
            window.append(criterion(model(x), y))
            if len(window) == 2:
                optimizer.zero_grad()
                sum(window).backward()
                optimizer.step()
                window.clear()
        result = model.state_dict()
        """,
        "window.append(criterion(model(x), y))",
        "window.append(criterion(model(x), y).detach())",
    ),
    "a sum that the caller backpropagates": Case(
        """
        def epoch_loss(model, train_loader):
            total = 0.0
            for x, y in train_loader:
                total += criterion(model(x), y)
            return total / len(train_loader)

        epoch_loss(model, train_loader).backward()
        optimizer.step()
        result = model.state_dict()
        """,
        "total += criterion(model(x), y)",
        "total += criterion(model(x), y).detach()",
    ),
    "a list in a tuple that the caller backpropagates": Case(
        """
        def forward_all(model, train_loader):
            losses, seen = [], 0
            for x, y in train_loader:
                losses.append(criterion(model(x), y))
                seen += len(y)
            return losses, seen

        losses, seen = forward_all(model, train_loader)
        (sum(losses) / seen).backward()
        optimizer.step()
        result = model.state_dict()
        """,
        "losses.append(criterion(model(x), y))",
        "losses.append(criterion(model(x), y).detach())",
    ),
    "a dict of sums that is summed and backpropagated": Case(
        """
        terms = {"fit": 0.0, "size": 0.0}
        for x, y in train_loader:
            out = model(x)
            terms["fit"] += criterion(out, y)
            terms["size"] += out.pow(2).mean()
        sum(terms.values()).backward()
        optimizer.step()
        result = model.state_dict()
    """,
        'terms["fit"] += criterion(out, y)',
        'terms["fit"] += criterion(out, y).detach()',
    ),
    "losses on an object that another method backpropagates": Case(
        """
        class Trainer:
            def __init__(self):
                self.losses = []

            def collect(self):
                for x, y in train_loader:
                    self.losses.append(criterion(model(x), y))

            def update(self):
                optimizer.zero_grad()
                torch.stack(self.losses).mean().backward()
                optimizer.step()

        trainer = Trainer()
        trainer.collect()
        trainer.update()
        result = model.state_dict()
        """,
        "self.losses.append(criterion(model(x), y))",
        "self.losses.append(criterion(model(x), y).detach())",
    ),
    "a list that a function backpropagates": Case(
        """
        def optimise(terms):
            optimizer.zero_grad()
            torch.stack(terms).sum().backward()
            optimizer.step()

        losses = []
        for x, y in train_loader:
            losses.append(criterion(model(x), y))
        optimise(losses)
        result = model.state_dict()
        """,
        "losses.append(criterion(model(x), y))",
        "losses.append(criterion(model(x), y).detach())",
    ),
    "a list under a second name": Case(
        """
        losses = []
        pending = losses
        for x, y in train_loader:
            losses.append(criterion(model(x), y))
        sum(pending).backward()
        optimizer.step()
        result = model.state_dict()
        """,
        "losses.append(criterion(model(x), y))",
        "losses.append(criterion(model(x), y).detach())",
    ),
    "a list that autograd.backward takes": Case(
        """
        losses = []
        for x, y in train_loader:
            losses.append(criterion(model(x), y))
        torch.autograd.backward(losses)
        optimizer.step()
        result = model.state_dict()
        """,
        "losses.append(criterion(model(x), y))",
        "losses.append(criterion(model(x), y).detach())",
    ),
    "a list that autograd.grad takes": Case(
        """
        losses = []
        for x, y in train_loader:
            losses.append(criterion(model(x), y))
        result = torch.autograd.grad(sum(losses), list(model.parameters()))
        """,
        "losses.append(criterion(model(x), y))",
        "losses.append(criterion(model(x), y).detach())",
    ),
    "features that one loss takes together": Case(
        """
        features, labels = [], []
        for x, y in train_loader:
            features.append(model(x))
            labels.append(y)
        loss = criterion(torch.cat(features), torch.cat(labels))
        loss.backward()
        optimizer.step()
        result = model.state_dict()
        """,
        "features.append(model(x))",
        "features.append(model(x).detach())",
    ),
    "a baseline that enters the next loss": Case(
        """
        baseline = 0.0
        for x, y in train_loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            (loss - baseline).pow(2).backward(retain_graph=True)
            for p in model.parameters():
                p.grad.clamp_(-1, 1)
            baseline = 0.5 * baseline + 0.5 * loss
        result = [p.grad for p in model.parameters()]
        """,
        "baseline = 0.5 * baseline + 0.5 * loss",
        "baseline = 0.5 * baseline + 0.5 * loss.detach()",
    ),
    "a meter whose average is backpropagated": Case(
        """
        class AverageMeter:
            def __init__(self):
                self.sum, self.count = 0.0, 0

            def update(self, value, n=1):
                self.sum += value * n
                self.count += n

            @property
            def avg(self):
                return self.sum / self.count

        meter = AverageMeter()
        for x, y in train_loader:
            meter.update(criterion(model(x), y), len(y))
        meter.avg.backward()
        optimizer.step()
        result = model.state_dict()
        """,
        "meter.update(criterion(model(x), y), len(y))",
        "meter.update(criterion(model(x), y).detach(), len(y))",
    ),
    "an accumulator that backpropagates by itself": Case(
        """
        class Backward:
            def __iadd__(self, loss):
                loss.backward()
                return self

        total = Backward()
        for x, y in train_loader:
            total += criterion(model(x), y)
        optimizer.step()
        result = model.state_dict()
        """,
        "total += criterion(model(x), y)",
        "total += criterion(model(x), y).detach()",
    ),
    "a list of one's own that backpropagates by itself": Case(
        """
        class Losses(list):
            def append(self, loss):
                loss.backward()
                super().append(loss)

        losses = Losses()
        for x, y in train_loader:
            losses.append(criterion(model(x), y))
        optimizer.step()
        result = model.state_dict()
        """,
        "losses.append(criterion(model(x), y))",
        "losses.append(criterion(model(x), y).detach())",
    ),
    "a closure of the optimizer": Case(
        """
        solver = torch.optim.LBFGS(model.parameters(), max_iter=3)

        def closure():
            solver.zero_grad()
            total = 0.0
            for x, y in val_loader:
                total += criterion(model(x), y)
            total.backward()
            return total

        solver.step(closure)
        result = model.state_dict()
        """,
        "total += criterion(model(x), y)",
        "total += criterion(model(x), y).detach()",
    ),
    "a loss that is scaled and then backpropagated": Case(
        """
        scaler = torch.amp.GradScaler("cpu")
        total = 0.0
        for x, y in train_loader:
            total += criterion(model(x), y)
        scaler.scale(total).backward()
        scaler.step(optimizer)
        result = model.state_dict()
        """,
        "total += criterion(model(x), y)",
        "total += criterion(model(x), y).detach()",
    ),
    "a running sum that a generator hands out": Case(
        """
        def running(model, train_loader):
            total = 0.0
            for x, y in train_loader:
                total = total + criterion(model(x), y)
                yield total

        *_, last = running(model, train_loader)
        last.backward()
        optimizer.step()
        result = model.state_dict()
        """,
        "total = total + criterion(model(x), y)",
        "total = total + criterion(model(x), y).detach()",
    ),
    "a comprehension that is backpropagated": Case(
        """
        losses = []
        losses += [criterion(model(x), y) for x, y in train_loader]
        sum(losses).backward()
        optimizer.step()
        result = model.state_dict()
        """,
        "criterion(model(x), y) for",
        "criterion(model(x), y).detach() for",
    ),
    "copies on the host that are backpropagated": Case(
        """
        outputs = []
        for x, _ in train_loader:
            outputs.append(model(x).cpu())
        torch.cat(outputs).logsumexp(1).mean().backward()
        optimizer.step()
        result = model.state_dict()
        """,
        "model(x).cpu()",
        "model(x).detach().cpu()",
    ),
    # -- the graph is looked at
    "elements whose history is read": Case(
        """
        outputs = []
        for x, _ in train_loader:
            outputs.append(model(x))
        result = [type(out.grad_fn).__name__ for out in outputs]
        """,
        "outputs.append(model(x))",
        "outputs.append(model(x).detach())",
    ),
    "elements that are asked whether they require a gradient": Case(
        """
        outputs = []
        for x, _ in train_loader:
            outputs.append(model(x))
        result = sum(out.requires_grad for out in outputs)
        """,
        "outputs.append(model(x))",
        "outputs.append(model(x).detach())",
    ),
    "elements that are asked whether they are leaves": Case(
        """
        outputs = []
        for x, _ in train_loader:
            outputs.append(model(x))
        result = [out.is_leaf for out in outputs]
        """,
        "outputs.append(model(x))",
        "outputs.append(model(x).detach())",
    ),
    "elements whose gradient is read": Case(
        """
        hidden = []
        for x, y in train_loader:
            features = model(x)
            features.retain_grad()
            hidden.append(features)
            criterion(features, y).backward()
        result = [features.grad for features in hidden]
        """,
        "hidden.append(features)",
        "hidden.append(features.detach())",
    ),
    "elements that get a hook": Case(
        """
        outputs, seen = [], []
        for x, y in train_loader:
            out = model(x)
            outputs.append(out)
            outputs[-1].register_hook(seen.append)
            criterion(out, y).backward()
        result = seen
        """,
        "outputs.append(out)",
        "outputs.append(out.detach())",
    ),
    "a sum that is asked whether it can be backpropagated": Case(
        """
        total = torch.zeros(())
        for x, y in train_loader:
            total = total + criterion(model(x), y)
        if total.requires_grad:
            total.backward()
            optimizer.step()
        result = model.state_dict()
        """,
        "total = total + criterion(model(x), y)",
        "total = total + criterion(model(x), y).detach()",
    ),
    "a sum that is printed with its history": Case(
        """
        total = 0.0
        for x, y in train_loader:
            total += criterion(model(x), y)
        print(total)
        result = None
        """,
        "total += criterion(model(x), y)",
        "total += criterion(model(x), y).detach()",
    ),
    "a mean of it that is printed with its history": Case(
        """
        total = 0.0
        for x, y in train_loader:
            total += criterion(model(x), y)
        mean = total / 2
        print("mean %s" % mean)
        result = None
        """,
        "total += criterion(model(x), y)",
        "total += criterion(model(x), y).detach()",
    ),
    "an evaluation that tests the gradient mode of its results": Case(
        """
        def validate(model, val_loader):
            model.eval()
            graph = 0
            for x, _ in val_loader:
                graph += model(x).requires_grad
            return graph

        result = validate(model, val_loader)
        """,
        *NO_GRAD,
    ),
    # -- not a tensor, or not always
    "a loss that may be a number": Case(
        """
        total = 0.0
        for x, y in train_loader:
            loss = criterion(model(x), y) if y.sum() > 8 else 0.0
            total += loss
        result = float(total)
        """,
        "total += loss",
        "total += loss.detach()",
    ),
    "a term that a function may leave out": Case(
        """
        def penalty(model, weight):
            if weight == 0:
                return 0.0
            return weight * model.fc.weight.pow(2).sum()

        total = 0.0
        for x, y in train_loader:
            loss, extra = criterion(model(x), y), penalty(model, 0)
            optimizer.zero_grad()
            (loss + extra).backward()
            optimizer.step()
            total += extra
        result = total
        """,
        "total += extra",
        "total += extra.detach()",
    ),
    "a parameter that may be a number": Case(
        """
        def log(history, value):
            history.append(value)

        history = []
        for x, y in train_loader:
            loss = criterion(model(x), y)
            log(history, loss)
            log(history, loss.item())
        result = [float(value) for value in history]
        """,
        "history.append(value)",
        "history.append(value.detach())",
    ),
    "values of a dict of losses and numbers": Case(
        """
        totals = {}
        for x, y in train_loader:
            loss = criterion(model(x), y)
            for name, value in {"loss": loss, "rate": 0.1}.items():
                totals[name] = totals.get(name, 0.0) + value
        result = {name: float(value) for name, value in totals.items()}
        """,
        "+ value",
        "+ value.detach()",
    ),
    "a list of losses in place of a loss": Case(
        """
        def losses_of(out, y):
            return [criterion(out, y), out.pow(2).mean()]

        every = []
        for x, y in train_loader:
            losses = losses_of(model(x), y)
            every += losses
        result = [loss.item() for loss in every]
        """,
        "every += losses",
        "every += losses.detach()",
    ),
    "a module that returns a dict": Case(
        """
        class Heads(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = Net()

            def forward(self, x):
                out = self.net(x)
                return {"logits": out, "score": out.amax(1)}

        heads, outputs = Heads(), []
        for x, _ in train_loader:
            outputs.append(heads(x))
        result = [float(out["score"].sum()) for out in outputs]
        """,
        "outputs.append(heads(x))",
        "outputs.append(heads(x).detach())",
    ),
    "a module that returns a tuple": Case(
        """
        rnn, outputs = nn.GRU(4, 3), []
        for x, _ in train_loader:
            outputs.append(rnn(x))
        result = [float(out.sum()) for out, _ in outputs]
        """,
        "outputs.append(rnn(x))",
        "outputs.append(rnn(x).detach())",
    ),
    "a module that returns an object": Case(
        """
        from dataclasses import dataclass

        @dataclass
        class ModelOutput:
            logits: torch.Tensor

        class Wrapped(Net):
            def forward(self, x):
                return ModelOutput(super().forward(x))

        wrapped, outputs = Wrapped(), []
        for x, _ in train_loader:
            outputs.append(wrapped(x))
        result = [float(out.logits.sum()) for out in outputs]
        """,
        "outputs.append(wrapped(x))",
        "outputs.append(wrapped(x).detach())",
    ),
    "a distribution": Case(
        """
        policies = []
        for x, _ in train_loader:
            policies.append(torch.distributions.Categorical(logits=model(x)))
        result = [float(policy.entropy().sum()) for policy in policies]
        """,
        "logits=model(x)))",
        "logits=model(x)).detach())",
    ),
    "a packed sequence": Case(
        """
        packed = []
        for x, _ in train_loader:
            packed.append(nn.utils.rnn.pack_padded_sequence(model(x)[:, None], torch.ones(1).long()))
        result = [float(item.data.sum()) for item in packed]
        """,
        "torch.ones(1).long()))",
        "torch.ones(1).long()).detach())",
    ),
    "a module chosen by its settings, with a tuple for an answer": Case(
        """
        class Either(nn.Module):
            def __init__(self, with_features):
                super().__init__()
                self.net, self.with_features = Net(), with_features

            def forward(self, x):
                out = self.net(x)
                return (out, x) if self.with_features else out

        either, outputs = Either(with_features=True), []
        for x, _ in train_loader:
            outputs.append(either(x))
        result = [float(out.sum()) for out, _ in outputs]
        """,
        "outputs.append(either(x))",
        "outputs.append(either(x).detach())",
    ),
    # -- an evaluation that wants gradients
    "forces of an energy": Case(
        """
        def validate(model, val_loader):
            model.eval()
            forces = 0.0
            for x, _ in val_loader:
                x.requires_grad_(True)
                forces += torch.autograd.grad(model(x).sum(), x)[0].norm().item()
            return forces

        result = validate(model, val_loader)
        """,
        *NO_GRAD,
    ),
    "forces inside of the module": Case(
        """
        class Potential(Net):
            def forward(self, x):
                x = x.detach().requires_grad_(True)
                return -torch.autograd.grad(super().forward(x).sum(), x)[0]

        def validate(model, val_loader):
            model.eval()
            return sum(model(x).norm().item() for x, _ in val_loader)

        def evaluate(model, val_loader):
            model.eval()
            total = 0.0
            for x, _ in val_loader:
                total += model(x).norm().item()
            return total

        result = evaluate(Potential(), val_loader)
        """,
        "def evaluate(",
        "@torch.no_grad()\ndef evaluate(",
    ),
    "a hook that the model puts on its features": Case(
        """
        class Hooked(Net):
            def forward(self, x):
                features = x @ self.fc.weight.t()
                features.register_hook(print)
                return features + self.fc.bias

        def validate(model, val_loader):
            model.eval()
            hits = 0
            for x, y in val_loader:
                hits += (model(x).argmax(1) == y).sum().item()
            return hits

        result = validate(Hooked(), val_loader)
        """,
        *NO_GRAD,
    ),
    "adversarial examples": Case(
        """
        def validate(model, val_loader):
            model.eval()
            hits = 0
            for x, y in val_loader:
                x.requires_grad_(True)
                criterion(model(x), y).backward()
                hits += (model(x + 0.3 * x.grad.sign()).argmax(1) == y).sum().item()
            return hits

        result = validate(model, val_loader)
        """,
        *NO_GRAD,
    ),
    "adversarial examples of a helper": Case(
        """
        def attack(model, x, y):
            x = x.clone().requires_grad_(True)
            (gradient,) = torch.autograd.grad(criterion(model(x), y), x)
            return (x + 0.3 * gradient.sign()).detach()

        def validate(model, val_loader):
            model.eval()
            hits = 0
            for x, y in val_loader:
                hits += (model(attack(model, x, y)).argmax(1) == y).sum().item()
            return hits

        result = validate(model, val_loader)
        """,
        *NO_GRAD,
    ),
    "adversarial examples of a class": Case(
        """
        class FGSM:
            def __init__(self, model, step):
                self.model, self.step = model, step

            def __call__(self, x, y):
                x = x.clone().requires_grad_(True)
                criterion(self.model(x), y).backward()
                return (x + self.step * x.grad.sign()).detach()

        def validate(model, val_loader, attack):
            model.eval()
            hits = 0
            for x, y in val_loader:
                hits += (model(attack(x, y)).argmax(1) == y).sum().item()
            return hits

        result = validate(model, val_loader, FGSM(model, 0.3))
        """,
        *NO_GRAD,
    ),
    "a saliency map by hooks": Case(
        """
        def validate(model, val_loader):
            model.eval()
            maps = []
            handle = model.fc.register_full_backward_hook(lambda module, into, out: maps.append(out[0].abs().sum().item()))
            for x, y in val_loader:
                model(x).gather(1, y[:, None]).sum().backward()
            handle.remove()
            return maps

        result = validate(model, val_loader)
        """,
        *NO_GRAD,
    ),
    "a model that adapts while it is tested": Case(
        """
        def adapt(model, x):
            out = model(x)
            optimizer.zero_grad()
            (-(out.softmax(1) * out.log_softmax(1)).sum(1)).mean().backward()
            optimizer.step()
            return out

        def validate(model, val_loader):
            model.eval()
            hits = 0
            for x, y in val_loader:
                hits += (adapt(model, x).argmax(1) == y).sum().item()
            return hits

        validate(model, val_loader)
        result = model.state_dict()
        """,
        *NO_GRAD,
    ),
    "gradient norms of a validation": Case(
        """
        def validate(model, val_loader):
            model.eval()
            norms = []
            for x, y in val_loader:
                gradients = torch.autograd.grad(criterion(model(x), y), list(model.parameters()))
                norms.append(sum(g.norm() for g in gradients).item())
            return norms

        result = validate(model, val_loader)
        """,
        *NO_GRAD,
    ),
    "a module that asks for the gradient mode": Case(
        """
        class Noisy(Net):
            def forward(self, x):
                return super().forward(x + 0.1 if torch.is_grad_enabled() else x)

        def validate(model, val_loader):
            model.eval()
            total = 0.0
            for x, _ in val_loader:
                total += model(x).sum().item()
            return total

        result = validate(Noisy(), val_loader)
        """,
        *NO_GRAD,
    ),
    "a transformer, which takes another path without gradients": Case(
        """
        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1)

            def forward(self, x):
                padding = torch.arange(8).expand(2, 8) > 5
                return self.layers(x.view(2, 4, 4).repeat(1, 2, 1), src_key_padding_mask=padding)

        def validate(model, val_loader):
            model.eval()
            total = 0.0
            for x, _ in val_loader:
                total += model(x).sum().item()
            return total

        result = validate(Encoder(), val_loader)
        """,
        *NO_GRAD,
    ),
    # -- what an evaluation hands out
    "an evaluation whose loss the caller backpropagates": Case(
        """
        def validate(model, val_loader):
            model.eval()
            losses = []
            for x, y in val_loader:
                losses.append(criterion(model(x), y))
            return torch.stack(losses).mean()

        loss = validate(model, val_loader)
        loss.backward()
        optimizer.step()
        result = model.state_dict()
        """,
        *NO_GRAD,
    ),
    "an evaluation whose loss enters another": Case(
        """
        def evaluate(model, val_loader):
            model.eval()
            total = 0.0
            for x, y in val_loader:
                total = total + criterion(model(x), y)
            return {"loss": total, "seen": len(val_loader)}

        for x, y in train_loader:
            optimizer.zero_grad()
            (criterion(model(x), y) + 0.1 * evaluate(model, val_loader)["loss"]).backward()
            optimizer.step()
        result = model.state_dict()
        """,
        "def evaluate(",
        "@torch.no_grad()\ndef evaluate(",
    ),
    "an evaluation that also trains": Case(
        """
        def validate(model, val_loader, optimizer=None):
            model.train(optimizer is not None)
            for x, y in val_loader:
                loss = criterion(model(x), y)
                if optimizer is not None:
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()

        validate(model, val_loader, optimizer)
        validate(model, val_loader)
        result = model.state_dict()
        """,
        *NO_GRAD,
    ),
    "an evaluation that keeps features for a later loss": Case(
        """
        def validate(model, val_loader):
            model.eval()
            for x, y in val_loader:
                model.prototype = model(x).mean(0)

        validate(model, val_loader)
        model.prototype.sum().backward()
        optimizer.step()
        result = [p.data for p in model.parameters()]
        """,
        *NO_GRAD,
    ),
    "an evaluation that is a generator for a training loop": Case(
        """
        def predictions(model, val_loader):
            model.eval()
            for x, y in val_loader:
                yield model(x), y

        for out, y in predictions(model, val_loader):
            optimizer.zero_grad()
            criterion(out, y).backward()
            optimizer.step()
        result = model.state_dict()
        """,
        "def predictions(",
        "@torch.no_grad()\ndef predictions(",
    ),
    # -- what is stored is written later: clone and copy
    "labels that are written after they are stored": Case(
        """
        labels = []
        for x, y in worker_loader:
            labels.append(y)
            y[y == 2] = 0
        result = torch.cat(labels)
        """,
        "labels.append(y)",
        "labels.append(y.clone())",
    ),
    "inputs that are scaled in place after they are stored": Case(
        """
        kept = []
        for x, y in worker_loader:
            kept.append(x)
            x -= x.mean()
        result = kept
        """,
        "kept.append(x)",
        "kept.append(x.clone())",
    ),
    "inputs that a method writes": Case(
        """
        kept = []
        for x, y in worker_loader:
            kept.append(x)
            x.mul_(2)
        result = kept
        """,
        "kept.append(x)",
        "kept.append(x.clone())",
    ),
    "inputs that a function writes": Case(
        """
        def normalise(batch):
            batch.sub_(batch.mean()).div_(batch.std())
            return batch

        kept, scores = [], []
        for x, y in worker_loader:
            kept.append(x)
            scores.append(normalise(x).amax().item())
        result = kept
        """,
        "kept.append(x)",
        "kept.append(x.clone())",
    ),
    "inputs that a module writes": Case(
        """
        rectify, kept = nn.ReLU(inplace=True), []
        for x, y in worker_loader:
            kept.append(x)
            rectify(x)
        result = kept
        """,
        "kept.append(x)",
        "kept.append(x.clone())",
    ),
    "inputs that are written as an output": Case(
        """
        kept = []
        for x, y in worker_loader:
            kept.append(x)
            torch.tanh(x, out=x)
        result = kept
        """,
        "kept.append(x)",
        "kept.append(x.clone())",
    ),
    "a stored batch that is written before the batch is used": Case(
        """
        kept, sums = [], []
        for x, y in worker_loader:
            kept.append(x)
            kept[-1] *= 0.5
            sums.append(x.sum().item())
        result = sums
        """,
        "kept.append(x)",
        "kept.append(x.clone())",
    ),
    "a view that is written after the batch is stored": Case(
        """
        kept = []
        for x, y in worker_loader:
            first = x[:, 0]
            kept.append(x)
            first.zero_()
        result = kept
        """,
        "kept.append(x)",
        "kept.append(x.clone())",
    ),
    "an array that shares its memory with a tensor": Case(
        """
        kept = []
        for x, y in worker_loader:
            array = x.numpy()
            kept.append(array)
            array[array < 0] = 0
        result = kept
        """,
        "kept.append(array)",
        "kept.append(array.copy())",
    ),
    "an array whose tensor is written": Case(
        """
        kept = []
        for x, y in worker_loader:
            kept.append(x.numpy())
            x.clamp_(0, 1)
        result = kept
        """,
        "kept.append(x.numpy())",
        "kept.append(x.numpy().copy())",
    ),
    "an array that numpy writes": Case(
        """
        kept = []
        for x, y in worker_loader:
            array = x.numpy()
            kept.append(array)
            np.clip(array, 0, 1, out=array)
        result = kept
        """,
        "kept.append(array)",
        "kept.append(array.copy())",
    ),
    "rows of an array that is written later": Case(
        """
        rows = []
        for x, y in val_loader:
            volume = np.repeat(x.numpy(), 1000, axis=0)
            rows.append(volume[0])
            volume -= volume.mean()
        result = rows
        """,
        "rows.append(volume[0])",
        "rows.append(volume[0].copy())",
    ),
    "rows of a buffer that each step fills again": Case(
        """
        buffer, rows = torch.empty(1000, 4), []
        for x, y in val_loader:
            torch.mul(x.repeat(125, 1), 2, out=buffer)
            rows.append(buffer[0])
        result = rows
        """,
        "rows.append(buffer[0])",
        "rows.append(buffer[0].clone())",
    ),
    "a row through which the whole is written": Case(
        """
        rows, sums = [], []
        for x, y in val_loader:
            big = x.repeat(125, 1)
            rows.append(big[0])
            rows[-1].zero_()
            sums.append(big.sum().item())
        result = sums
        """,
        "rows.append(big[0])",
        "rows.append(big[0].clone())",
    ),
    # -- what a loader hands out is no tensor
    "names of a batch": Case(
        """
        class Named(torch.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, i):
                return {"x": torch.ones(4) * i, "name": str(i)}

        names = []
        for batch in DataLoader(Named(), batch_size=2, num_workers=2):
            names.append(batch["name"])
        result = names
    """,
        'names.append(batch["name"])',
        'names.append(batch["name"].clone())',
    ),
    "a batch that is a list": Case(
        """
        batches = []
        for batch in worker_loader:
            batches.append(batch)
        result = batches
        """,
        "batches.append(batch)",
        "batches.append(batch.clone())",
    ),
    "targets of a collate function": Case(
        """
        def collate(items):
            return torch.stack([x for x, _ in items]), [{"label": y} for _, y in items]

        targets = []
        for x, target in DataLoader(data, batch_size=8, num_workers=2, collate_fn=collate):
            targets.append(target)
        result = targets
        """,
        "targets.append(target)",
        "targets.append(target.clone())",
    ),
    "targets of a collate function that is not here": Case(
        """
        from torch.utils.data import default_convert

        targets = []
        for item in DataLoader(data, batch_size=8, num_workers=2, collate_fn=default_convert):
            targets.append(item[0])
        result = targets
        """,
        "targets.append(item[0])",
        "targets.append(item[0].clone())",
    ),
    "an array of a collate function": Case(
        """
        def collate(items):
            return np.stack([x.numpy() for x, _ in items]), [int(y) for _, y in items]

        arrays = []
        for x, y in DataLoader(data, batch_size=8, num_workers=2, collate_fn=collate):
            arrays.append(x)
        result = arrays
    """,
        "arrays.append(x)",
        "arrays.append(x.clone())",
    ),
}

# The same forms where nothing is in the way: without them, what is left alone would say nothing.
FIXED: Final = {
    "a sum of losses": Case(
        """
        total = 0.0
        for x, y in train_loader:
            total += criterion(model(x), y)
        result = float(total)
        """,
        "total += criterion(model(x), y)",
        "total += criterion(model(x), y).detach()",
    ),
    "a dict of sums": Case(
        """
        terms = {"fit": 0.0}
        for x, y in train_loader:
            terms["fit"] += criterion(model(x), y)
        result = {name: float(value) for name, value in terms.items()}
        """,
        'terms["fit"] += criterion(model(x), y)',
        'terms["fit"] += criterion(model(x), y).detach()',
    ),
    "a meter": Case(
        """
        class AverageMeter:
            def __init__(self):
                self.sum, self.count = 0.0, 0

            def update(self, value, n=1):
                self.sum += value * n
                self.count += n

        meter = AverageMeter()
        for x, y in train_loader:
            meter.update(criterion(model(x), y), len(y))
        result = float(meter.sum) / meter.count
        """,
        "meter.update(criterion(model(x), y), len(y))",
        "meter.update(criterion(model(x), y).detach(), len(y))",
    ),
    "copies on the host": Case(
        """
        outputs = []
        for x, _ in train_loader:
            outputs.append(model(x).cpu())
        result = torch.cat(outputs).sum().item()
        """,
        "model(x).cpu()",
        "model(x).detach().cpu()",
    ),
    "arrays of a loader with workers": Case(
        """
        kept = []
        for x, y in worker_loader:
            array = x.numpy()
            kept.append(array)
        result = kept
        """,
        "kept.append(array)",
        "kept.append(array.copy())",
    ),
    "an evaluation": Case(
        """
        def validate(model, val_loader):
            model.eval()
            hits = 0
            for x, y in val_loader:
                hits += (model(x).argmax(1) == y).sum().item()
            return hits

        result = validate(model, val_loader)
        """,
        *NO_GRAD,
    ),
}

# What cannot be shown in a line of torch, or not on every processor.
LEFT_ALONE: Final = {
    "an LSTM of two layers, whose last bits are others without gradients": """
        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(4, 64, num_layers=2, batch_first=True)

            def forward(self, x):
                return self.rnn(x[:, None].repeat(1, 8, 1))[0]

        def validate(model, val_loader):
            model.eval()
            total = 0.0
            for x, _ in val_loader:
                total += model(x).sum().item()
            return total

        result = validate(Tagger(), val_loader)
    """,
    "adversarial examples of a library": """
        import torchattacks

        def validate(model, val_loader):
            model.eval()
            attack, hits = torchattacks.PGD(model), 0
            for x, y in val_loader:
                hits += (model(attack(x, y)).argmax(1) == y).sum().item()
            return hits
    """,
    "attributions of a library": """
        from captum.attr import IntegratedGradients

        def validate(model, val_loader):
            model.eval()
            explain, total = IntegratedGradients(model), 0.0
            for x, y in val_loader:
                total += explain.attribute(x, target=y).abs().sum().item()
            return total
    """,
    "outputs of a Hugging Face model": """
        from transformers import AutoModel

        encoder, outputs = AutoModel.from_pretrained("bert-base-uncased"), []
        for batch in train_loader:
            outputs.append(encoder(**batch))
    """,
    "losses that a library backpropagates": """
        from accelerate import Accelerator

        accelerator = Accelerator()
        losses = []
        for x, y in train_loader:
            losses.append(criterion(model(x), y))
        accelerator.backward(torch.stack(losses).sum())
    """,
    "outputs whose history a library draws": """
        from torchviz import make_dot

        outputs = []
        for x, _ in train_loader:
            outputs.append(model(x))
        make_dot(outputs[-1].mean(), params=dict(model.named_parameters())).render("graph")
    """,
}


def program_of(text: str) -> str:
    return f"{HEAD}{dedent(text).strip()}\n"


def fixed(program: str, folder: Path, *, unsafe: bool = False) -> str:
    """The program after its safe fixes, and after those that are not where they are asked for."""
    compile(program, "train.py", "exec")
    path = folder / "train.py"
    path.write_bytes(program.encode())
    # Without the scout, so that a file that it holds back by mistake does not look left alone.
    report = engine.run([str(path)], EVERYTHING, folder, engine.RunOptions(fix=True, unsafe_fixes=unsafe, cache=False, processes=1, scout=False))
    assert not report.failures, "\n".join(failure.trace for failure in report.failures)
    return path.read_bytes().decode()


@pytest.mark.parametrize(
    "text", [pytest.param(trap.program, id=name) for name, trap in TRAPS.items()] + [pytest.param(text, id=name) for name, text in LEFT_ALONE.items()]
)
def test_it_is_left_alone(text: str, tmp_path: Path) -> None:
    assert fixed(program_of(text), tmp_path) == program_of(text)


@pytest.mark.parametrize("name", ["a sum that is printed with its history", "a mean of it that is printed with its history"])
def test_what_only_prints_otherwise_is_fixed_where_unsafe_fixes_are_asked_for(name: str, tmp_path: Path) -> None:
    trap = TRAPS[name]
    assert fixed(program_of(trap.program), tmp_path, unsafe=True) == program_of(trap.program).replace(trap.text, trap.rewritten)


def outcomes(case: Case, run: Run, folder: Path) -> list[dict[str, Any]]:
    """What a program comes to as it is given, and with the rewrite."""
    program = program_of(case.program) + "\n\ndef main():\n    return result\n"
    assert program.count(case.text) == 1
    (folder / "given.py").write_text(program, encoding="utf-8")
    (folder / "rewritten.py").write_text(program.replace(case.text, case.rewritten), encoding="utf-8")
    return run((folder, "given.py"), (folder, "rewritten.py"))


@pytest.mark.parametrize("trap", [pytest.param(trap, id=name) for name, trap in TRAPS.items()])
def test_the_usual_rewrite_changes_what_it_computes(trap: Case, run: Run, tmp_path: Path) -> None:
    given, rewritten = outcomes(trap, run, tmp_path)
    assert given["error"] is None, given["error"]
    assert given != rewritten


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in FIXED.items()])
def test_the_plain_form_is_fixed(case: Case, tmp_path: Path) -> None:
    assert fixed(program_of(case.program), tmp_path) == program_of(case.program).replace(case.text, case.rewritten)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in FIXED.items()])
def test_the_plain_form_computes_the_same(case: Case, run: Run, tmp_path: Path) -> None:
    given, rewritten = outcomes(case, run, tmp_path)
    assert given["error"] is None, given["error"]
    assert given == rewritten


# -- Lightning: a list that is read after the hook that would clear it -----------------------------------------------------

MODEL: Final = """
import torch
from torch import nn
import lightning as L


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 3)
        self.last = None
        self.history = []
        self.outputs = []

    def validation_step(self, batch, batch_idx):
        self.outputs.append(self.net(batch))

    def on_validation_epoch_end(self):
        self.log("score", torch.cat(self.outputs).mean())
"""
READ_LATER: Final = {
    "by a later hook of the validation": """
        def on_validation_end(self):
            torch.save(self.outputs, "outputs.pt")
    """,
    "by a hook of the training epoch around it": """
        def on_train_epoch_end(self):
            self.log("spread", torch.cat(self.outputs).std())
    """,
    "by the end of the fit": """
        def on_fit_end(self):
            torch.save(torch.cat(self.outputs), "outputs.pt")
    """,
    "by a property": """
        @property
        def predictions(self):
            return torch.cat(self.outputs)
    """,
    "by a method that others call": """
        def predictions(self):
            return torch.cat(self.outputs)
    """,
    "by name": """
        def on_validation_end(self):
            for stage in ("out",):
                torch.save(getattr(self, f"{stage}puts"), "outputs.pt")
    """,
    "under a second name that the hook gives it": """
            self.last = self.outputs

        def on_fit_end(self):
            torch.save(self.last, "outputs.pt")
    """,
    "in a list of lists": """
            self.history.append(self.outputs)

        def on_fit_end(self):
            torch.save(self.history, "outputs.pt")
    """,
    "by a subclass": """
    class Saving(Model):
        def on_validation_epoch_end(self):
            super().on_validation_epoch_end()
            torch.save(self.outputs, "outputs.pt")
    """,
    "by a callback": """
    class Saver(L.Callback):
        def on_validation_end(self, trainer, pl_module):
            torch.save(pl_module.outputs, "outputs.pt")
    """,
    "by the script": """
    model = Model()
    L.Trainer().validate(model, loader)
    torch.save(model.outputs, "outputs.pt")
    """,
    "by a function that gets the model": """
    def save(model, path):
        torch.save(torch.cat(model.outputs), path)
    """,
}


@pytest.mark.parametrize("case", READ_LATER, ids=str)
def test_a_list_is_not_cleared_before_it_is_read(case: str, tmp_path: Path) -> None:
    text = dedent(READ_LATER[case]).rstrip()
    inside = not text.lstrip("\n").startswith(("class", "model", "def save"))
    program = f"{MODEL}{indent(text, '    ') if inside else text}\n"
    assert fixed(program, tmp_path) == program


def test_a_list_that_is_not_read_later_is_cleared(tmp_path: Path) -> None:
    assert fixed(MODEL, tmp_path) == f"{MODEL}        self.outputs.clear()\n"


# -- detach: all of a value that carries the graph, and nothing else ------------------------------------------------------

VALUES: Final = {
    "a product": "loss * len(y)",
    "a product the other way round": "len(y) * loss",
    "a quotient": "loss / len(y)",
    "a power": "loss ** 2",
    "a negative": "-loss",
    "a sum of two": "loss + model(x).mean()",
    "brackets": "(loss * 2)",
    "a choice": "loss if len(y) > 4 else loss * 2",
    "a choice in brackets": "(loss if len(y) > 4 else loss * 2)",
    "a call around it": "torch.sqrt(loss)",
    "a method": "loss.sqrt()",
    "a name that is bound": "(value := loss * 2)",
    "an element": "torch.stack([loss, loss])[0]",
    "brackets over lines": "(\n        loss  # the fit\n        * 2  # twice\n    )",
    "a call over lines": "torch.add(\n        loss,\n        1,\n    )",
    "a continued line": "loss \\\n        * 2",
}
BEHIND: Final = {"a comment behind": "  # of the batch", "a statement behind": "; seen = 1"}
WRITTEN: Final = [
    *(pytest.param(value, "", id=name) for name, value in VALUES.items()),
    *(pytest.param("loss * 2", behind, id=name) for name, behind in BEHIND.items()),
]
LOOP: Final = f"""{HEAD}
total, kept, table = 0.0, [], {{{{}}}}
for x, y in train_loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {{}}
"""
STORES: Final = ("total += {}", "total = total + ({})", "kept.append({})", "kept.append(({}))", "kept += [{}]", "table[len(table)] = {}")


def outside(tree: ast.AST) -> set[str]:
    """Names that are read in a tree, but not in what is detached."""
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute) and tree.func.attr == "detach":
        return set()
    return {tree.id if isinstance(tree, ast.Name) else "", *(name for child in ast.iter_child_nodes(tree) for name in outside(child))}


class Plain(ast.NodeTransformer):
    """Takes away what the fixes of growing state put around code."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "detach" else node

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.body if self.ends_gradients(node.items[0].context_expr) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list = [item for item in node.decorator_list if not self.ends_gradients(item)]
        return node

    @staticmethod
    def ends_gradients(node: ast.expr) -> bool:
        return ast.unparse(node) in {"torch.no_grad()", "torch.no_grad", "torch.inference_mode()", "torch.inference_mode"}


def meaning(program: str) -> str:
    """A program without its layout and without what a fix puts around code."""
    return ast.dump(Plain().visit(ast.parse(program)))


def comments(program: str) -> list[str]:
    return [token.string for token in tokenize.generate_tokens(io.StringIO(program).readline) if token.type == tokenize.COMMENT]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("value", "behind"), WRITTEN)
def test_a_value_is_detached_whole(value: str, behind: str, store: str, tmp_path: Path) -> None:
    program = LOOP.format(f"{store.format(value)}{behind}")
    result = fixed(program, tmp_path)
    assert meaning(result) == meaning(program)
    assert comments(result) == comments(program)
    loop = ast.parse(result).body[-1]
    assert isinstance(loop, ast.For)
    stored = loop.body[4]
    assert result == program or not {"loss", "model"} & outside(stored), ast.unparse(stored)


# -- a loop that moves to the right ---------------------------------------------------------------------------------------

BEFORE: Final = f"""{HEAD}

def run():
    for x, y in train_loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    model.eval()
    hits = 0
"""
LOOPS: Final = {
    "plain": """
    for x, y in val_loader:
        hits += (model(x).argmax(1) == y).sum().item()
    return hits
""",
    "a string over lines": '''
    for x, y in val_loader:
        print("""shape
    of the batch
""", x.shape)
        hits += (model(x).argmax(1) == y).sum().item()
    return hits
''',
    "a string over lines with values": '''
    for x, y in val_loader:
        print(f"""shape
    {x.shape
}
""")
        hits += (model(x).argmax(1) == y).sum().item()
    return hits
''',
    "a string that goes on behind a backslash": """
    for x, y in val_loader:
        print("shape \\
    of the batch")
        hits += (model(x).argmax(1) == y).sum().item()
    return hits
""",
    "a string that ends the loop": '''
    for x, y in val_loader:
        hits += (model(x).argmax(1) == y).sum().item()
        note = """
kept
        as it is"""
    return hits, note
''',
    "comments at every depth": """
    for x, y in val_loader:  # each batch
# at the margin
        # in the loop
        hits += (model(x).argmax(1) == y).sum().item()  # type: ignore[assignment]
            # too deep
        # at its end
    # behind it
    return hits
""",
    "an else of the loop": """
    for x, y in val_loader:
        hits += (model(x).argmax(1) == y).sum().item()
    else:
        hits = hits / 32
    return hits
""",
    "lines that are continued": """
    for x, y in val_loader:
        hits += \\
    (model(x)
      .argmax(1) == y) \\
            .sum().item()
    return hits
""",
    "a header over lines": """
    for x, y in (
        val_loader
    ):
        hits += (model(x).argmax(1) == y).sum().item()
    return hits
""",
    "a loop in one line": """
    for x, y in val_loader: hits += (model(x).argmax(1) == y).sum().item()
    return hits
""",
    "two statements in a line": """
    seen = 0; rate = 1
    for x, y in val_loader:
        hits += (model(x).argmax(1) == y).sum().item(); seen += rate
    return hits, seen
""",
    "a loop below a condition": """
    if val_loader is not None:
        for x, y in val_loader:
            hits += (model(x).argmax(1) == y).sum().item()
    elif train_loader is None:
        hits = -1
    return hits
""",
    "a loop in an attempt": """
    try:
        for x, y in val_loader:
            hits += (model(x).argmax(1) == y).sum().item()
    except StopIteration:
        pass
    finally:
        model.train()
    return hits
""",
    "blocks in the loop": """
    for i, (x, y) in enumerate(val_loader):
        def right(out):
            '''How many
            are right.'''
            return (out.argmax(1) == y).sum().item()

        if i > 8:
            break
        with torch.autocast("cpu", enabled=False):
            hits += right(model(x))

        continue

    return hits
""",
    "steps of two": """
    for x, y in val_loader:
      if len(y):
         hits += (model(x).argmax(1) == y).sum().item()
    return hits
""",
    "tabs in the loop": """
    for x, y in val_loader:
    \tout = model(x)
    \tif len(y):
    \t\thits += (out.argmax(1) == y).sum().item()
    return hits
""",
    "the end of the program": """
    for x, y in val_loader:
        hits += (model(x).argmax(1) == y).sum().item()
""",
}
LAYOUTS: Final = {
    "as it is": lambda program: program,
    "no end of the last line": lambda program: program.rstrip("\n"),
    "tabs": lambda program: program.replace("    ", "\t"),
    "carriage returns": lambda program: program.replace("\n", "\r\n"),
    "a form feed": lambda program: program.replace("\ndef run", "\n\f\ndef run"),
}
PLAIN: Final = "plain", "as it is"
LAID_OUT: Final = [pytest.param(case, layout, id=f"{case}, {layout}") for case in LOOPS for layout in LAYOUTS if (case, layout) != ("steps of two", "tabs")]


@pytest.mark.parametrize(("case", "layout"), LAID_OUT)
def test_a_loop_keeps_its_meaning(case: str, layout: str, tmp_path: Path) -> None:
    program = LAYOUTS[layout](BEFORE + LOOPS[case].lstrip("\n"))
    result = fixed(program, tmp_path)
    compile(result, "train.py", "exec")
    assert (case, layout) != PLAIN or "    with torch.no_grad():\n        for x, y in val_loader:\n" in result, "else these tests would say nothing"
    assert meaning(result) == meaning(program)
    assert comments(result) == comments(program)
    assert result.count("\f") == program.count("\f")
    assert result.count("\r\n") == result.count("\r") == (result.count("\n") if "\r" in program else 0)


def test_a_loop_keeps_its_own_step_where_the_rest_of_the_file_has_tabs(tmp_path: Path) -> None:
    head = LAYOUTS["tabs"](HEAD) + "model.eval()\nhits = 0\n"
    result = fixed(head + "for x, y in val_loader:\n    hits += (model(x).argmax(1) == y).sum().item()\n", tmp_path)
    assert result == head + "with torch.no_grad():\n    for x, y in val_loader:\n        hits += (model(x).argmax(1) == y).sum().item()\n"


def test_a_generator_does_not_hand_its_gradient_mode_to_its_caller(tmp_path: Path) -> None:
    program = program_of("""
        def predictions(model, val_loader):
            model.eval()
            for x, y in val_loader:
                yield model(x).argmax(1)

        for guess in predictions(model, val_loader):
            optimizer.zero_grad()
            criterion(model(torch.ones(8, 4)), guess).backward()
            optimizer.step()
    """)
    result = ast.parse(fixed(program, tmp_path))
    blocks = [node for node in ast.walk(result) if isinstance(node, ast.With)]
    assert not [node for block in blocks for node in ast.walk(block) if isinstance(node, ast.Yield)]


def test_a_decorator_does_not_reach_a_term_that_is_returned(tmp_path: Path) -> None:
    program = program_of("""
        def validate(model, val_loader):
            penalty = model.fc.weight.pow(2).sum()
            model.eval()
            hits = 0
            for x, y in val_loader:
                hits += (model(x).argmax(1) == y).sum().item()
            return penalty, hits

        penalty, hits = validate(model, val_loader)
        penalty.backward()
        optimizer.step()
    """)
    result = ast.parse(fixed(program, tmp_path))
    assert [node.decorator_list for node in ast.walk(result) if isinstance(node, ast.FunctionDef) and node.name == "validate"] == [[]]

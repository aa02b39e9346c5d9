"""torchode: Tsit5 in PyTorch, a step size of its own for each sample, all samples until the last one ends."""

from typing import Any

import numpy as np
import torch
import torchode

from benchmarks.engine.outcome import Outcome
from benchmarks.engine.problems import Ensemble, entropy, read_state, softmax


class Torchode:
    """The members of an ensemble as one batch, with the gradient of the loss written out, in float64.

    The solver is compiled by TorchScript: `torch.compile`, which torchode's own page shows, leaves `solve` as it is.
    """

    def __init__(self, ensemble: Ensemble, order=None, batch: int | None = None, threads: int | None = None):
        """Choose the batches: None is one of all members, else slices of members from the cheapest to the dearest."""
        self.ensemble, self.threads = ensemble, threads
        self.order = np.arange(ensemble.members) if order is None else np.asarray(order)
        ordered, batch = ensemble.take(self.order), batch or ensemble.members
        self.slices = [ordered.take(slice(i, i + batch)) for i in range(0, ensemble.members, batch)]
        self.problems = [_problem(part) for part in self.slices]
        self.solvers = {}

    def run(self, rtol: float):
        """Solve every batch."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        solver = self.solvers.get(rtol)
        if solver is None:
            solver = self.solvers[rtol] = _solver(self.ensemble, rtol)
        with torch.inference_mode():
            return [solver.solve(problem, args=args) for problem, args in self.problems]

    def read(self, raw) -> Outcome:
        """Return the answer of a run, in the ensemble's own order."""
        back = np.argsort(self.order)
        states, steps = (
            np.concatenate([x.numpy() for x in parts])[back]
            for parts in zip(*((solution.ys, solution.stats["n_steps"]) for solution in raw), strict=True)
        )
        _, d, n = self.ensemble.values.shape
        values, scores = read_state(states, d, n)
        saved = None if self.ensemble.ts is None else entropy(softmax(scores))
        compiled = all(isinstance(solver, torch.jit.ScriptModule) for solver in self.solvers.values())
        note = "" if compiled else "not compiled, TorchScript fails here"
        return Outcome(values[:, -1], scores[:, -1], steps, 6 * steps + 2, saved, note)


def tensors(part: Ensemble) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the initial state, and all data in one tensor: TorchScript hands no other kind through."""
    data = part.first
    if part.kind == "square":
        data = np.concatenate([data, np.broadcast_to(part.second[:, None], (*data.shape[:2], 1))], axis=2)
    return torch.as_tensor(part.state), torch.as_tensor(np.ascontiguousarray(data))


def _problem(part: Ensemble):
    state, data = tensors(part)
    t1 = torch.as_tensor(part.t1)
    ts = None if part.ts is None else torch.as_tensor(part.ts).expand(part.members, -1)
    return torchode.InitialValueProblem(state, torch.zeros_like(t1), t1, ts), data


class Field(torch.nn.Module):
    """The velocity of rows of (V, a)."""

    def __init__(self, kind: str, d: int, n: int):
        super().__init__()
        self.is_square, self.d, self.n = kind == "square", d, n

    def forward(self, t: torch.Tensor, y: torch.Tensor, args: Any) -> torch.Tensor:
        """Return V' = -g s^T and a' = -s * (q - s . q)."""
        assert isinstance(args, torch.Tensor)  # for TorchScript
        cut = self.d * self.n
        values, s = y[:, :cut].view(-1, self.d, self.n), torch.softmax(y[:, cut:], dim=1)
        beta = torch.bmm(values, s[:, :, None])
        if self.is_square:
            slope = torch.bmm(args[:, :, : self.d], beta - args[:, :, self.d :])
        else:
            slope = -args.transpose(1, 2) * torch.sigmoid(-torch.bmm(args, beta))
        q = torch.bmm(slope.transpose(1, 2), values)[:, 0]
        moved = slope * s[:, None]
        return torch.cat((-moved.view(-1, cut), s * ((s * q).sum(1, keepdim=True) - q)), dim=1)


def _solver(ensemble: Ensemble, rtol: float):
    _, d, n = ensemble.values.shape
    term = torchode.ODETerm(Field(ensemble.kind, d, n), with_stats=False, with_args=True)
    controller = torchode.IntegralController(atol=1e-3 * rtol, rtol=rtol, term=term)
    solver = torchode.AutoDiffAdjoint(torchode.Tsit5(term=term), controller)
    try:
        return torch.jit.script(solver)
    except RuntimeError:  # PyTorch 2.13 for Python 3.11 fails inside its own compiler on every torchode solver
        return solver

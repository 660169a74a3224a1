"""Adam for groups of parameters, with an average of the weights; on a GPU a whole training step becomes one CUDA graph.

For each group, with g its gradient, all parameters in one vector:

    g <- g min(1, clip / |g|)
    m <- beta1 m + (1 - beta1) g,   v <- beta2 v + (1 - beta2) g^2
    w <- w - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
    a <- decay a + (1 - decay) w,   decay = min(average, t / (t + 1 / share - 1))

The second bound lets the average forget where w started: it goes over the last `share` of all steps so far, more or
less.

A step whose loss or gradient is not finite changes nothing and is counted. Nothing here waits for the device. Names of
tensors end in their shape: P parameters of a group.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

BETA1 = 0.9
EAGER = 3  # steps on a GPU before the graph is made: libraries set themselves up in the first ones


class AveragedAdam(torch.optim.Optimizer):
    """Adam with clipping for each group, and averages.

    Args:
        groups: parameters, and the learning rate "lr" of each group, which may be changed before every step.
        beta2: memory of squared gradients.
        epsilon: added to their root.
        clip: largest norm of a group's gradient; 0 for no clipping.
        average: largest `decay`; 0: the average is the weights themselves.
        share: of the steps so far, over which the average goes.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        *,
        beta2: float,
        epsilon: float,
        clip: float,
        average: float,
        share: float = 0.05,
    ) -> None:
        super().__init__(groups, {"lr": 0.0, "steps": 0})
        self.beta2, self.epsilon, self.clip, self.average, self.share = beta2, epsilon, clip, average, share
        self._device = self.param_groups[0]["params"][0].device
        for group in self.param_groups:
            w_P = _flat(group["params"])
            state = {"m_P": torch.zeros_like(w_P), "v_P": torch.zeros_like(w_P), "average_P": w_P}
            self.state[group["params"][0]] = state
        self.skipped = torch.zeros(2, device=self._device)  # steps, the last ones in a row and all
        self.norms = torch.zeros(2, device=self._device)  # of gradients before clipping, their sum and number
        self._rates = torch.zeros(len(self.param_groups), device=self._device)
        self._corrections = torch.zeros(3, device=self._device)  # 1 - beta1^t, 1 - beta2^t, 1 - decay
        self._eager = EAGER
        self._graph: Any = None
        self._stream: Any = None
        if self._device.type == "cuda":
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

    def step(self, closure: Callable[[], Tensor]) -> None:  # type: ignore[override]
        """One step; `closure` leaves new gradients in the parameters and returns the loss.

        On a GPU, closure and update are captured once and replayed from then on: the closure must then always do the
        same, on inputs that stay where they are.
        """
        self._prepare()
        if self._stream is None:
            self._update(closure())
        elif self._graph is not None:
            self._graph.replay()
        elif self._eager > 0:
            self._eagerly(closure)
        else:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=self._stream):
                self._update(closure())
            self._graph.replay()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the weights are their averages."""
        kept = [_flat(group["params"]) for group in self.param_groups]
        for group in self.param_groups:
            _write(group["params"], self.state[group["params"][0]]["average_P"])
        try:
            yield
        finally:
            for group, w_P in zip(self.param_groups, kept, strict=True):
                _write(group["params"], w_P)

    def _prepare(self) -> None:
        """Count the step, and put its numbers where the device finds them."""
        for i, group in enumerate(self.param_groups):
            group["steps"] += 1
            self._rates[i].fill_(group["lr"])
        t = self.param_groups[0]["steps"]
        decay = min(self.average, t / (t + 1 / self.share - 1))
        for i, value in enumerate((1 - BETA1**t, 1 - self.beta2**t, 1 - decay)):
            self._corrections[i].fill_(value)

    def _eagerly(self, closure: Callable[[], Tensor]) -> None:
        """A step on the stream on which the graph will be captured."""
        self._eager -= 1
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._update(closure())
        current.wait_stream(self._stream)

    @torch.no_grad()
    def _update(self, loss: Tensor) -> None:
        gradients = [_flat([_gradient(p) for p in group["params"]]) for group in self.param_groups]
        norms = [g_P.norm() for g_P in gradients]
        fine = torch.isfinite(torch.stack([*norms, loss.detach().to(norms[0])])).all()
        self.skipped[0].copy_(torch.where(fine, 0, self.skipped[0] + 1))
        self.skipped[1] += ~fine
        whole = torch.stack(norms).norm()
        self.norms += torch.stack([torch.where(fine, whole, 0), fine.to(whole)])
        for i, (group, g_P, norm) in enumerate(zip(self.param_groups, gradients, norms, strict=True)):
            g_P = g_P * (self.clip / norm.clamp_min(self.clip)) if self.clip else g_P
            self._update_group(group, torch.where(fine, g_P, 0), self._rates[i], fine.to(g_P))

    def _update_group(self, group: dict[str, Any], g_P: Tensor, rate: Tensor, fine: Tensor) -> None:
        """`fine` is 1, or 0 for a step that changes nothing."""
        state = self.state[group["params"][0]]
        m_P, v_P = state["m_P"], state["v_P"]
        bias1, bias2, forgotten = self._corrections
        m_P.lerp_(g_P, fine * (1 - BETA1))
        v_P.lerp_(g_P.square(), fine * (1 - self.beta2))
        w_P = _flat(group["params"])
        w_P -= fine * rate * (m_P / bias1) / ((v_P / bias2).sqrt() + self.epsilon)
        state["average_P"].lerp_(w_P, forgotten)
        _write(group["params"], w_P)


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """A copy of all of them in one vector."""
    return torch.cat([t.detach().flatten() for t in tensors])


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


@torch.no_grad()
def _write(parameters: Sequence[nn.Parameter], values_P: Tensor) -> None:
    parts = torch.split(values_P, [p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.view_as(parameter))

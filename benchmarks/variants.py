"""`PriorDRNMF` and its neighbours, for `benchmarks.trials`: what was tried, and is not in the package."""

from typing import Any

import torch
from torch import Tensor, nn

from drnmf.maths.expectation import Layers as Acting
from drnmf.maths.nmf import unit_norm
from drnmf.maths.prior import bounded, objective
from drnmf.maths.thresholding import ista_step
from drnmf.models.base import State
from drnmf.models.drnmf import compressed
from drnmf.models.masks import dictionary_mask
from drnmf.models.prior_drnmf import Layers, _remembered, _scan

LEVEL, POWER, SPARSITY, EPSILON = 1.6, 0.5, 0.3, 1e-3


class Variant(nn.Module):
    """A network that is `PriorDRNMF` unless told otherwise.

    Args:
        W_FN: the dictionary it starts from.
        layers: that explain.
        goes_on: the layers that explain go on from what was heard of the frame, not from the frame before.
        each_layer: u for each layer, not one for all.
        units: of the GRU.
        mode: "mul" multiplies lambda, "add" adds to it, "none": there is no prior.
        hear: what the GRU hears: "g", the listener's activations, or "x", the features.
        gate: whether there is v.
        gain: whether there is r.
        seed: of the GRU's weights.
    """

    def __init__(
        self,
        W_FN: Tensor,
        *,
        layers: int = 5,
        goes_on: bool = False,
        each_layer: bool = False,
        units: int = 256,
        mode: str = "mul",
        hear: str = "g",
        gate: bool = True,
        gain: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        W_FN = unit_norm(W_FN)
        F, N = W_FN.shape
        self.units, self.mode, self.hear, self.n_speech = units, mode, hear, N // 2
        self.goes_on, self.each_layer, self.has_objective = goes_on, each_layer, False
        self.log_W = nn.Parameter(torch.log(EPSILON + W_FN))
        self.log_scale = nn.Parameter(torch.zeros(N))
        self.listener, self.explainer = Layers(2, N), Layers(layers, N)
        for each in (self.listener, self.explainer):
            each.initialise(W_FN, SPARSITY, EPSILON)
        if hear == "x" or mode == "none":
            del self.listener
        torch.manual_seed(seed)
        self.recurrent = nn.ModuleDict()
        if mode != "none":
            self.recurrent["gru"] = nn.GRU(F if hear == "x" else N, units, batch_first=True)
            maps = {"sparsity": N * (layers if each_layer else 1), "weight": N * gate, "gain": int(gain)}
            self.recurrent.update({name: nn.Linear(units, size) for name, size in maps.items() if size})
            for name in maps.keys() & self.recurrent.keys():
                nn.init.zeros_(self.recurrent[name].weight)
                nn.init.zeros_(self.recurrent[name].bias)

    @torch.no_grad()
    def go_on_from(self, trained: Any) -> None:
        """Weights of a trained `PriorDRNMF`: of its layers the last ones, of U a copy for each layer with its own."""
        self.log_W.copy_(trained.log_W)
        self.log_scale.copy_(trained.log_scale)
        for name in ("listener", "explainer"):
            for to, values in zip(getattr(self, name).parameters(), getattr(trained, name).parameters(), strict=True):
                to.copy_(values[-len(to) :])
        self.recurrent["gru"].load_state_dict(trained.gru.state_dict())
        for name, map in (("sparsity", trained.to_sparsity), ("weight", trained.to_weight), ("gain", trained.to_gain)):
            to = self.recurrent[name]
            copies = to.out_features // map.out_features
            to.weight.copy_(map.weight.repeat(copies, 1))
            to.bias.copy_(map.bias.repeat(copies))

    def groups(self) -> list[list[nn.Parameter]]:
        """Parameters by their rates: all others, and the recurrent part."""
        recurrent = list(self.recurrent.parameters())
        others = [p for name, p in self.named_parameters() if not name.startswith("recurrent.")]
        return [others, recurrent] if recurrent else [others]

    def dictionary(self) -> Tensor:
        """W (F, N)."""
        return unit_norm(torch.exp(self.log_W - self.log_W.detach().amax(0)))

    def start(self, n_sequences: int) -> State:
        """The state before the first frame: h, g, c and the level."""
        g = self.listener.log_h0.exp() if hasattr(self, "listener") else self.log_W.new_zeros(1)
        starts = (self.explainer.log_h0.exp(), g, self.log_W.new_zeros(self.units), self.log_W.new_zeros(2))
        return tuple(start.expand(n_sequences, -1) for start in starts)

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """As `PriorDRNMF.separate`."""
        h_BN, g_BN, c_BU, loudness_B2 = self.start(len(magnitude)) if state is None else state
        x_BTF, loudness = compressed(magnitude, loudness_B2, level=LEVEL, power=POWER)
        W_FN = self.dictionary()
        explainer = self.explainer.acting(W_FN)
        change, weight, gain, heard_BTN = None, 1.0, 1.0, x_BTF
        if self.mode != "none":
            if self.hear == "g":
                heard_BTN = _scan(x_BTF, W_FN, self.listener.acting(W_FN), g_BN, None)
                g_BN = heard_BTN[:, -1]
            c_BTU = _remembered(self.recurrent["gru"], heard_BTN, c_BU)
            c_BU = c_BTU[:, -1]
            change = self._change(c_BTU, explainer.sparsity_KN)
            weight, gain = (
                torch.exp(bounded(self.recurrent[name](c_BTU))) if name in self.recurrent else 1.0
                for name in ("weight", "gain")
            )
        if self.goes_on:
            h_BTN = gone_on(heard_BTN, x_BTF, W_FN, explainer, change)
        else:
            h_BTN = _scan(x_BTF, W_FN, explainer, h_BN, change)
        if self.has_objective or not torch.is_grad_enabled():
            self._judge(x_BTF, h_BTN, W_FN)
        mask = gain * dictionary_mask(self.log_scale.exp() * weight * h_BTN, W_FN, self.n_speech)
        return mask, (h_BTN[:, -1], g_BN, c_BU, *loudness)

    def _change(self, c_BTU: Tensor, sparsity_KN: Tensor) -> Tensor:
        """What is added to lambda, (K, B, T, N)."""
        u_BTM = self.recurrent["sparsity"](c_BTU)
        u_KBTN = u_BTM.unflatten(2, (len(sparsity_KN), -1)).movedim(2, 0) if self.each_layer else u_BTM[None]
        return sparsity_KN[:, None, None] * (torch.exp(bounded(u_KBTN)) - 1) if self.mode == "mul" else -u_KBTN

    def _judge(self, x_BTF: Tensor, h_BTN: Tensor, W_FN: Tensor) -> None:
        """The paper's objective; and how much of the features is explained, which is what it lacks with lambda = 0."""
        self.objective = objective(x_BTF, W_FN, h_BTN, sparsity=SPARSITY)
        self.explained = 1 - objective(x_BTF, W_FN, h_BTN, sparsity=0).detach()


def gone_on(h_BTN: Tensor, x_BTF: Tensor, W_FN: Tensor, layers: Acting[Tensor], change_KBTN: Tensor) -> Tensor:
    """Iterations from activations of the same frames, all frames at once."""
    for alpha_N, sparsity_N, change_BTN in zip(layers.alpha_KN, layers.sparsity_KN, change_KBTN, strict=True):
        h_BTN = ista_step(h_BTN, x_BTF, W_FN, alpha=alpha_N, sparsity=sparsity_N + change_BTN)
    return h_BTN

"""DR-NMF with a recurrent prior over its atoms: thresholds that expect (`maths.prior` has the equations)."""

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from drnmf.engines import gru_cluster, streams
from drnmf.engines.prior_network import PriorNetwork
from drnmf.engines.scan import scan
from drnmf.engines.scan_own import scan_own
from drnmf.maths import prior
from drnmf.maths.adaptation import moved_atoms
from drnmf.maths.nmf import check_dictionary, unit_norm
from drnmf.models import prior_packed
from drnmf.models.base import Separator, State, given
from drnmf.models.drnmf import compressed, eigenvector, weighted_alpha
from drnmf.models.graph import Frame, Graph
from drnmf.models.masks import MASK_FLOOR, dictionary_mask, split_sources
from drnmf.signal.arrays import Samples

_SILENCE = 1e-3  # sum of a frame's magnitudes


class Layers(nn.Module):
    """The step sizes, thresholds and start of K iterations over a dictionary that they do not own."""

    def __init__(self, n_layers: int, n_atoms: int) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.empty(n_layers, n_atoms))
        self.log_weight = nn.Parameter(torch.empty(n_layers, n_atoms))
        self.log_sparsity = nn.Parameter(torch.empty(n_layers, n_atoms))
        self.log_h0 = nn.Parameter(torch.empty(n_atoms))

    @torch.no_grad()
    def initialise(self, W_FN: Tensor, sparsity: float, epsilon: float) -> None:
        """ISTA with alpha = ||W||^2 = ||W||^2 (1/2 + 1/2), from h = 0, as DRNMF begins."""
        self.log_alpha.fill_(math.log(epsilon + 0.5))
        self.log_weight.copy_(torch.log(eigenvector(W_FN)).expand_as(self.log_weight))
        self.log_sparsity.fill_(math.log(epsilon + sparsity))
        self.log_h0.fill_(math.log(epsilon))

    def acting(self, W_FN: Tensor) -> prior.Layers:
        """As they act with a dictionary; with one for each sequence, so are step sizes."""
        alpha_KN = weighted_alpha(W_FN[..., None, :, :], self.log_alpha, self.log_weight)
        return prior.Layers(alpha_KN, self.log_sparsity.exp(), self.log_h0.exp())


class Weights(NamedTuple):
    """The weights as they act, functions of the trained parameters."""

    W_FN: Tensor
    listener: prior.Layers
    explainer: prior.Layers
    scale_N: Tensor


class PriorDRNMF(Separator):
    """A small DR-NMF listens, a GRU expects, DR-NMF explains the frame under what is expected; then the mask.

    There is one dictionary, for all layers and for the mask: nonnegative spectra with unit norm. The constructor draws
    it at random; `from_dictionary` starts from a trained one, where the untrained network is DR-NMF with tied layers.

    Args:
        n_layers: K, the layers that explain.
        n_listening: the layers that listen.
        n_atoms: N, speech and noise together.
        n_units: what the GRU remembers.
        n_speech: number of leading speech atoms, by default half.
        n_features: F.
        sparsity: lambda at the start.
        level: to which magnitudes are brought by their running level (`signal.level`).
        power: exponent applied to magnitudes next; the dictionary must come from data treated alike.
        epsilon: added before logarithms, so that zeros can be represented.
        generator: source of the random numbers.

    Examples:
        >>> import torch
        >>> from drnmf import PriorDRNMF
        >>> model = PriorDRNMF.from_dictionary(torch.rand(257, 20), n_layers=2, n_units=16)
        >>> mask, state = model(torch.rand(1, 100, 257))
        >>> mask.shape
        torch.Size([1, 100, 257])
    """

    recurrent = ("gru", "to_sparsity", "to_weight", "to_gain")
    network: PriorNetwork | None = None  # the weights of a frozen model, as compiled code takes them
    _frozen: Weights | None = None

    def __init__(
        self,
        *,
        n_layers: int = 5,
        n_listening: int = 2,
        n_atoms: int = 200,
        n_units: int = 256,
        n_speech: int | None = None,
        n_features: int = 257,
        sparsity: float = 0.3,
        level: float = 1.6,
        power: float = 0.5,
        epsilon: float = 1e-3,
        generator: torch.Generator | None = None,
    ) -> None:
        n_speech = split_sources(n_atoms, n_speech)
        super().__init__(**given(locals()))
        prior_packed.Options(**self.config)  # which refuses what makes no sense
        self.n_speech = n_speech
        self.level = level
        self.power = power
        self.state_shapes = ((n_atoms,), (n_atoms,), (n_units,), (2,))
        self.log_W = nn.Parameter(torch.empty(n_features, n_atoms))
        self.log_scale = nn.Parameter(torch.empty(n_atoms))
        self.listener = Layers(n_listening, n_atoms)
        self.explainer = Layers(n_layers, n_atoms)
        self.gru = nn.GRU(n_atoms, n_units, batch_first=True)
        self.to_sparsity = nn.Linear(n_units, n_atoms)
        self.to_weight = nn.Linear(n_units, n_atoms)
        self.to_gain = nn.Linear(n_units, 1)
        if not self.log_W.is_meta:
            self._initialise(torch.rand(n_features, n_atoms, generator=generator), generator)

    @classmethod
    def from_dictionary(cls, W: Tensor, *, generator: torch.Generator | None = None, **options: Any) -> Self:
        """Start as DR-NMF with tied layers and W (F, N); `options` are the constructor's."""
        check_dictionary(W)
        model = cls.empty(W, n_features=W.shape[0], n_atoms=W.shape[1], **options)
        model._initialise(W, generator)
        return model

    @classmethod
    def begin(cls, options: Mapping[str, Any], *, W: Tensor | None, generator: torch.Generator) -> Self:
        """From the dictionary W, and random numbers for the GRU."""
        assert W is not None
        return cls.from_dictionary(W, generator=generator, **options)

    @torch.no_grad()
    def _initialise(self, W: Tensor, generator: torch.Generator | None) -> None:
        W = unit_norm(W)
        epsilon = self.config["epsilon"]
        self.log_W.copy_(torch.log(epsilon + W))
        self.log_scale.zero_()
        for layers in (self.listener, self.explainer):
            layers.initialise(W, self.config["sparsity"], epsilon)
        reach = self.config["n_units"] ** -0.5
        for parameter in self.gru.parameters():
            parameter.copy_(2 * reach * (torch.rand(parameter.shape, generator=generator) - 0.5))
        for to in (self.to_sparsity, self.to_weight, self.to_gain):
            to.weight.zero_()  # nothing is expected yet
            to.bias.zero_()

    @classmethod
    def features(cls, magnitude: Tensor, options: Mapping[str, Any]) -> Tensor:
        """Magnitudes at the running level, to the power."""
        level, power = options.get("level", 1.6), options.get("power", 0.5)
        return compressed(magnitude, None, level=level, power=power)[0]

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Mask (B, T, F) for magnitudes (B, T, F); the state is h, g (B, N), c (B, U) and the level (B, 2).

        While the network is trained, noise atoms (B, F, R) may follow: those of each sequence (`moved`).
        """
        state = self.start(len(magnitude)) if state is None else state
        h_BN, g_BN, c_BU, loudness_B2, *moved = state
        weights, memory = self.weights(*moved), [h_BN, g_BN, c_BU]
        if magnitude.shape[1] == 0:
            return magnitude, state
        x_BTF, loudness = compressed(magnitude, loudness_B2, level=self.level, power=self.power)
        if self.network is not None and not moved and self.network.takes(x_BTF):
            weighted_BTN, gain_BT1, *memory = self.network.weighted(x_BTF, *memory)
            mask = gain_BT1 * dictionary_mask(weighted_BTN, weights.W_FN, self.n_speech)
        else:
            h_BTN, c_BTU, memory = self._explained(x_BTF, memory, weights)
            mask = self._mask(h_BTN, c_BTU, weights)
        return mask, (*memory, *loudness, *moved)

    def separate_and_judge(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State, Tensor]:
        """As `separate`, and the objective of `prior` for the last layer's activations, with the first lambda."""
        h_BN, g_BN, c_BU, loudness_B2, *moved = self.start(len(magnitude)) if state is None else state
        weights = self.weights(*moved)
        x_BTF, loudness = compressed(magnitude, loudness_B2, level=self.level, power=self.power)
        h_BTN, c_BTU, memory = self._explained(x_BTF, [h_BN, g_BN, c_BU], weights)
        objective = prior.objective(x_BTF, weights.W_FN, h_BTN, sparsity=self.config["sparsity"])
        return self._mask(h_BTN, c_BTU, weights), (*memory, *loudness, *moved), objective

    def _mask(self, h_BTN: Tensor, c_BTU: Tensor, weights: Weights) -> Tensor:
        """What speech makes of the weighted activations, at the speech's level."""
        weighted_BTN = weights.scale_N * prior.weights(c_BTU, self.expectation()) * h_BTN
        gain_BT1 = prior.gains(c_BTU, self.expectation())
        return gain_BT1 * dictionary_mask(weighted_BTN, weights.W_FN, self.n_speech)

    def start(self, n_sequences: int) -> State:
        """The state before the first frame."""
        c_U, loudness_2 = self.log_W.new_zeros(self.config["n_units"]), self.log_W.new_zeros(2)
        starts = (self.explainer.log_h0.exp(), self.listener.log_h0.exp(), c_U, loudness_2)
        return tuple(start.expand(n_sequences, -1) for start in starts)

    def _explained(
        self, x_BTF: Tensor, memory: Sequence[Tensor], weights: Weights
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Activations h (B, T, N) and memories c (B, T, U); then h, g and c after the last frame."""
        W_FN, listener, explainer, _ = weights
        h_BN, g_BN, c_BU = memory
        g_BTN = _scan(x_BTF, W_FN, listener, g_BN, None)
        c_BTU = _remembered(self.gru, g_BTN, c_BU)
        change_KBTN = prior.sparsity_change(c_BTU, explainer.sparsity_KN, self.expectation())
        h_BTN = _scan(x_BTF, W_FN, explainer, h_BN, change_KBTN)
        return h_BTN, c_BTU, [h_BTN[:, -1], g_BTN[:, -1], c_BTU[:, -1]]

    @torch.no_grad()
    def moved(self, magnitude_BTF: Tensor) -> Tensor:
        """Noise atoms (B, F, R) that have moved towards samples, to train with; zeros where a sample is silent."""
        noise_FR = self.dictionary()[:, self.n_speech :]
        heard_BT1 = magnitude_BTF.sum(2, keepdim=True) > _SILENCE
        x_BTF = torch.where(heard_BT1, self.features(magnitude_BTF, self.config), 0)
        heard_B11 = heard_BT1.any(1, keepdim=True)
        if x_BTF.is_cuda:  # a graph does the same in every step
            return torch.where(heard_B11, moved_atoms(x_BTF, noise_FR), 0)
        rows = heard_B11.flatten().nonzero()[:, 0]
        W_BFR = noise_FR.new_zeros(len(x_BTF), *noise_FR.shape)
        return W_BFR.index_copy(0, rows, moved_atoms(x_BTF[rows], noise_FR))

    def adapted(self, samples: Sequence[Samples]) -> Self:
        """A network whose noise atoms have moved."""
        weights, _ = self.numbers()
        log_W = prior_packed.adapted(prior_packed.Options(**self.config), weights, samples)["log_W"]
        model = copy.deepcopy(self)
        model.log_W.data = torch.from_numpy(log_W).to(self.log_W)
        model._frozen = model.network = None
        model = model if self._frozen is None else model.freeze()
        vars(model)["before"] = self.before or self  # no part of the network, as what is simply assigned would be
        return model

    def freeze(self) -> Self:
        """A copy to be used as it is, its weights computed once, and packed for C where that can be used."""
        model = super().freeze()
        model._frozen = model.weights()
        if streams.usable(model._frozen.W_FN):
            model.network = prior_packed.pack(prior_packed.Options(**self.config), *model.numbers())
        return model

    def stream(self, **settings: Any) -> streams.Stream | None:
        """The frozen network in C, where it can be used."""
        return None if self.network is None else streams.Stream(self.network, **settings)

    def onnx_frame(self, graph: Graph, magnitude: str, *state: str) -> Frame:
        """As `separate`, but the state has h - h0 and g - g0, which start at zero."""
        W_FN, listener, explainer, scale_N = self.weights()
        levelled, loudness = graph.levelled(magnitude, state[3], self.level)
        x = levelled if self.power == 1 else graph.node("Pow", levelled, self.power)

        def layers(start: str, acting: prior.Layers, factor: str | None) -> tuple[str, str]:
            """Activations after the layers, and what is carried on."""
            h0 = acting.h0_N[None]
            h = graph.node("Add", start, h0)
            for alpha, sparsity in zip(acting.alpha_KN, acting.sparsity_KN, strict=True):
                h = graph.ista_step(h, x, W_FN, alpha=alpha, sparsity=sparsity, factor=factor)
            return h, graph.node("Sub", h, h0)

        g, next_g = layers(state[1], listener, None)
        c = graph.gru_step(state[2], g, self.gru)
        maps = (self.to_sparsity, self.to_weight, self.to_gain)
        factor, weight, gain = (graph.bounded_exponential(c, to, prior.BOUND) for to in maps)
        h, next_h = layers(state[0], explainer, factor)
        weighted = graph.node("Mul", graph.node("Mul", h, scale_N[None]), weight)
        mask = graph.node("Mul", graph.dictionary_mask(weighted, W_FN, self.n_speech), gain)
        return mask, [next_h, next_g, c, loudness]

    def weights(self, moved_BFR: Tensor | None = None) -> Weights:
        """The weights as they act, for sequences with noise atoms of their own where these are not zero."""
        if self._frozen is not None:
            return self._frozen
        W_FN = self.dictionary()
        if moved_BFR is not None:
            speech_FS, noise_FR = W_FN.tensor_split([self.n_speech], 1)
            carried_BFR = moved_BFR + noise_FR - noise_FR.detach()  # where the network's own go, there these go
            own_BFR = torch.where(moved_BFR.any(1, keepdim=True).any(2, keepdim=True), carried_BFR, noise_FR)
            W_FN = torch.cat([speech_FS.expand(len(own_BFR), -1, -1), own_BFR], 2)
        return Weights(W_FN, self.listener.acting(W_FN), self.explainer.acting(W_FN), self.log_scale.exp())

    def dictionary(self) -> Tensor:
        """W (F, N): exp(log W) with unit-norm columns."""
        # the largest logarithm of each column cancels in the norm; taking it out keeps exp from overflowing
        return unit_norm(torch.exp(self.log_W - self.log_W.detach().amax(0)))

    def expectation(self) -> prior.Expectation:
        """The GRU and its three maps, for the readable form."""
        gru: Any = self.gru
        heard, remembered = (gru.weight_ih_l0, gru.bias_ih_l0), (gru.weight_hh_l0, gru.bias_hh_l0)
        maps = ((to.weight, to.bias) for to in (self.to_sparsity, self.to_weight, self.to_gain))
        return prior.Expectation(*heard, *remembered, *itertools.chain(*maps))

    def spectra(self) -> dict[str, Tensor]:
        """The one dictionary."""
        return {"all layers": self.dictionary() ** (1 / self.power)}

    def learned(self) -> dict[str, Tensor]:
        """Step sizes and sparsities of the layers that explain."""
        layers = self.explainer.acting(self.dictionary())
        return {"inverse step size α": layers.alpha_KN, "sparsity λ": layers.sparsity_KN}

    def heard(self, magnitude: Tensor) -> dict[str, Tensor]:
        """The activations that the mask is made of, as magnitudes; and lambda of the last layer: low is expected."""
        weights = self.weights()
        *memory, _ = self.start(1)
        x_BTF = self.features(magnitude[None], self.config)
        h_BTN, c_BTU, _ = self._explained(x_BTF, memory, weights)
        expectation, sparsity_KN = self.expectation(), weights.explainer.sparsity_KN
        weighted_TN = (weights.scale_N * prior.weights(c_BTU, expectation) * h_BTN)[0]
        # the mask knows ratios within a frame only: here a frame is as loud as it was heard
        explained_T1 = (weighted_TN @ weights.W_FN.mT).sum(1, keepdim=True)
        weighted_TN = weighted_TN * x_BTF[0].sum(1, keepdim=True) / explained_T1.clamp_min(MASK_FLOOR)
        sparsity_TN = (sparsity_KN[:, None, None] + prior.sparsity_change(c_BTU, sparsity_KN, expectation))[-1, 0]
        return {"activations": weighted_TN ** (1 / self.power), "expected sparsity λ": sparsity_TN}


def _remembered(gru: nn.GRU, g_BTN: Tensor, c0_BU: Tensor) -> Tensor:
    """What the GRU remembers after each frame, c (B, T, U), by the fastest engine."""
    if gru_cluster.usable(g_BTN, gru.hidden_size):
        of: Any = gru
        return gru_cluster.gru(g_BTN, c0_BU, of.weight_ih_l0, of.weight_hh_l0, of.bias_ih_l0, of.bias_hh_l0)
    c_BTU, _ = gru(g_BTN, c0_BU[None].contiguous())
    return cast(Tensor, c_BTU)


def _scan(x_BTF: Tensor, W_FN: Tensor, layers: prior.Layers, h0_BN: Tensor, change_KBTN: Tensor | None) -> Tensor:
    """Activations, with one dictionary or with one for each sequence."""
    if W_FN.ndim == 3:
        each = _on_gpu if x_BTF.is_cuda else _by_dictionary
        return each(x_BTF, W_FN, layers, h0_BN, change_KBTN)
    return scan(
        x_BTF,
        W_FN.expand(len(layers.alpha_KN), -1, -1),
        alpha_KN=layers.alpha_KN,
        sparsity_KN=layers.sparsity_KN,
        h0_BN=h0_BN,
        sparsity_KBTN=change_KBTN,
    )


def _on_gpu(x_BTF: Tensor, W_BFN: Tensor, layers: prior.Layers, h0_BN: Tensor, change_KBTN: Tensor | None) -> Tensor:
    return scan_own(
        x_BTF,
        W_BFN,
        alpha_BKN=layers.alpha_KN,
        sparsity_KN=layers.sparsity_KN,
        h0_BN=h0_BN,
        sparsity_KBTN=change_KBTN,
    )


def _by_dictionary(
    x_BTF: Tensor, W_BFN: Tensor, layers: prior.Layers, h0_BN: Tensor, change_KBTN: Tensor | None
) -> Tensor:
    """Sequences that share a dictionary together. The first one's stands for it: all are made of the same weights."""
    groups = list[list[int]]()
    for b, W_FN in enumerate(W_BFN.detach()):
        rows = next((rows for rows in groups if torch.equal(W_FN, W_BFN[rows[0]])), None)
        if rows is None:
            groups.append([b])
        else:
            rows.append(b)
    parts = []
    for rows in groups:
        shared = layers._replace(alpha_KN=layers.alpha_KN[rows[0]])
        change = None if change_KBTN is None else change_KBTN[:, rows]
        parts.append(_scan(x_BTF[rows], W_BFN[rows[0]], shared, h0_BN[rows], change))
    return torch.cat(parts)[torch.tensor(list(itertools.chain(*groups))).argsort()]

"""The deep recurrent NMF network: warm-start ISTA with untied, trained layers (the paper's section 4)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from drnmf.engines import streams
from drnmf.engines.scan import scan
from drnmf.errors import InputError
from drnmf.maths.nmf import check_dictionary, unit_norm
from drnmf.maths.thresholding import check_alpha, lipschitz
from drnmf.models import drnmf_packed
from drnmf.models.base import Separator, State, given, numbered
from drnmf.models.drnmf_packed import Per
from drnmf.models.graph import Frame, Graph
from drnmf.models.masks import dictionary_mask, split_sources
from drnmf.signal.level import running_level

_LEAST_LOG_WEIGHT = -15.0  # of an atom against that with the most: steps a million times shorter


class Weights(NamedTuple):
    """The weights as they act, functions of the trained parameters; alpha and lambda may be (K, 1)."""

    W_KFN: Tensor
    alpha_KN: Tensor
    sparsity_KN: Tensor
    h0_N: Tensor
    reconstruction_FN: Tensor


class DRNMF(Separator):
    """K layers h <- relu(h + (W_k^T (x - W_k h) - lambda_k) / alpha_k), from the previous frame's h; then the mask.

    The constructor draws random dictionaries; `from_dictionary` starts from trained ones, and the network is then
    exactly warm-start ISTA until it is trained. Exponentials keep all weights nonnegative; dictionary columns have unit
    norm.

    Args:
        n_layers: K.
        n_atoms: N, speech and noise together.
        n_speech: number of leading speech atoms, by default half.
        n_features: F.
        sparsity: lambda.
        train_sparsity: whether lambda is trained.
        sparsity_per: one lambda per "layer", or per "atom" of each layer.
        alpha_per: one inverse step size per "layer", or per "atom" of each layer.
        alpha_range: "free" (the paper), or "weighted", which keeps every layer from expanding distances:
            alpha_kn = (W_k^T W_k v_k)_n / v_kn (1/2 + exp(a_kn)) with trained weights v > 0, so that some atoms can
            take longer steps if others take shorter ones. v starts as the first eigenvector of W_k^T W_k, for which
            the quotient is ||W_k||^2 for every atom.
        first_layer: "paper", or "original": the authors' code leaves -W^T W h / alpha out of layer 1.
        reconstruction: which dictionary makes the mask. "shared": the last layer's (the paper); "separate": one of its
            own, nonnegative and not normalised (the authors' code).
        level: magnitudes are first scaled to this level by a running measure of it (`signal.level`), so that the mask
            does not depend on how loud a recording is; None leaves them as they are.
        power: exponent applied to magnitudes after that.
        warm_start: False starts every frame from h0: no recurrence.
        tied: one dictionary for all layers; each keeps its alpha and lambda.
        epsilon: added to weights before their logarithm is taken, so that zeros can be represented.
        generator: source of the random dictionaries.

    Examples:
        >>> import torch
        >>> from drnmf import DRNMF
        >>> model = DRNMF.from_dictionary(torch.rand(257, 20), n_layers=3)  # or W of `train_dictionaries`
        >>> mask, state = model(torch.rand(1, 100, 257))
        >>> mask, state = model(torch.rand(1, 50, 257), state)  # the frames that follow
        >>> mask.shape
        torch.Size([1, 50, 257])
    """

    removed_options: ClassVar = drnmf_packed.Options.removed_options
    log_sparsity: Tensor
    network: streams.Network | None = None  # the weights of a frozen model, as compiled code takes them
    _frozen: Weights | None = None

    def __init__(
        self,
        *,
        n_layers: int,
        n_atoms: int,
        n_speech: int | None = None,
        n_features: int = 257,
        sparsity: float = 1.0,
        train_sparsity: bool = False,
        sparsity_per: Per = "layer",
        alpha_per: Per = "layer",
        alpha_range: Literal["free", "weighted"] = "free",
        first_layer: Literal["paper", "original"] = "paper",
        reconstruction: Literal["shared", "separate"] = "shared",
        level: float | None = None,
        power: float = 1.0,
        warm_start: bool = True,
        tied: bool = False,
        epsilon: float = 1e-16,
        generator: torch.Generator | None = None,
    ) -> None:
        n_speech = split_sources(n_atoms, n_speech)
        super().__init__(**given(locals()))
        drnmf_packed.Options(**self.config)  # which refuses what makes no sense
        self.n_speech = n_speech
        self.level = level
        self.power = power
        self.warm_start = warm_start
        self.alpha_range = alpha_range
        self.residual_first_layer = first_layer == "paper"
        self.epsilon = epsilon
        activations = ((n_atoms,),) if warm_start else ()
        loudness = () if level is None else ((2,),)
        self.state_shapes = (*activations, *loudness)

        def per(choice: Per) -> Tensor:
            return torch.empty(n_layers, n_atoms if choice == "atom" else 1)

        self.log_W = nn.Parameter(torch.empty(1 if tied else n_layers, n_features, n_atoms))
        self.log_alpha = nn.Parameter(per(alpha_per))
        if alpha_range == "weighted":
            self.log_weight = nn.Parameter(torch.empty(n_layers, n_atoms))
        self.log_h0 = nn.Parameter(torch.empty(n_atoms))
        if train_sparsity:
            self.log_sparsity = nn.Parameter(per(sparsity_per))
        else:
            self.register_buffer("log_sparsity", per(sparsity_per))
        if reconstruction == "separate":
            self.log_reconstruction = nn.Parameter(torch.empty(n_features, n_atoms))
        if not self.log_W.is_meta:
            self._initialise(torch.rand(n_features, n_atoms, generator=generator), None)

    @classmethod
    def from_dictionary(
        cls, W: Tensor, n_layers: int, *, alpha: float | None = None, h0: Tensor | None = None, **options: Any
    ) -> Self:
        """Step 3 of the paper's training: every layer starts as an ISTA iteration with W (F, N) and 1 / alpha.

        `alpha` defaults to the Lipschitz constant of W, `h0` to zeros; `options` are the constructor's.
        """
        check_dictionary(W)
        F, N = W.shape
        if h0 is not None and (h0.shape != (N,) or not (h0 >= 0).all()):
            raise InputError(f"h0 must hold {N} activations, none negative or NaN; got shape {tuple(h0.shape)}")
        model = cls.empty(W, n_layers=n_layers, n_features=F, n_atoms=N, **options)
        model._initialise(W, alpha, h0)
        return model

    @torch.no_grad()
    def _initialise(self, W: Tensor, alpha: float | None, h0: Tensor | None = None) -> None:
        W = unit_norm(W)
        L = lipschitz(W)
        alpha = check_alpha(alpha, L)

        def log(value: Tensor | float) -> Tensor:
            return torch.log(self.epsilon + torch.as_tensor(value, dtype=torch.float64)).to(self.log_W)

        self.log_W.copy_(log(W))
        if self.alpha_range == "free":
            self.log_alpha.copy_(log(alpha))
        else:
            if not alpha > L / 2:
                raise InputError(f"a weighted alpha lies above ||W||^2 / 2 = {L / 2:.4g}, got {alpha:.4g}")
            self.log_alpha.copy_(log(alpha / L - 0.5))
            self.log_weight.copy_(torch.log(eigenvector(W)))
        self.log_h0.copy_(log(torch.zeros_like(self.log_h0) if h0 is None else h0))
        self.log_sparsity.copy_(log(self.config["sparsity"]))
        if self.config["reconstruction"] == "separate":
            self.log_reconstruction.copy_(log(W))

    @classmethod
    def features(cls, magnitude: Tensor, options: Mapping[str, Any]) -> Tensor:
        """Magnitudes at the running level, to the power."""
        return compressed(magnitude, None, level=options.get("level"), power=options.get("power", 1.0))[0]

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Mask (B, T, F) for magnitudes (B, T, F); the state is h (B, N) of the last frame, and its level (B, 2).

        Without a warm start there is no h in it, and without `level` no level.
        """
        weights = self.weights()
        h_BTN, state = self.activations(magnitude, state, weights)
        return dictionary_mask(h_BTN, weights.reconstruction_FN, self.n_speech), state

    def start(self, n_sequences: int) -> State:
        """h0, and no level yet."""
        zeros = super().start(n_sequences)
        return (self.h0().expand(n_sequences, -1), *zeros[1:]) if self.warm_start else zeros

    def activations(
        self, magnitude: Tensor, state: State | None = None, weights: Weights | None = None
    ) -> tuple[Tensor, State]:
        """Activations h (B, T, N) of the last layer for magnitudes (B, T, F), and the next state."""
        weights = self.weights() if weights is None else weights
        loudness_B2 = state[-1] if state and self.level is not None else None
        x_BTF, loudness = compressed(magnitude, loudness_B2, level=self.level, power=self.power)
        h0_BN = state[0] if state and self.warm_start else weights.h0_N.expand(len(magnitude), -1)
        if self.network is not None and self.network.takes(x_BTF):
            h_BTN = self.network.activations(x_BTF, h0_BN)
        else:
            h_BTN = scan(
                x_BTF,
                weights.W_KFN,
                alpha_KN=weights.alpha_KN,
                sparsity_KN=weights.sparsity_KN,
                h0_BN=h0_BN,
                residual_first_layer=self.residual_first_layer,
                warm_start=self.warm_start,
            )
        if not self.warm_start:
            return h_BTN, loudness
        last_BN = h_BTN[:, -1] if h_BTN.shape[1] else h0_BN
        return h_BTN, (last_BN, *loudness)

    def freeze(self) -> Self:
        """A copy that is no longer trained, its weights computed once: for each frame, that would take longest."""
        model = super().freeze()
        model._frozen = model.weights()
        if streams.usable(model._frozen.W_KFN):
            model.network = drnmf_packed.pack(drnmf_packed.Options(**self.config), *model.numbers())
        return model

    def stream(self, **settings: Any) -> streams.Stream | None:
        """The frozen network in C, where it can be used."""
        return None if self.network is None else streams.Stream(self.network, **settings)

    def onnx_frame(self, graph: Graph, magnitude: str, *state: str) -> Frame:
        """As `separate`, but the state has h - h0, which starts at zero."""
        states = []
        if self.level is not None:
            magnitude, loudness = graph.levelled(magnitude, state[-1], self.level)
            states.append(loudness)
        x = magnitude if self.power == 1 else graph.node("Pow", magnitude, self.power)
        W_KFN = self.dictionaries()
        h0 = self.h0()[None]
        h = graph.node("Add", state[0], h0) if self.warm_start else graph.constant(h0)
        for k, (W, alpha, sparsity) in enumerate(zip(W_KFN, self.alpha(W_KFN), self.sparsity(), strict=True)):
            with_residual = k > 0 or self.residual_first_layer
            h = graph.ista_step(h, x, W, alpha=alpha, sparsity=sparsity, with_residual=with_residual)
        if self.warm_start:
            states.insert(0, graph.node("Sub", h, h0))
        return graph.dictionary_mask(h, self.reconstruction(W_KFN), self.n_speech), states

    def spectra(self) -> dict[str, Tensor]:
        """The dictionary of each layer and, where it is another one, of the mask."""
        W = numbered(self.dictionaries())
        if self.config["reconstruction"] == "separate":
            W["mask"] = self.reconstruction()
        return {name: atoms ** (1 / self.power) for name, atoms in W.items()}

    def learned(self) -> dict[str, Tensor]:
        """Step sizes and sparsities of the layers."""
        return {"inverse step size α": self.alpha(), "sparsity λ": self.sparsity()}

    def heard(self, magnitude: Tensor) -> dict[str, Tensor]:
        """The activations of the last layer, as magnitudes."""
        return {"activations": self.activations(magnitude[None])[0][0] ** (1 / self.power)}

    def weights(self) -> Weights:
        """All weights as they act."""
        if self._frozen is not None:
            return self._frozen
        W_KFN = self.dictionaries()
        return Weights(W_KFN, self.alpha(W_KFN), self.sparsity(), self.h0(), self.reconstruction(W_KFN))

    def dictionaries(self) -> Tensor:
        """W_1 ... W_K (K, F, N): exp(log W) with unit-norm columns."""
        # the largest logarithm of each column cancels in the norm; taking it out keeps exp from overflowing
        W = unit_norm(torch.exp(self.log_W - self.log_W.detach().amax(1, keepdim=True)))
        return W.expand(self.config["n_layers"], -1, -1)  # tied layers share it

    def alpha(self, W_KFN: Tensor | None = None) -> Tensor:
        """Inverse step sizes (K, 1) or (K, N)."""
        if self.alpha_range == "free":
            return torch.exp(self.log_alpha)
        W_KFN = self.dictionaries() if W_KFN is None else W_KFN
        return weighted_alpha(W_KFN, self.log_alpha, self.log_weight)

    def sparsity(self) -> Tensor:
        """Lambda, (K, 1) or (K, N)."""
        return torch.exp(self.log_sparsity)

    def h0(self) -> Tensor:
        """Activations (N,) before the first frame."""
        return torch.exp(self.log_h0)

    def reconstruction(self, W_KFN: Tensor | None = None) -> Tensor:
        """The dictionary (F, N) that the mask is made with."""
        if self.config["reconstruction"] == "separate":
            return torch.exp(self.log_reconstruction)
        return (self.dictionaries() if W_KFN is None else W_KFN)[-1]


def weighted_alpha(W_KFN: Tensor, log_alpha_KN: Tensor, log_weight_KN: Tensor) -> Tensor:
    """Step sizes with which no layer expands distances: alpha = (W^T W v) / v (1/2 + exp(a))."""
    # G = W^T W has no negative entries, so that the spectral radius of G / alpha is at most the largest of
    # (G v)_n / (v_n alpha_n), which is below 2. Only the ratios of v count: the largest is taken out.
    log_v_KN = log_weight_KN - log_weight_KN.detach().amax(1, keepdim=True)
    v_KN1 = torch.exp(log_v_KN.clamp_min(_LEAST_LOG_WEIGHT))[..., None]
    bound_KN: Tensor = (W_KFN.mT @ (W_KFN @ v_KN1) / v_KN1)[..., 0]
    return bound_KN * (0.5 + torch.exp(log_alpha_KN))


def compressed(
    magnitude_BTF: Tensor, loudness_B2: Tensor | None, *, level: float | None, power: float
) -> tuple[Tensor, State]:
    """Magnitudes at a level, if one is given, to a power; and the running level's state, if there is one."""
    loudness: State = ()
    if level is not None:
        levels_BT1, loudness_B2 = running_level(magnitude_BTF, loudness_B2)
        magnitude_BTF = magnitude_BTF * (level / levels_BT1)
        loudness = (loudness_B2,)
    x_BTF = magnitude_BTF if power == 1 else magnitude_BTF**power
    return x_BTF, loudness


def eigenvector(W: Tensor) -> Tensor:
    """The eigenvector (N,) of W^T W that belongs to the largest eigenvalue; all its entries are positive."""
    if W.shape[1] > W.shape[0]:  # with W W^T, the smaller one: if u is its eigenvector, W^T u is that of W^T W
        v: Tensor = W.double().mT @ torch.linalg.eigh((W @ W.mT).double())[1][:, -1]
        v = (v / v.norm()).abs()
    else:
        v = torch.linalg.eigh((W.mT @ W).double())[1][:, -1].abs()
    return v.clamp_min(1e-6 * float(v.max()))

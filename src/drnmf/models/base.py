"""What every model answers: a mask for magnitudes, how it begins, streams and is exported, what can be seen of it."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn

from drnmf.engines.library import type_name
from drnmf.errors import InputError
from drnmf.models.graph import Frame, Graph
from drnmf.models.options import check_size
from drnmf.models.packed import cannot_adapt
from drnmf.signal.arrays import Samples, as_array

State = tuple[Tensor, ...]
"""What a model carries from one call to the next, batch first; empty for models that look at single frames."""


class SoundStream(Protocol):
    """Sound (channels, samples) in, what a model's mask removes out."""

    strength: float  # the share of it that comes out; it may change between two blocks
    most: float  # of a bin that comes out; so may this
    watch: Callable[[Samples, Samples], Any] | None  # sees every frame: `engines.streams.Stream` explains it

    def replace(self, network: Any) -> None:
        """Go on with another network of the same sizes, from the next frame on; all sound on its way stays."""

    def start(self) -> None:
        """Start anew, after a window of zeros whose frame is done."""

    def feed(self, x: Samples) -> Samples:
        """The next samples; what they complete."""


class Separator(nn.Module):
    """A model that turns magnitudes into a speech mask, one block of frames at a time.

    `mask, state = model(magnitude, state)` takes (batch, frames, F) and returns a mask of that shape with values in
    [0, 1]; passing the state on continues the sequence, `None` starts one.

    A new model is one file with a subclass, and one entry in `drnmf.models.kinds.MODELS`; outside the package it goes
    by its import path (docs/training.md). It gives its arguments to this constructor, so that `config` makes it again;
    keeps in `state_shapes` the shape of each tensor of its state after the batch dimension; and implements `separate`.
    All else has a default to override:

        training    from_dictionary, features, trainable, learning_rate, gradient_clip, recurrent, start,
                    separate_and_judge
        use         freeze, stream, onnx_frame
        pictures    n_speech, spectra, learned, heard

    Examples:
        >>> import torch
        >>> from drnmf import Separator
        >>> class Half(Separator):
        ...     def separate(self, magnitude, state=None):
        ...         return torch.full_like(magnitude, 0.5), ()
        >>> mask, state = Half(n_features=257)(torch.rand(1, 100, 257))
        >>> mask.shape, mask.mean().item()
        (torch.Size([1, 100, 257]), 0.5)
    """

    from_dictionary: ClassVar[Any] = None  # makes a model from W = [W_speech, W_noise] (rows, N) and its options
    trainable: ClassVar[bool] = True  # by backpropagation
    learning_rate: ClassVar[float] = 1e-3  # the paper's
    gradient_clip: ClassVar[float] = 0.0  # the paper's; 0 does not clip
    recurrent: ClassVar[tuple[str, ...]] = ()  # its parts that learn at a rate of their own
    removed_options: ClassVar[Mapping[str, object]] = {}  # those of earlier versions, each with its value for "off"

    state_shapes: tuple[tuple[int, ...], ...] = ()
    n_speech: int = 0  # of the atoms in `spectra`, the first ones
    adaptation: Mapping[str, Any] | None = None  # from what it has learned a noise, and which atoms moved
    before: Self | None = None  # as it was before it learned a noise; a folder does not hold it

    def __init__(self, n_features: int, **config: Any) -> None:
        super().__init__()
        self.n_features = n_features
        self.config: dict[str, Any] = {"n_features": n_features, **config}

    @classmethod
    def empty(cls, like: Tensor | None = None, /, **config: Any) -> Self:
        """A model whose weights are still to come: shapes alone or, given `like`, memory of its dtype and device.

        A constructor that computes first weights must leave that out where they are on the "meta" device.
        """
        with torch.device("meta"):
            model = cls(**config)
        check_size(sum(tensor.numel() for tensor in model.state_dict().values()))
        return model if like is None else model.to(like.dtype).to_empty(device=like.device)

    @classmethod
    def begin(cls, options: Mapping[str, Any], *, W: Tensor | None, generator: torch.Generator) -> Self:
        """Step 3 of the paper's training: the model before backpropagation, from a dictionary or from random numbers.

        `W` is the dictionary (rows, N) of `features`, for models that start from one.
        """
        if cls.from_dictionary is None:
            return cls(**options, generator=generator)
        model: Self = cls.from_dictionary(W, **options)
        return model

    @classmethod
    def features(cls, magnitude: Tensor, options: Mapping[str, Any]) -> Tensor:
        """What the dictionary of a model with these options is learned on: (B, T, rows) of magnitudes (B, T, F)."""
        return magnitude

    def forward(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The checked call; `separate` is the same without the checks, for training loops and export."""
        self.check(magnitude, state)
        return self.separate(magnitude, state)

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Mask (B, T, F) and next state for magnitudes (B, T, F) that need no check."""
        raise NotImplementedError

    def separate_and_judge(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State, Tensor]:
        """As `separate`, and the paper's objective for its activations, which a loss may weigh."""
        raise InputError(f"[training.loss] objective: {self.kind} does not give the paper's objective; leave it out")

    def start(self, n_sequences: int) -> State:
        """The state before the first frame: what `separate` takes None for."""
        return tuple(self.like.new_zeros(n_sequences, *shape) for shape in self.state_shapes)

    def groups(self) -> list[list[nn.Parameter]]:
        """Its parameters in one group or two: the second is its recurrent part."""
        groups: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
        trained = [(name, p) for name, p in self.named_parameters() if p.requires_grad]
        for name, parameter in trained:
            groups[name.split(".")[0] in self.recurrent].append(parameter)
        return [group for group in groups if group]

    def freeze(self) -> Self:
        """A copy that is no longer trained: no gradients, and what depends on the weights alone is computed once."""
        return copy.deepcopy(self).eval().requires_grad_(False)

    def ready(self) -> Self:
        """Frozen for sound: in single precision, where it was stored in half of that."""
        is_half = any("float16" in str(tensor.dtype) for tensor in self.state_dict().values())  # or bfloat16
        return (copy.deepcopy(self).float() if is_half else self).freeze()

    def numbers(self) -> tuple[dict[str, Samples], str]:
        """Its weights in double precision by name, and the type that they have: what `models.packed` takes."""
        arrays = {name: as_array(tensor.double()) for name, tensor in self.state_dict().items()}
        return arrays, type_name(self.like.dtype)

    def moved(self, magnitude_BTF: Tensor) -> Tensor:
        """What samples (B, T, F) of a noise change in each sequence's network, to be the last part of its state."""
        raise InputError(cannot_adapt(self.kind))

    def adapted(self, samples: Sequence[Samples]) -> Self:
        """A model that knows a noise, from magnitudes (T, F) of samples of it."""
        raise InputError(cannot_adapt(self.kind))

    def stream(self, **settings: Any) -> SoundStream | None:
        """A frozen model as compiled code, or None. `engines.streams.Stream` explains the arguments."""
        return None

    def onnx_frame(self, graph: Graph, magnitude: str, *state: str) -> Frame:
        """`separate` for one frame as nodes of `graph`, from the names of the magnitudes (1, F) and of each state.

        Every state starts as zeros there.
        """
        raise InputError(f"{type(self).__name__} cannot be exported: it has no ONNX graph")

    def spectra(self) -> dict[str, Tensor]:
        """Its dictionaries [W_speech, W_noise] (F, N) by name, as magnitudes; the mask is made with the last."""
        return {}

    def learned(self) -> dict[str, Tensor]:
        """What else its first K layers have learned, (K, 1) or (K, N), by name."""
        return {}

    def heard(self, magnitude: Tensor) -> dict[str, Tensor]:
        """What its atoms do over time, (T, N) by name, in magnitudes (T, F); the first are the activations."""
        return {}

    @torch.no_grad()
    def look(self, magnitude: Samples) -> tuple[Samples, dict[str, Samples]]:
        """The mask (T, F) for magnitudes (T, F), and `heard`, all as arrays."""
        X = torch.from_numpy(magnitude).to(self.like)
        mask, _ = self(X[None])
        return as_array(mask[0]), {name: as_array(values) for name, values in self.heard(X).items()}

    @property
    def kind(self) -> str:
        """What it is called, for people."""
        return type(self).__name__

    @property
    def like(self) -> Tensor:
        """Any tensor of its dtype on its device."""
        return next((t for t in (*self.parameters(), *self.buffers()) if t.is_floating_point()), torch.empty(0))

    def check(self, magnitude: Tensor, state: State | None) -> None:
        """Refuse magnitudes and states that do not fit this model."""
        weight = self.like
        if magnitude.ndim != 3 or magnitude.shape[2] != self.n_features or magnitude.shape[0] == 0:
            raise InputError(f"magnitudes must be (batch, frames, {self.n_features}), got {tuple(magnitude.shape)}")
        if magnitude.dtype != weight.dtype or magnitude.device != weight.device:
            ours, theirs = (f"{t.dtype} on {t.device}" for t in (weight, magnitude))
            raise InputError(f"magnitudes are {theirs}, the model is {ours}")
        if not torch.isfinite(magnitude).all():
            raise InputError("magnitudes hold NaN or infinite values")
        if (magnitude < 0).any():
            raise InputError("magnitudes hold negative values: pass stft(x).abs()")
        if state is not None:
            expected = [(len(magnitude), *shape) for shape in self.state_shapes]
            given = [tuple(s.shape) for s in state]
            if given != expected:
                raise InputError(f"the state has shapes {given}, this model and these magnitudes need {expected}")
            if any(s.is_floating_point() and (s.dtype, s.device) != (weight.dtype, weight.device) for s in state):
                raise InputError(f"the state is not {weight.dtype} on {weight.device} as the model is")


def given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The `locals()` of a constructor that make the model again: all but the generator."""
    return {name: value for name, value in arguments.items() if name not in ("self", "generator", "__class__")}


def numbered(W_KFN: Tensor, first: int = 1) -> dict[str, Tensor]:
    """Dictionaries by the names of their layers, for `spectra`."""
    return {f"layer {k}": W for k, W in enumerate(W_KFN, first)}

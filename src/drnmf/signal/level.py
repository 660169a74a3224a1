"""The running level of sound, by which a network can be made to hear every recording equally loud.

A network with thresholds depends on the level of its input. Divided by a running level, a frame x_t does not:

    s_t = s_{t-1} + (mean of x_t^2 - s_{t-1}) / 10          the power, over about 80 ms
    p_t = max(0.999 p_{t-1}, s_t)                           its peak, half forgotten after 5.5 s
    level_t = sqrt(p_t), at least SILENCE

It uses only the past, rises at once and falls slowly, so that a pause does not make the next word too loud. Both start
from 0. Names of tensors end in their shape: B sequences, T frames, F bins.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from drnmf.signal.arrays import Samples

if TYPE_CHECKING:
    from torch import Tensor

ATTACK, RELEASE = 0.1, 0.999
SILENCE = 1e-4  # the spectrum of 16-bit rounding noise: what is softer is silence
_BLOCK = 256  # frames; of so many, all powers come from one product


def running_level(magnitude_BTF: Tensor, state_B2: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Levels (B, T, 1), and the state (s, p) after the last frame; without a state, sound starts here."""
    import torch

    state_B2 = magnitude_BTF.new_zeros(len(magnitude_BTF), 2) if state_B2 is None else state_B2
    levels = [magnitude_BTF[:, :0, 0]]
    for start in range(0, magnitude_BTF.shape[1], _BLOCK):
        block_BTF = magnitude_BTF[:, start : start + _BLOCK]
        power_BT = _smoothed(block_BTF.square().mean(2), state_B2[:, :1])
        peak_BT = _peak(power_BT, state_B2[:, 1:])
        state_B2 = torch.stack([power_BT[:, -1], peak_BT[:, -1]], 1)
        levels.append(peak_BT.clamp_min(SILENCE**2).sqrt())
    return torch.cat(levels, 1)[..., None], state_B2


def levelled(magnitude_TF: Samples, level: float) -> Samples:
    """Magnitudes divided by their running level, times `level`: as they are heard by a network without PyTorch."""
    power_T = np.square(magnitude_TF, dtype=np.float64).mean(1)
    levels_T1 = np.empty((len(power_T), 1))
    s = p = 0.0
    for t, power in enumerate(power_T):
        s += ATTACK * (power - s)
        p = max(RELEASE * p, s)
        levels_T1[t] = max(math.sqrt(p), SILENCE)
    return magnitude_TF * (level / levels_T1)


def _smoothed(power_BT: Tensor, before_B1: Tensor) -> Tensor:
    """s_t = sum over i <= t of (1 - ATTACK)^(t - i) ATTACK power_i, and what is left of the value before."""
    import torch

    t = torch.arange(power_BT.shape[1], device=power_BT.device)
    age_TT = t - t[:, None]
    weight_TT = torch.where(age_TT >= 0, ATTACK * (1 - ATTACK) ** age_TT.clamp_min(0).to(power_BT), 0)
    return power_BT @ weight_TT + before_B1 * (1 - ATTACK) ** (t + 1).to(power_BT)


def _peak(power_BT: Tensor, before_B1: Tensor) -> Tensor:
    """p_t = max over i <= t of RELEASE^(t - i) power_i: a running maximum once the decay is divided out."""
    import torch

    decay_T = torch.exp(math.log(RELEASE) * torch.arange(power_BT.shape[1] + 1, device=power_BT.device).to(power_BT))
    peak: Tensor = torch.cat([before_B1, power_BT], 1).div(decay_T).cummax(1).values.mul(decay_T)
    return peak[:, 1:]

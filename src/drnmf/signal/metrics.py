"""How close an estimate is to its reference: SDR (BSS Eval), SI-SDR, SNR, PESQ and STOI. Higher is better.

The first three split the estimate into a target and a residual, and give 10 log10(||target||^2 / ||residual||^2) in
dB. They differ only in what may count as target:

    SNR      the reference itself
    SI-SDR   the reference times the best gain: the estimate's projection onto the reference
    SDR      the reference through the best filter of 512 taps: the projection onto its 512 delayed copies

SDR is that of BSS Eval version 3 (`bss_eval_sources`): its target is the projection onto the delayed copies of the
*one* reference, interference and artefacts together are all the rest, and so it does not depend on other sources.
The filter h solves the normal equations G h = d, where G is the symmetric Toeplitz matrix of the reference's
autocorrelation and d the correlation of the estimate with the reference, both computed by FFT. The residual is then
formed explicitly: a good estimate loses no digits to a difference of nearly equal energies.

All three are computed in float64 over the last dimension, batched over the others, and differentiable. Ratios are
kept within +-120 dB: EPS times the total energy joins the residual, and EPS times that joins the target. This changes
no value below 90 dB by 0.01 dB, does not depend on the signals' scale, and keeps value and gradient finite for a
perfect and for a silent estimate alike.

PESQ (ITU-T P.862.2, wide-band) and STOI come from the optional packages pesq and pystoi.
"""

import importlib
import math
import subprocess
import sys
import warnings
from types import ModuleType
from typing import Any

import numpy as np

from drnmf.errors import InputError
from drnmf.signal.arrays import Array, Samples, as_array, functions

EPS = 1e-12
_TINY = 1e-20  # an energy far below one sample of 24-bit rounding noise: only digital silence feels it

_PESQ_IN_A_CHILD = """
import sys, numpy, pesq
reference, estimate = numpy.frombuffer(sys.stdin.buffer.read()).reshape(2, -1)
print(pesq.pesq(16000, reference, estimate, "wb"))
"""


class ScoreWarning(UserWarning):
    """What the reader of a score should know: why it is nan, or what was done to the signals first."""


def sdr(estimate: Array, reference: Array, *, filter_length: int = 512) -> Array:
    """Signal-to-distortion ratio in dB (BSS Eval version 3) of each of the signals (..., samples)."""
    check_pair(estimate, reference)
    return ratio_db(*decompose(estimate, reference, filter_length))


def si_sdr(estimate: Array, reference: Array) -> Array:
    """Scale-invariant signal-to-distortion ratio in dB of signals (..., samples).

    It serves as a loss too, so only shapes are checked: silence on either side gives -120 dB and a zero gradient,
    NaN gives NaN.
    """
    check_pair(estimate, reference, values=False)
    e, r = _double(estimate), _double(reference)
    gain = ((e * r).sum(-1) / ((r * r).sum(-1) + _TINY))[..., None]
    return ratio_db(gain * r, e - gain * r)


def snr(estimate: Array, reference: Array) -> Array:
    """Signal-to-noise ratio in dB of signals (..., samples): everything but the reference itself is noise."""
    check_pair(estimate, reference)
    return ratio_db(_double(reference), _double(estimate) - _double(reference))


def pesq(estimate: Array, reference: Array, sample_rate: int = 16000) -> float:
    """Wide-band PESQ, 1 to 4.64, of one signal (samples,); nan where it has no answer, and a warning says why."""
    package = optional_package("pesq", "PESQ")
    if sample_rate != 16000:
        raise InputError(f"wide-band PESQ is defined at 16000 Hz, not {sample_rate} Hz: resample both signals first")
    e, r = as_arrays(estimate, reference)
    if r.size <= 20 * sample_rate:
        try:
            return float(package.pesq(sample_rate, r, e, "wb"))
        except (package.PesqError, ValueError) as error:
            reason = error.args[0]
            return _no_score("PESQ", reason.decode() if isinstance(reason, bytes) else str(reason))
    # The package has room for 50 utterances (each takes 0.4 s or more), writes on beyond, and may take the process
    # down with it. So a long recording is scored in a child, by its own command: no worker pool, no `__main__` guard.
    command = [sys.executable, "-c", _PESQ_IN_A_CHILD]
    child = subprocess.run(command, input=np.stack([r, e]).tobytes(), capture_output=True, check=False)
    if child.returncode == 0:
        return float(child.stdout)
    crash = "the pesq package crashed, as it may beyond 50 utterances: cut the recording into shorter ones"
    return _no_score("PESQ", (child.stderr.decode().strip().splitlines() or [crash])[-1])


def stoi(estimate: Array, reference: Array, sample_rate: int = 16000) -> float:
    """Short-time objective intelligibility, up to 1, of one signal (samples,); nan like `pesq`."""
    package = optional_package("pystoi", "STOI")
    e, r = as_arrays(estimate, reference)
    try:
        with warnings.catch_warnings():
            # pystoi warns and answers 1e-5, which would pass for a score
            warnings.filterwarnings("error", message="Not enough STFT frames")
            return float(package.stoi(r, e, sample_rate))
    except (RuntimeWarning, ValueError, IndexError):  # the last two: not even one frame
        return _no_score("STOI", "less than 0.4 s of speech is left when silent frames are removed")


def decompose(estimate: Array, reference: Array, filter_length: int) -> tuple[Array, Array]:
    """Split `estimate` (..., samples) into the reference through its best filter, and the residual.

    Both are (..., samples + filter_length - 1) in float64. A silent reference gives a silent target.
    """
    check_pair(estimate, reference, values=False)
    if filter_length < 1:
        raise InputError(f"filter_length must be at least 1, got {filter_length}")
    of: Any = functions(estimate)
    e: Array = _double(estimate)
    r: Array = _double(reference)
    length = e.shape[-1] + filter_length - 1
    n = 1 << (length - 1).bit_length()  # long enough for linear correlations, and fast
    E, R = of.fft.rfft(e, n), of.fft.rfft(r, n)
    autocorrelation = of.fft.irfft(of.square(abs(R)), n)[..., :filter_length]
    correlation = of.fft.irfft(R.conj() * E, n)[..., :filter_length]
    lag = of.arange(filter_length, device=e.device)
    gram = autocorrelation[..., abs(lag[:, None] - lag)]
    silent = autocorrelation[..., :1, None] == 0
    gram = of.where(silent, of.eye(filter_length, dtype=e.dtype, device=e.device), gram)
    taps = of.linalg.solve(gram, correlation[..., None])[..., 0]
    target = of.fft.irfft(R * of.fft.rfft(taps, n), n)[..., :length]
    silence = of.zeros((*e.shape[:-1], filter_length - 1), dtype=e.dtype, device=e.device)
    return target, of.concatenate([e, silence], -1) - target


def ratio_db(target: Array, residual: Array) -> Array:
    """Energy of `target` over that of `residual` along the last dimension in dB, finite at silence."""
    of = functions(target)
    T, R = of.square(target).sum(-1), of.square(residual).sum(-1)
    floored = R + EPS * (T + R) + _TINY
    decibels: Array = 10 * of.log10((T + EPS * floored) / floored)
    return decibels


def _double(x: Array) -> Array:
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x.double()


def check_pair(estimate: Array, reference: Array, *, name: str = "estimate", values: bool = True) -> None:
    """Raise InputError unless both are floats of one shape and (`values`) finite, and no signal in them is silent."""
    if isinstance(estimate, np.ndarray) != isinstance(reference, np.ndarray):
        raise InputError(f"the {name} and the reference must be both numpy arrays, or both torch tensors")
    if estimate.shape != reference.shape:
        shapes = f"{tuple(estimate.shape)}, the reference {tuple(reference.shape)}"
        raise InputError(f"the {name} has shape {shapes}: they must be equal")
    if estimate.ndim == 0 or 0 in estimate.shape:
        raise InputError(f"nothing to score: the signals have shape {tuple(estimate.shape)}")
    if not all("float" in str(x.dtype) for x in (estimate, reference)):
        raise InputError(f"signals must be floats, got {estimate.dtype} and {reference.dtype}")
    for which, x in ((name, estimate), ("reference", reference)) if values else ():
        if not functions(x).isfinite(x).all():
            raise InputError(f"the {which} contains NaN or infinity")
        if not x.any(-1).all():
            raise InputError(f"the {which} is silent (all zeros), so its score is not defined")


def as_arrays(estimate: Array, reference: Array) -> tuple[Samples, Samples]:
    """Both signals (samples,) in double precision, checked."""
    check_pair(estimate, reference)
    if estimate.ndim != 1:
        raise InputError(f"PESQ and STOI take one signal (samples,) at a time, got shape {tuple(estimate.shape)}")
    return as_array(estimate).astype(np.float64), as_array(reference).astype(np.float64)


def optional_package(name: str, metric: str) -> ModuleType:
    """A package that a metric needs; where it is not installed, the error says how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise InputError(f"{metric} needs the package {name}, which is not installed: pip install {name}") from None


def _no_score(metric: str, reason: str) -> float:
    warnings.warn(f"{metric} not scored: {reason}", ScoreWarning, stacklevel=3)
    return math.nan

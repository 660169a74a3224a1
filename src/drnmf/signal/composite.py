"""CSIG, CBAK and COVL: what listeners would say of the speech, the background and the whole, each from 1 to 5.

Hu and Loizou ("Evaluation of objective quality measures for speech enhancement", 2008) fitted listeners' ratings by

    CSIG = 3.093 - 1.029 LLR + 0.603 PESQ - 0.009 WSS                   distortion of the speech
    CBAK = 1.634             + 0.478 PESQ - 0.007 WSS + 0.063 SSNR      intrusiveness of the background
    COVL = 1.594 - 0.512 LLR + 0.805 PESQ - 0.007 WSS                   the whole

    SSNR   segmental SNR: the mean over frames, each kept within -10 and 35 dB
    LLR    log-likelihood ratio: how much worse the estimate's linear prediction predicts the reference
    WSS    weighted spectral slope (Klatt, 1982): the squared difference of the slopes between 25 critical bands

As tables of this field have them: at 16 kHz, PESQ is the wide-band one (P.862.2), of LLR and WSS the worst 5 % of the
frames are left out, and signals are compared as loud as they are. That is what Loizou's own program does; some programs
bring both signals to the same peak before SSNR, and then CBAK differs.

Names of arrays end in their shape: T frames, S samples of a frame, B critical bands, K lags.
"""

import math
import warnings
from typing import Any

import numpy as np

from drnmf.signal.arrays import Array as Signal
from drnmf.signal.arrays import Samples
from drnmf.signal.metrics import ScoreWarning, as_arrays, pesq

WINDOW, HOP = 480, 120  # 30 ms, a quarter of it on
ORDER = 16  # of the linear prediction
KEPT = 0.95
EPS = float(np.finfo(float).eps)  # what Loizou adds to every sample, so that silence has a spectrum

_FFT = 1024
_CENTRES_HZ = (
    *(50.0, 120.0, 190.0, 260.0, 330.0, 400.0, 470.0, 540.0, 617.372, 703.378, 798.717, 904.128, 1020.38),
    *(1148.30, 1288.72, 1442.54, 1610.70, 1794.16, 1993.93, 2211.08, 2446.71, 2701.97, 2978.04, 3276.17, 3597.63),
)
_WIDTHS_HZ = (
    *(70.0, 70.0, 70.0, 70.0, 70.0, 70.0, 70.0, 77.3724, 86.0056, 95.3398, 105.411, 116.256, 127.914),
    *(140.423, 153.823, 168.154, 183.457, 199.776, 217.153, 235.631, 255.255, 276.072, 298.126, 321.465, 346.136),
)

Array = np.ndarray[Any, np.dtype[np.float64]]


def composite(estimate: Signal, reference: Signal, *, wide_pesq: float | None = None) -> dict[str, float]:
    """`csig`, `cbak` and `covl` of one signal (samples,) at 16 kHz; nan where PESQ has no answer.

    `wide_pesq` is the pair's wide-band PESQ, where it is known already.
    """
    quality = pesq(estimate, reference) if wide_pesq is None else wide_pesq
    e, r = as_arrays(estimate, reference)
    e_TS, r_TS = _frames(e), _frames(r)
    if not len(r_TS):
        warnings.warn("CSIG, CBAK, COVL not scored: less than 38 ms of sound", ScoreWarning, stacklevel=2)
        return dict.fromkeys(("csig", "cbak", "covl"), math.nan)
    ssnr = float(segmental_snr(e_TS, r_TS).mean())
    llr = _mean_of_best(log_likelihood_ratio(e_TS, r_TS))
    wss = _mean_of_best(weighted_spectral_slope(e_TS, r_TS))
    ratings = {
        "csig": 3.093 - 1.029 * llr + 0.603 * quality - 0.009 * wss,
        "cbak": 1.634 + 0.478 * quality - 0.007 * wss + 0.063 * ssnr,
        "covl": 1.594 - 0.512 * llr + 0.805 * quality - 0.007 * wss,
    }
    return {name: float(np.clip(rating, 1, 5)) for name, rating in ratings.items()}


def segmental_snr(e_TS: Array, r_TS: Array) -> Array:
    """SNR of each frame in dB, within -10 and 35."""
    noise_T = np.square(r_TS - e_TS).sum(1)
    ratio_T = np.square(r_TS).sum(1) / (noise_T + EPS)
    snr_T: Array = np.clip(10 * np.log10(ratio_T + EPS), -10, 35)
    return snr_T


def log_likelihood_ratio(e_TS: Array, r_TS: Array) -> Array:
    """log(a_e' R a_e / a_r' R a_r): errors in predicting the reference, by the estimate's prediction and by its own."""
    R_TK = _autocorrelation(r_TS)
    lag_KK = np.abs(np.subtract.outer(np.arange(ORDER + 1), np.arange(ORDER + 1)))
    R_TKK = R_TK[:, lag_KK]
    errors = [np.einsum("tk,tkl,tl->t", a_TK, R_TKK, a_TK) for a_TK in map(_prediction, (_autocorrelation(e_TS), R_TK))]
    ratio_T = errors[0] / errors[1]
    return np.log(np.where(ratio_T > 0, ratio_T, 1000.0))  # rounding alone makes an error negative: the worst frame


def weighted_spectral_slope(e_TS: Array, r_TS: Array) -> Array:
    """Squared difference of the slopes in dB from band to band; bands near peaks count most."""
    (e_slope_TB, e_weight_TB), (r_slope_TB, r_weight_TB) = map(_slopes, (e_TS, r_TS))
    weight_TB = (e_weight_TB + r_weight_TB) / 2
    distance_T: Array = (weight_TB * np.square(r_slope_TB - e_slope_TB)).sum(1) / weight_TB.sum(1)
    return distance_T


def _frames(x: Samples) -> Array:
    """Windowed frames; the last one that would fit is left out, as in the original."""
    count = max(0, (len(x) - WINDOW) // HOP)
    starts = HOP * np.arange(count)[:, None]
    window_S = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(1, WINDOW + 1) / (WINDOW + 1))
    framed: Array = (x + EPS)[starts + np.arange(WINDOW)] * window_S
    return framed


def _mean_of_best(distance_T: Array) -> float:
    return float(np.sort(distance_T)[: round(KEPT * len(distance_T))].mean())


def _autocorrelation(x_TS: Array) -> Array:
    """Lags 0 to ORDER."""
    return np.stack([(x_TS[:, : WINDOW - k] * x_TS[:, k:]).sum(1) for k in range(ORDER + 1)], axis=1)


def _prediction(R_TK: Array) -> Array:
    """The prediction error filter 1, a_1, ..., a_ORDER of each frame, by Levinson and Durbin's recursion."""
    a_TK = np.zeros_like(R_TK)
    a_TK[:, 0] = 1
    error_T = R_TK[:, 0].copy()
    for k in range(1, ORDER + 1):
        reflection_T = -(a_TK[:, :k] * R_TK[:, k:0:-1]).sum(1) / error_T
        a_TK[:, 1 : k + 1] += reflection_T[:, None] * a_TK[:, k - 1 :: -1][:, :k]
        error_T *= 1 - np.square(reflection_T)
    return a_TK


def _filters() -> Array:
    """Critical bands (B, bins): Gaussian, of equal weight, cut at -30 dB."""
    bins_per_hz = _FFT / 16000
    centre_B1 = np.floor(np.array(_CENTRES_HZ) * bins_per_hz)[:, None]
    width_B1 = np.array(_WIDTHS_HZ)[:, None]
    offset = (np.arange(_FFT // 2) - centre_B1) / (width_B1 * bins_per_hz)
    shape = np.exp(-11 * np.square(offset)) * _WIDTHS_HZ[0] / width_B1
    return np.where(shape > math.exp(-30 / (2 * 2.303)), shape, 0.0)


def _slopes(x_TS: Array) -> tuple[Array, Array]:
    """From each band to the next: the slope in dB, and how much it counts (Klatt's weights)."""
    power = np.square(np.abs(np.fft.rfft(x_TS, _FFT)))[:, : _FFT // 2]
    level_TB = 10 * np.log10(np.maximum(power @ _filters().T, 1e-10))
    slope_TB = np.diff(level_TB)
    highest_T1 = level_TB.max(1, keepdims=True)
    level_TB = level_TB[:, :-1]
    weight_TB = 20 / (20 + highest_T1 - level_TB) / (1 + _peaks(slope_TB, level_TB) - level_TB)
    return slope_TB, weight_TB


def _peaks(slope_TB: Array, level_TB: Array) -> Array:
    """The level at the end of the rise, or at the beginning of the fall, in which each band lies."""
    peak_TB = level_TB.copy()
    rising_TB = slope_TB > 0
    last = slope_TB.shape[1] - 1
    for b in range(last - 1, -1, -1):
        goes_on_T = rising_TB[:, b] & rising_TB[:, b + 1]
        peak_TB[goes_on_T, b] = peak_TB[goes_on_T, b + 1]
    for b in range(1, last + 1):
        goes_on_T = ~rising_TB[:, b] & ~rising_TB[:, b - 1]
        peak_TB[goes_on_T, b] = peak_TB[goes_on_T, b - 1]
    return peak_TB

"""The scores by their old name, for one release: `drnmf.signal.metrics`."""

from drnmf.signal.metrics import pesq, sdr, si_sdr, snr, stoi

__all__ = ["pesq", "sdr", "si_sdr", "snr", "stoi"]

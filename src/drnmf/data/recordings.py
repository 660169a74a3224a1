"""The recordings behind a dataset: their lengths, their samples, and whatever is wrong with them.

A corpus that fits into memory is decoded once, by a pool of threads (libsndfile and soxr work outside Python's lock:
threads decode as fast as processes and nothing needs copying), and may then live on a GPU. One that does not fit is
read from disk when it is needed, each time only the part that is used. Of several channels the first is used.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from drnmf.data.mixing import Item, Mixture, Pair, mix_batch
from drnmf.data.variation import vary_noise, vary_speech
from drnmf.errors import InputError, raise_first
from drnmf.parallel import in_threads
from drnmf.progress import Progress, silent
from drnmf.signal import audio
from drnmf.signal.spectra import SAMPLE_RATE

log = logging.getLogger("drnmf")

Sizes = Mapping[Path, int]

SILENT = 1e-4  # a file that never gets louder than -80 dBFS


def files_of(items: Iterable[Item]) -> list[Path]:
    """Every file the items use, once, in order of appearance."""
    used = [(i.noisy, i.clean) if isinstance(i, Pair) else (i.speech, i.background, i.rir) for i in items]
    return list(dict.fromkeys(path for paths in used for path in paths if path is not None))


def scan(paths: Sequence[Path], *, progress: Progress = silent) -> dict[Path, int]:
    """Length in samples at 16 kHz of every file, from its header."""
    infos = dict(zip(paths, in_threads(audio.info, paths, "looking at files", progress), strict=True))
    resampled = [path for path, info in infos.items() if info.rate != SAMPLE_RATE]
    several = [path for path, info in infos.items() if info.channels > 1]
    for what, which in (f"resampled to {SAMPLE_RATE} Hz", resampled), ("used by their first channel alone", several):
        if which:
            log.info("%d of %d files are %s, for example %s", len(which), len(paths), what, which[0])
    return {path: info.samples_at(SAMPLE_RATE) for path, info in infos.items()}


def check_fit(items: Iterable[Item], sizes: Sizes) -> None:
    """Backgrounds reach to the end of the speech they go under, and pairs are equally long."""
    problems = []
    for item in items:
        if isinstance(item, Pair):
            noisy, clean = sizes[item.noisy], sizes[item.clean]
            if noisy != clean:
                problems.append(f"{item.noisy} has {noisy} samples but its clean partner {item.clean} has {clean}")
        elif sizes[item.background] < sizes[item.speech]:
            problems.append(shorter(item.background, item.speech, sizes))
        elif not 0 <= item.offset <= sizes[item.background] - sizes[item.speech]:
            problems.append(
                f"mixture {item.id}: {sizes[item.speech]} samples from offset {item.offset} on are not all in "
                f"{item.background}, which has {sizes[item.background]}"
            )
    raise_first(problems)


def shorter(background: Path, speech: Path, sizes: Sizes) -> str:
    """The message that a background is too short for an utterance."""
    seconds = [sizes[path] / SAMPLE_RATE for path in (background, speech)]
    return f"{background} ({seconds[0]:.1f} s) is shorter than the speech {speech} ({seconds[1]:.1f} s)"


class Recordings:
    """Samples at 16 kHz by file, from memory or from disk.

    `in_memory` decodes the files of `sizes` now; None: if that takes less than half of the memory that is free. They
    are kept on `device` if it has room for them; samples from disk come on the CPU.
    """

    def __init__(
        self,
        sizes: Sizes,
        *,
        in_memory: bool | None = None,
        device: torch.device | str = "cpu",
        progress: Progress = silent,
    ) -> None:
        self.sizes = sizes
        needed = 4 * sum(sizes.values())
        self.in_memory = needed < free_memory() / 2 if in_memory is None else in_memory
        device = torch.device(device)
        has_room = self.in_memory and (device.type != "cuda" or needed < torch.cuda.mem_get_info(device)[0] / 4)
        self.device = device if has_room else torch.device("cpu")
        self._samples: dict[Path, Tensor] = {}
        if self.in_memory:
            decoded = in_threads(_decode, list(sizes), "decoding", progress)
            self._samples = {path: x.to(self.device) for path, x in zip(sizes, decoded, strict=True)}
        where = f"in memory on {self.device}" if self.in_memory else "read from disk as needed"
        log.info("%d files, %.1f h (%.1f GB): %s", len(sizes), needed / 4 / SAMPLE_RATE / 3600, needed / 1e9, where)

    def load(self, path: Path, start: int = 0, count: int | None = None) -> Tensor:
        """Samples (count,) of a file's first channel."""
        if self.in_memory:
            stop = None if count is None else start + count
            return self._samples[path][start:stop]
        return audio.read(path, sample_rate=SAMPLE_RATE, channel=0, start=start, count=count, announce=False)[0][0]

    def waveforms(self, items: Sequence[Item]) -> tuple[Tensor, Tensor, Tensor]:
        """Mixtures (B, S), their targets (B, S), padded with zeros, and their lengths (B,)."""
        pairs = [item for item in items if isinstance(item, Pair)]
        if pairs:
            clean = [self.load(pair.clean) for pair in pairs]
            return _pad([self.load(pair.noisy) for pair in pairs]), _pad(clean), self._lengths(clean)
        mixtures = [item for item in items if isinstance(item, Mixture)]
        speech = [self.load(m.speech) for m in mixtures]
        background = [self.load(m.background, m.offset, len(s)) for m, s in zip(mixtures, speech, strict=True)]
        no_room = torch.ones(1, device=self.device)
        rooms = [no_room if m.rir is None else self.load(m.rir) for m in mixtures]
        lengths, speech_BS, background_BS = self._lengths(speech), _pad(speech), _pad(background)
        variations = [m.variation for m in mixtures if m.variation is not None]
        if variations:
            speech_BS = vary_speech(speech_BS, variations)
            background_BS = vary_noise(background_BS, self._others(mixtures, background), lengths, variations)
        noisy_BS, clean_BS = mix_batch(
            speech_BS,
            lengths,
            _pad(rooms) if any(m.rir for m in mixtures) else None,
            background_BS,
            torch.tensor([m.snr_db for m in mixtures], device=self.device),
            torch.tensor([m.level_dbfs for m in mixtures], device=self.device),
        )
        return noisy_BS, clean_BS, lengths

    def _others(self, mixtures: Sequence[Mixture], like: Sequence[Tensor]) -> Tensor:
        """Second noises (B, S), silent where there is none."""
        return _pad(
            [
                self.load(v.other, v.other_offset, len(x)) if (v := m.variation) and v.other else torch.zeros_like(x)
                for m, x in zip(mixtures, like, strict=True)
            ]
        )

    def _lengths(self, signals: Sequence[Tensor]) -> Tensor:
        return torch.tensor([len(x) for x in signals], device=self.device)


def free_memory() -> int:
    """Bytes a process may still take: what the machine has free and what its container allows."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux: half of the machine
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    try:
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text() for name in ("max", "current"))
        free = min(free, int(limit) - int(used))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        pass
    return free


def _pad(signals: Sequence[Tensor]) -> Tensor:
    return pad_sequence(list(signals), batch_first=True)


def _decode(path: Path) -> Tensor:
    x = audio.read(path, sample_rate=SAMPLE_RATE, channel=0, announce=False)[0][0]
    _refuse_silence(path, float(x.abs().max()))
    return x


def check_sound(path: Path) -> None:
    """Decode a file once, in bounded memory; raise if it is broken, silent or not finite."""
    _refuse_silence(path, max(float(abs(block[0]).max()) for block in audio.read_blocks(path, 60 * SAMPLE_RATE)))


def _refuse_silence(path: Path, peak: float) -> None:
    if peak < SILENT:
        raise InputError(f"{path}: is silent (peak {peak:.1e})")

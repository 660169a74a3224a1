"""Public test sets, read where they lie, so that a model can be placed in the tables of others.

VoiceBank+DEMAND (Valentini-Botinhao, 2017; datashare.ed.ac.uk/handle/10283/2791), 824 pairs, 48 kHz as published:

    clean_testset_wav/p232_001.wav
    noisy_testset_wav/p232_001.wav
    log_testset.txt, or logfiles/log_testset.txt        if it is there: name, noise and SNR in dB, a line each

DNS challenge 2020, synthetic test set (github.com/microsoft/DNS-Challenge, datasets/test_set/synthetic), 2 x 150 pairs:

    no_reverb/clean/clean_fileid_158.wav
    no_reverb/noisy/clnsp1_train_69005_1_snr15_tl-21_fileid_158.wav
    with_reverb/...
"""

import re
from collections.abc import Iterable
from pathlib import Path

from drnmf.data.folders import read_pairs
from drnmf.data.mixing import Pair
from drnmf.errors import InputError, raise_first
from drnmf.files import find_audio, read_plain

_FILE_ID = re.compile(r"fileid_(\d+)$")
_SNR = re.compile(r"_snr(-?\d+(?:\.\d+)?)_")
_MOST_BYTES = 2**24


def read_voicebank(root: Path | str) -> list[Pair]:
    """The test pairs of VoiceBank+DEMAND, with their SNR where the log is there, in order of name."""
    root = Path(root)
    clean, noisy = (_folder(root, f"{part}_testset_wav") for part in ("clean", "noisy"))
    snrs = _logged_snrs(root)
    return [Pair(pair.id, pair.noisy, pair.clean, snrs.get(pair.id)) for pair in read_pairs(noisy, clean)]


def read_dns(root: Path | str) -> list[Pair]:
    """The pairs of DNS's synthetic test set: of a folder with `clean` and `noisy`, or of several such folders."""
    root = Path(root)
    places = [root] if (root / "noisy").is_dir() else sorted(path.parent for path in root.glob("*/noisy"))
    if not places:
        raise InputError(f"{root}: is not DNS's synthetic test set, it has no folders 'clean' and 'noisy'")
    return [pair for place in places for pair in _dns_pairs(place, "" if place == root else f"{place.name}/")]


def _folder(root: Path, name: str) -> Path:
    """The folder of that name, or of that name and a rate, such as clean_testset_wav_16k."""
    found = sorted(path for path in root.glob(f"{name}*") if path.is_dir())
    if not found:
        raise InputError(f"{root}: is not VoiceBank+DEMAND, it has no folder {name}")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InputError(f"{root}: has {names}; move all but one of them away")
    return found[0]


def _logged_snrs(root: Path) -> dict[str, float]:
    for path in (root / "log_testset.txt", root / "logfiles" / "log_testset.txt"):
        if path.is_file():
            lines = (line.split() for line in read_plain(path, _MOST_BYTES).decode(errors="replace").splitlines())
            return {line[0]: _snr(path, line) for line in lines if line}
    return {}


def _snr(path: Path, line: list[str]) -> float:
    try:
        return float(line[-1])
    except ValueError:
        raise InputError(f"{path}: a line must be a name, a noise and an SNR in dB, got {' '.join(line)!r}") from None


def _dns_pairs(folder: Path, prefix: str) -> list[Pair]:
    clean, noisy = (_by_file_id(find_audio(folder / part)) for part in ("clean", "noisy"))
    raise_first([f"{path}: has no partner in {folder / 'clean'}" for id, path in noisy.items() if id not in clean])
    raise_first([f"{path}: has no partner in {folder / 'noisy'}" for id, path in clean.items() if id not in noisy])
    pairs = []
    for id in sorted(noisy):
        named = _SNR.search(noisy[id].stem)
        snr_db = float(named[1]) if named else None
        pairs.append(Pair(f"{prefix}fileid_{id}", noisy[id], clean[id], snr_db))
    return pairs


def _by_file_id(paths: Iterable[Path]) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for path in paths:
        named = _FILE_ID.search(path.stem)
        if named is None:
            raise InputError(f"{path}: its name does not end in fileid_ and a number, as those of DNS's test set do")
        if found.setdefault(int(named[1]), path) != path:
            raise InputError(f"{path}: has the same number as {found[int(named[1])].name}; move one of them away")
    return found

"""The CHiME2-WSJ0 corpus (2nd CHiME Challenge, track 2, medium vocabulary; LDC2017S10), read where it lies.

    isolated/SET/SNR/wsj0/SET/SPEAKER/UTTERANCE.wav      the mixtures
    scaled/SET/SNR/wsj0/SET/SPEAKER/UTTERANCE.wav        the reverberant speech in them, as loud as it is in them
    reverberated/SET/.../UTTERANCE.wav                   the reverberant speech, once

SET is si_tr_s (7138 utterances, each at one SNR), si_dt_05 (409 utterances at all six) or si_et_05 (330 at all six);
SNR is one of m6dB, m3dB, 0dB, 3dB, 6dB, 9dB; all files are 16 kHz, 16 bit, two channels, of which the left is used.

Known from the file lists and scripts that the paper's authors, Kaldi and ESPnet published: the folders above, that the
authors trained and scored against `scaled`, and that their lists are in order of path, so that "10 %" is every tenth
path. Not known, since the corpus is licensed and was not at hand: that a mixture and its target are equally long (it is
checked before training), and how `reverberated` differs from `scaled` (taken to be by a gain). Where `scaled` is
missing, `reverberated` is used by the utterance's name, and a warning says so.
"""

import logging
from pathlib import Path

from drnmf.data.mixing import Pair
from drnmf.errors import InputError, raise_first

log = logging.getLogger("drnmf")

SETS = {"train": "si_tr_s", "dev": "si_dt_05", "test": "si_et_05"}
SNRS_DB = {"m6dB": -6.0, "m3dB": -3.0, "0dB": 0.0, "3dB": 3.0, "6dB": 6.0, "9dB": 9.0}


def read_chime2(root: Path | str, split: str) -> list[Pair]:
    """Mixtures and targets of "train", "dev" or "test", in order of path.

    `root` is the folder that holds `isolated`, or one up to two levels above it (chime2-wsj0, data).
    """
    if split not in SETS:
        raise InputError(f"CHiME2 has no set '{split}': choose one of {', '.join(SETS)}")
    base = _base(Path(root))
    isolated = base / "isolated" / SETS[split]
    mixtures = sorted(isolated.rglob("*.wav"), key=lambda path: path.as_posix())
    if not mixtures:
        raise InputError(f"{isolated}: has no wav files")
    levels = [next((part for part in m.relative_to(isolated).parts if part in SNRS_DB), "") for m in mixtures]
    elsewhere = [m for m, level in zip(mixtures, levels, strict=True) if not level]
    raise_first([f"{m}: is not in a folder of one SNR ({', '.join(SNRS_DB)})" for m in elsewhere])
    scaled = base / "scaled" / SETS[split]
    if scaled.is_dir():
        targets = [scaled / path.relative_to(isolated) for path in mixtures]
    else:
        reverberated = base / "reverberated" / SETS[split]
        log.warning("%s does not exist: targets are taken from %s, whose level may differ", scaled, reverberated)
        by_name = {path.stem.lower(): path for path in reverberated.rglob("*.wav")}
        targets = [by_name.get(path.stem.lower(), reverberated / path.name) for path in mixtures]
    raise_first([f"{m}: has no target {t}" for m, t in zip(mixtures, targets, strict=True) if not t.is_file()])
    found = zip(mixtures, targets, levels, strict=True)
    return [Pair(f"{mixture.stem}_{level}", mixture, target, SNRS_DB[level]) for mixture, target, level in found]


def _base(root: Path) -> Path:
    for base in (root, root / "chime2-wsj0", root / "data" / "chime2-wsj0"):
        if (base / "isolated").is_dir():
            return base
    raise InputError(f"{root}: is not CHiME2-WSJ0, it has no folder 'isolated'")

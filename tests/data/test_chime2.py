"""The corpus is licensed: these tests write a small tree of the same shape."""

import numpy as np
import pytest
import soundfile

from drnmf.data.batches import Dataset
from drnmf.data.chime2 import SNRS_DB, read_chime2
from drnmf.errors import InputError


@pytest.fixture
def tree(tmp_path, speech_dir, noise_dir):
    """Two training utterances at one SNR each and one dev utterance at all six, stereo; left and right differ."""
    base = tmp_path / "data" / "chime2-wsj0"
    speech = [soundfile.read(p)[0] for p in sorted(speech_dir.glob("*.flac"))[1:3]]
    noise = soundfile.read(next(noise_dir.glob("*.flac")))[0]

    def write(path, left, right):
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, np.stack([left, right], 1), 16000, subtype="PCM_16")

    jobs = [("si_tr_s", "011", "011c0201", 0, ["m3dB"]), ("si_tr_s", "011", "011o0305", 1, ["9dB"])]
    jobs.append(("si_dt_05", "050", "050c0101", 0, list(SNRS_DB)))
    for part, speaker, name, which, snrs in jobs:
        s = 0.5 * speech[which]
        for snr in snrs:
            v = 10 ** (-SNRS_DB[snr] / 20) * 0.05 * noise[: len(s)]
            below = f"{part}/{snr}/wsj0/{part}/{speaker}/{name}.wav"
            write(base / "isolated" / below, s + v, 0.3 * s - v)
            write(base / "scaled" / below, s, 0.3 * s)
        write(base / "reverberated" / part / speaker / f"{name}.wav", 2 * s, 0.6 * s)
    return tmp_path


def test_train_and_dev_are_listed_in_order_of_path(tree):
    train = read_chime2(tree, "train")
    assert [(p.id, p.snr_db) for p in train] == [("011o0305_9dB", 9.0), ("011c0201_m3dB", -3.0)]
    dev = read_chime2(tree / "data" / "chime2-wsj0", "dev")
    assert [p.snr_db for p in dev] == [0, 3, 6, 9, -3, -6]
    assert all("scaled" in p.clean.parts for p in dev)


def test_the_left_channel_is_heard(tree):
    pairs = read_chime2(tree, "dev")
    dataset = Dataset(pairs)
    for pair in pairs:
        noisy, clean = dataset.waveforms(pair)
        np.testing.assert_array_equal(noisy.numpy(), soundfile.read(pair.noisy, dtype="float32")[0][:, 0])
        np.testing.assert_array_equal(clean.numpy(), soundfile.read(pair.clean, dtype="float32")[0][:, 0])


def test_without_scaled_targets_the_reverberated_ones_are_used_and_it_is_said(tree, caplog):
    base = tree / "data" / "chime2-wsj0"
    (base / "scaled").rename(base / "elsewhere")
    pairs = read_chime2(tree, "dev")
    assert {p.clean for p in pairs} == {base / "reverberated/si_dt_05/050/050c0101.wav"}
    assert "whose level may differ" in caplog.text
    Dataset(pairs)


def test_what_is_missing_is_named(tree, tmp_path_factory):
    with pytest.raises(InputError, match=r"si_et_05: has no wav files"):
        read_chime2(tree, "test")
    with pytest.raises(InputError, match="no set 'eval'"):
        read_chime2(tree, "eval")
    with pytest.raises(InputError, match="is not CHiME2-WSJ0"):
        read_chime2(tmp_path_factory.mktemp("empty"), "dev")
    next((tree / "data/chime2-wsj0/scaled/si_dt_05/0dB").rglob("*.wav")).unlink()
    with pytest.raises(InputError, match=r"0dB.*050c0101\.wav: has no target"):
        read_chime2(tree, "dev")

"""Public test sets in their exact layouts, made of the recordings in tests/audio."""

import pytest

import public
from drnmf.data.batches import Dataset
from drnmf.data.testsets import read_dns, read_voicebank
from drnmf.errors import InputError


@pytest.fixture
def voicebank(tmp_path):
    return public.voicebank(tmp_path)


@pytest.fixture
def dns(tmp_path):
    return public.dns(tmp_path)


@pytest.mark.parametrize("place", [".", "logfiles"])
def test_voicebank_with_the_snrs_of_its_log(voicebank, place):
    (voicebank / place).mkdir(exist_ok=True)
    (voicebank / place / "log_testset.txt").write_text("p232_001 bus 17.5\np257_434 living 2.5\n")
    pairs = read_voicebank(voicebank)
    assert [(pair.id, pair.snr_db) for pair in pairs] == [("p232_001", 17.5), ("p257_434", 2.5)]
    assert [(pair.noisy.parent.name, pair.clean.parent.name) for pair in pairs] == [
        ("noisy_testset_wav", "clean_testset_wav")
    ] * 2
    noisy, clean = Dataset(pairs).waveforms(pairs[0])
    assert len(noisy) == len(clean) == 12000  # 48 kHz became 16
    expected, _ = public.sound("austen_0880", 4.0)
    assert (clean - expected).abs().max() < 0.01


def test_voicebank_without_a_log_and_at_16_khz(voicebank):
    for name in ("clean", "noisy"):
        (voicebank / f"{name}_testset_wav").rename(voicebank / f"{name}_testset_wav_16k")
    assert [pair.snr_db for pair in read_voicebank(voicebank)] == [None, None]


def test_dns_pairs_by_file_id_with_the_snr_of_the_name(dns):
    pairs = read_dns(dns)
    ids = [f"{place}/fileid_{id}" for place in ("no_reverb", "with_reverb") for id in (7, 158)]
    assert [pair.id for pair in pairs] == ids
    assert [pair.snr_db for pair in pairs] == [-5.0, 15.0] * 2
    assert [pair.clean.name for pair in pairs[:2]] == ["clean_fileid_7.wav", "clean_fileid_158.wav"]
    assert [pair.noisy.stem for pair in pairs[:2]] == [public.DNS[7], public.DNS[158]]
    alone = read_dns(dns / "with_reverb")
    assert [pair.id for pair in alone] == ["fileid_7", "fileid_158"]
    assert [pair.noisy for pair in alone] == [pair.noisy for pair in pairs[2:]]


def test_what_is_no_voicebank_is_told(voicebank, tmp_path):
    with pytest.raises(InputError, match=r"is not VoiceBank.DEMAND, it has no folder clean_testset_wav"):
        read_voicebank(tmp_path / "clean_testset_wav")
    (voicebank / "log_testset.txt").write_text("p232_001 bus loud\n")
    with pytest.raises(InputError, match="a name, a noise and an SNR in dB, got 'p232_001 bus loud'"):
        read_voicebank(voicebank)
    (voicebank / "clean_testset_wav_16k").mkdir()
    with pytest.raises(InputError, match="has clean_testset_wav, clean_testset_wav_16k; move all but one"):
        read_voicebank(voicebank)
    (voicebank / "clean_testset_wav_16k").rmdir()
    (voicebank / "log_testset.txt").unlink()
    (voicebank / "noisy_testset_wav" / "p257_434.wav").unlink()
    with pytest.raises(InputError, match=r"p257_434.wav: has no partner"):
        read_voicebank(voicebank)


def test_what_is_no_dns_is_told(dns):
    with pytest.raises(InputError, match="is not DNS's synthetic test set"):
        read_dns(dns / "no_reverb" / "clean")
    noisy = dns / "no_reverb" / "noisy"
    (noisy / f"{public.DNS[7]}.wav").rename(noisy / "other_snr3_fileid_158.wav")
    with pytest.raises(InputError, match="has the same number as"):
        read_dns(dns)
    (noisy / "other_snr3_fileid_158.wav").rename(noisy / "other.wav")
    with pytest.raises(InputError, match="does not end in fileid_ and a number"):
        read_dns(dns)
    (noisy / "other.wav").unlink()
    with pytest.raises(InputError, match=r"clean_fileid_7.wav: has no partner in .*noisy"):
        read_dns(dns)

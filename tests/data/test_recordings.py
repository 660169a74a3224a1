import pytest
import torch

from drnmf.data.recordings import Recordings, check_sound, scan
from drnmf.errors import InputError
from drnmf.signal import audio


def spoken(speech_dir, samples: int) -> torch.Tensor:
    x, _ = audio.read(speech_dir / "austen_0880.flac", start=8000, count=samples)
    return x


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
def test_the_length_from_the_header_is_the_length_decoded(tmp_path, speech_dir, rate):
    paths = []
    for samples in range(20000, 20007):
        paths.append(tmp_path / f"{samples}.wav")
        audio.write(paths[-1], spoken(speech_dir, samples), rate)
    sizes = scan(paths)
    for recordings in (Recordings(sizes, in_memory=True), Recordings(sizes, in_memory=False)):
        assert [len(recordings.load(path)) for path in paths] == list(sizes.values())
    exact = [samples * 16000 / rate for samples in range(20000, 20007)]
    assert all(abs(length - x) <= 0.5 for length, x in zip(sizes.values(), exact, strict=True))  # rounded, not cut


@pytest.mark.parametrize(("peak", "silent"), [(0.8e-4, True), (1.2e-4, False)])
def test_silence_is_what_never_gets_louder_than_80_db_below_full_scale(tmp_path, speech_dir, peak, silent):
    x = spoken(speech_dir, 16000)
    quiet = tmp_path / "quiet.wav"
    audio.write(quiet, x / abs(x).max() * peak, 16000, subtype="FLOAT")
    for check in (lambda: check_sound(quiet), lambda: Recordings(scan([quiet]), in_memory=True)):
        if silent:
            with pytest.raises(InputError, match=r"quiet\.wav: is silent \(peak 8\.0e-05\)"):
                check()
        else:
            check()


def test_a_sound_after_a_minute_of_silence_is_no_silence(tmp_path, speech_dir):
    late = torch.cat([torch.zeros(1, 70 * 16000), torch.as_tensor(spoken(speech_dir, 16000))], 1)
    audio.write(tmp_path / "late.wav", late, 16000)
    check_sound(tmp_path / "late.wav")

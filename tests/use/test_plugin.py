"""The plugins, LADSPA's and LV2's, in real hosts: what comes out of them is what the library gives."""

import os
import re
import shutil
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile

from native import ROOT, Enhancer, built, needs, run
from use.test_c_library import mixture

HERE = Path(__file__).parent
LV2 = "https://drnmf.github.io/drnmf/lv2/"
LABELS = {1: "drnmf_mono", 2: "drnmf_stereo"}


def plugin() -> Path:
    needs("/usr/include/ladspa.h")
    return built() / "ladspa" / "drnmf.so"


def write(path: Path, rate: int, channels: int) -> np.ndarray:
    """A recording as a file of 16 bits, which hosts read; its samples (channels, n)."""
    x = np.round(mixture(rate, channels) * 20000).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(x.T.tobytes())
    return x.astype(np.float32) / 32768


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [16000, 44100, 48000])
def test_applyplugin(rate, channels, tmp_path):
    needs("applyplugin")
    x = write(tmp_path / "in.wav", rate, channels)
    run("applyplugin", tmp_path / "in.wav", tmp_path / "out.wav", plugin(), LABELS[channels], 0.9, 18)
    y, out_rate = soundfile.read(tmp_path / "out.wav", dtype="float32", always_2d=True)
    enhancer = Enhancer(rate, channels)
    enhancer.set_strength(0.9)
    enhancer.set_max_attenuation(18)
    expected = enhancer.process(x)
    assert out_rate == rate
    np.testing.assert_allclose(y.T, expected, rtol=0, atol=1.1 / 32768)
    assert np.abs(expected).max() > 0.1


@pytest.mark.parametrize("rate", [44100, 48000])
def test_sox_takes_the_latency_off(rate, tmp_path):
    """By the number that the plugin reports."""
    needs("sox")
    x = write(tmp_path / "in.wav", rate, 1)
    floats = ("-e", "floating-point", "-b", 32)
    run("sox", tmp_path / "in.wav", *floats, tmp_path / "out.wav", "ladspa", "-l", plugin(), "drnmf_mono", 1, 100)
    y, _ = soundfile.read(tmp_path / "out.wav", dtype="float32")
    expected = Enhancer(rate).enhance(x[0], [512])
    np.testing.assert_allclose(y, expected[: len(y)], rtol=0, atol=1e-5)
    assert len(y) >= len(expected) - Enhancer(rate).latency()


def by_lv2apply(x: np.ndarray, rate: int, folder: Path, **controls: float) -> np.ndarray:
    """What the LV2 plugin makes of (channels, n); the latency stays."""
    needs("/usr/include/lv2/core/lv2.h", "lv2apply")
    soundfile.write(folder / "in.wav", x.T, rate, subtype="FLOAT")
    environment = {**os.environ, "LV2_PATH": str(built() / "lv2")}
    settings = [word for name, value in controls.items() for word in ("-c", name, value)]
    plugin = LV2 + ("mono", "stereo")[len(x) - 1]
    run("lv2apply", "-i", folder / "in.wav", "-o", folder / "out.wav", *settings, plugin, env=environment)
    y, _ = soundfile.read(folder / "out.wav", dtype="float32", always_2d=True)
    return y.T


@pytest.mark.parametrize(("rate", "channels"), [(44100, 1), (48000, 1), (48000, 2)])
def test_lv2apply(rate, channels, tmp_path):
    x, enhancer = mixture(rate, channels), Enhancer(rate, channels)
    y = by_lv2apply(x, rate, tmp_path, strength=0.9, attenuation=18)
    enhancer.set_strength(0.9)
    enhancer.set_max_attenuation(18)
    np.testing.assert_array_equal(y, enhancer.process(x))


def test_lv2_hosts_find_the_latency():
    needs("/usr/include/lv2/core/lv2.h", "lv2apply")
    said = run("lv2info", f"{LV2}mono", env={**os.environ, "LV2_PATH": str(built() / "lv2")}).stdout.decode()
    assert re.search("Has latency: +yes, reported by port 2", said)


def test_a_model_of_one_s_own(tmp_path):
    needs("applyplugin")
    write(tmp_path / "in.wav", 48000, 1)
    (tmp_path / "model").write_bytes(b"no model")
    command = "applyplugin", tmp_path / "in.wav", tmp_path / "out.wav", plugin(), "drnmf_mono", 1, 100
    with pytest.raises(AssertionError, match=r"instantiate|[Ff]ail"):
        run(*command, env={**os.environ, "DRNMF_MODEL": str(tmp_path / "model")})


def test_as_the_microphone_of_pipewire(tmp_path):
    """With the configuration that users copy. In real time, so that a busy machine may lose some of it."""
    if not os.environ.get("DRNMF_ANYWHERE"):
        pytest.skip("runs in real time for some seconds: make anywhere")
    needs("pipewire", "wireplumber", "dbus-run-session")
    x = write(tmp_path / "in.wav", 48000, 1)
    for name in ("client.conf", "client-rt.conf"):
        shutil.copy(Path("/usr/share/pipewire") / name, tmp_path)
    shutil.copy(HERE / "pipewire_test.conf", tmp_path / "test.conf")
    (tmp_path / "test.conf.d").mkdir()
    shutil.copy(ROOT / "libdrnmf" / "pipewire.conf", tmp_path / "test.conf.d")
    environment = {**os.environ, "LADSPA_PATH": str(plugin().parent)}
    run("dbus-run-session", "--", "sh", HERE / "pipewire_session.sh", tmp_path, env=environment)
    y, _ = soundfile.read(tmp_path / "out.wav", dtype="float32")
    expected = Enhancer(48000).process(x[0])[48000:72000]  # half a second, wherever it lies
    y = y[int(np.argmax(np.correlate(y, expected, "valid"))) :][: len(expected)]
    late = Enhancer(48000).latency()
    untouched = x[0, 48000 - late :][: len(expected)]
    # hops start elsewhere in the sound, and playing begins before the link is there, so that the network has heard less
    # of it: much the same, not the same
    assert np.sum((y - expected) ** 2) < 0.3 * np.sum((untouched - expected) ** 2)

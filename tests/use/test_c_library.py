"""The C library gives what Python gives, in blocks of any size; it refuses what is damaged, and never allocates."""

import ctypes
import itertools
import math
import os
import re

import numpy as np
import pytest
import soxr
import torch

from command import drnmf
from drnmf import InputError, LSTMMask, PriorDRNMF, Streamer, load_model, save_model, stft
from drnmf.signal import BINS
from drnmf.use.flat import export_flat
from examples import recording, seeded
from native import ROOT, Enhancer, built, library, model_file, needs, run
from small import streamed


def mixture(rate: int = 16000, channels: int = 1) -> np.ndarray:
    """Two seconds of speech in noise; a second channel is softer and later."""
    x = (recording("speech/austen_0880", 32000) + recording("noise/percussion", 32000)).numpy()
    x = soxr.resample(x, 16000, rate)
    return np.stack([x, 0.5 * np.roll(x, 300)])[:channels].astype(np.float32)


def awkward(x: np.ndarray, **options) -> np.ndarray:
    """The library's output, in blocks of awkward sizes."""
    return Enhancer(**options).enhance(x, [1, 127, 480, 3, 1021, 128])


@pytest.mark.parametrize("channels", [1, 2])
def test_the_same_numbers_as_in_python(channels):
    x = mixture(channels=channels)
    y, expected = awkward(x, channels=channels), streamed(x)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-6)
    assert np.abs(expected - x).max() > 0.05


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [8000, 11025, 24000, 44100, 48000, 96000])
def test_other_rates_as_in_python(rate, channels):
    """The same filters; only the end differs, since the zeros that follow go through them, too."""
    x = mixture(rate, channels)
    y, expected = awkward(x, rate=rate, channels=channels), streamed(x, rate)
    end = x.shape[1] - rate // 20
    np.testing.assert_allclose(y[:, :end], expected[:, :end], rtol=0, atol=2e-5)
    assert np.sqrt(np.mean((y - expected)[:, :end] ** 2)) < 1e-6
    assert np.abs(y - expected).max() < 0.02


@pytest.mark.parametrize("rate", [16000, 44100, 48000])
def test_blocks_do_not_matter(rate):
    x = mixture(rate)[0, : rate // 2]
    whole = Enhancer(rate).enhance(x, [len(x) * 2])
    for blocks in ([1], [128], [64, 4096], [441], [257, 0, 7]):
        np.testing.assert_array_equal(Enhancer(rate).enhance(x, blocks), whole)


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 48000, 192000])
def test_nothing_removed_is_the_input_exactly_its_latency_late(rate):
    x, enhancer = mixture(rate)[0, :rate], Enhancer(rate)
    assert enhancer.set_strength(0) == 0
    y, late = enhancer.process(x), enhancer.latency()
    np.testing.assert_array_equal(y[late:], x[:-late])
    assert not y[:late].any()
    assert 0.02 < late / rate < 0.06


def test_latency_is_not_above_python_s():
    for rate in (16000, 44100, 48000):
        assert Enhancer(rate).latency() <= Streamer(sample_rate=rate).latency


def test_strength_and_attenuation_may_change_between_blocks():
    x = mixture()[0]
    enhancer, streamer = Enhancer(), Streamer()
    parts, expected = [], []
    for i, block in enumerate(np.array_split(x, 9)):
        strength, limit = (1.0, 0.4, 0.0)[i % 3], (3.0, 20.0, math.inf)[i % 3]
        assert enhancer.set_strength(strength) == enhancer.set_max_attenuation(limit) == 0
        streamer.strength, streamer.max_attenuation = strength, limit
        parts.append(enhancer.process(block))
        expected.append(streamer.feed(block))
    y, late = np.concatenate(parts), enhancer.latency()
    wanted = np.concatenate(expected)[: len(y) - late]
    np.testing.assert_allclose(y[late : late + len(wanted)], wanted, rtol=0, atol=1e-5)


def test_reset_forgets_the_sound_and_keeps_the_settings():
    x, enhancer = mixture(48000)[0], Enhancer(48000)
    enhancer.set_max_attenuation(9.0)
    first = enhancer.process(x)
    enhancer.process(x[:777])
    enhancer.reset()
    np.testing.assert_array_equal(enhancer.process(x), first)


def test_values_that_cannot_be_are_refused():
    enhancer = Enhancer()
    for strength in (-0.1, 1.1, math.nan):
        assert "strength is from 0 to 1" in library().drnmf_error(enhancer.set_strength(strength)).decode()
    for decibels in (-1.0, math.nan):
        assert enhancer.set_max_attenuation(decibels)
    for atom in (-1, enhancer.atoms()):
        assert enhancer.keep_atom(atom, 1)
        assert not enhancer.spectrum(atom)
    assert library().drnmf_process(None, None, None, 1)
    for rate, channels, text in ((7999, 1, "sample rate"), (44056, 1, "sample rate"), (16000, 0, "channels")):
        assert text in Enhancer(rate, channels).error()


def test_samples_that_cannot_be_are_silence_and_reported():
    x, enhancer, other = mixture()[0], Enhancer(), Enhancer()
    bad = x.copy()
    bad[[100, 5000, 7000]] = math.nan, math.inf, 32768
    y = enhancer.process(bad)
    assert "full scale" in enhancer.error()
    assert np.isfinite(y).all()
    np.testing.assert_array_equal(y, other.process(np.where(bad == x, x, np.float32(0))))
    assert other.code == 0


def test_a_file_is_what_is_compiled_in():
    x = mixture()[0]
    expected = Enhancer().process(x)
    for model in (model_file(), model_file().read_bytes()):
        np.testing.assert_array_equal(Enhancer(model=model).process(x), expected)
    enhancer, like = Enhancer(), ctypes.c_void_p()
    assert library().drnmf_open_like(ctypes.byref(like), enhancer.pointer, 48000, 2) == 0
    assert library().drnmf_latency(like) > 511
    library().drnmf_close(like)


def test_files_that_are_no_models_are_refused(tmp_path):
    content = model_file().read_bytes()
    cases = {
        "cannot be read": None,
        "not a model": b"RIFF" + content[4:],
        "newer": content[:8] + b"\2" + content[9:],
        "damaged": content[:-4],
    }
    for text, broken in cases.items():
        path = tmp_path / text
        if broken is not None:
            path.write_bytes(broken)
        assert text in Enhancer(model=path).error()
    assert "cannot be read" in Enhancer(model=tmp_path).error()
    changed = bytearray(content)
    changed[-1000] ^= 4
    assert "damaged" in Enhancer(model=bytes(changed)).error()


def looks(x: np.ndarray, enhancer: Enhancer) -> dict[str, np.ndarray]:
    """Of every frame the mask, the activations and what was expected."""
    sizes = {"mask": BINS, "activations": enhancer.atoms(), "expected": enhancer.atoms()}
    found: dict[str, list[np.ndarray]] = {name: [] for name in sizes}
    for i in range(0, len(x) - 127, 128):
        enhancer.process(x[i : i + 128])
        assert enhancer.frames() == i // 128 + 1
        for name, n in sizes.items():
            found[name].append(np.ctypeslib.as_array(getattr(enhancer, name)(), (n,)).copy())
    return {name: np.stack(rows) for name, rows in found.items()}


def test_what_can_be_seen_is_what_python_shows():
    x, model = mixture()[0], load_model("default")
    seen = looks(x, Enhancer())
    magnitude = stft(torch.from_numpy(x)).abs()[: len(seen["mask"]) + 1]
    mask, heard = (model(magnitude[None])[0][0], model.heard(magnitude))
    mask, expected, activations = (
        t.detach().numpy()[1:]
        for t in (mask, heard["expected sparsity λ"], heard["activations"])  # 0: before the sound
    )
    np.testing.assert_allclose(seen["mask"], mask, rtol=0, atol=2e-3)
    assert np.sqrt(np.mean((seen["mask"] - mask) ** 2)) < 1e-4
    np.testing.assert_allclose(seen["expected"], expected, rtol=1e-2, atol=1e-4)
    assert (seen["activations"][activations > 1e-3] > 0).all()
    assert (activations[seen["activations"] > 1e-2] > 0).all()


def test_spectra_are_the_dictionary():
    enhancer, model = Enhancer(), load_model("default")
    spectra = model.spectra()["all layers"].detach().numpy() ** enhancer.power()
    for atom in (0, enhancer.speech_atoms(), enhancer.atoms() - 1):
        found = np.ctypeslib.as_array(enhancer.spectrum(atom), (BINS,))
        np.testing.assert_allclose(found, spectra[:, atom], rtol=1e-4, atol=1e-6)


def test_atoms_that_are_kept_or_silenced_are_heard():
    x = mixture()[0]
    enhancer = Enhancer()
    as_ever = enhancer.process(x)
    for keep in (0, 1):
        enhancer.reset()
        for atom in range(enhancer.atoms()):
            assert enhancer.keep_atom(atom, keep) == 0
        y, late = enhancer.process(x), enhancer.latency()
        if keep:  # all of it; only the network's own gain is left
            assert np.mean(y**2) > 1.5 * np.mean(as_ever**2)
        else:  # nothing, but for rounding
            assert np.abs(y[late:]).max() < 1e-6
    enhancer.reset()
    for atom in range(enhancer.atoms()):
        enhancer.keep_atom(atom, atom < enhancer.speech_atoms())
    np.testing.assert_array_equal(enhancer.process(x), as_ever)


@pytest.mark.parametrize(
    ("program", "check"),
    [
        ("checks", "realtime"),
        ("checks", "instances"),
        ("checks-sanitized", "instances"),
        ("checks-sanitized", "hostile"),
    ],
)
def test_checks_in_c(program, check, tmp_path):
    model, each = model_file(), 250
    if program == "checks-sanitized":  # they take their time
        model, each = tmp_path / "small.drnmf", 10
        export_flat(PriorDRNMF(n_atoms=24, n_units=16, generator=seeded()), model)
    assert b"ok" in run(built() / program, check, model, each).stdout


def test_the_example_reads_a_pipe():
    x = mixture(48000, 2)
    y = run(built() / "drnmf-example", model_file(), 48000, 2, 0.8, 12, input=x.T.tobytes()).stdout
    expected = streamed(x, 48000, strength=0.8, max_attenuation=12)
    y = np.frombuffer(y, np.float32).reshape(-1, 2).T
    assert y.shape == x.shape
    np.testing.assert_allclose(y[:, :-960], expected[:, :-960], rtol=0, atol=1e-4)


def test_one_line_of_cc_and_pkg_config_build_a_program(tmp_path):
    needs("pkg-config")
    run("cmake", "--install", built(), "--prefix", tmp_path)
    pc = next(tmp_path.rglob("drnmf.pc"))
    environment = {"PKG_CONFIG_PATH": str(pc.parent), "PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(pc.parents[1])}
    prefix = f"--define-variable=prefix={tmp_path}"
    flags = run("pkg-config", prefix, "--cflags", "--libs", "drnmf", env=environment).stdout.decode().split()
    run("cc", ROOT / "libdrnmf" / "example.c", *flags, "-o", tmp_path / "program")
    sound = np.zeros(2000, np.float32).tobytes()
    assert run(tmp_path / "program", "-", input=sound, env=environment).stdout == sound


def test_the_line_of_cc_in_the_docs_and_cmake_s_find_package_build_a_program(tmp_path):
    if not os.environ.get("DRNMF_ANYWHERE"):
        pytest.skip("compiles for some seconds: make anywhere")
    (line,) = re.findall(r"^    (cc .* libdrnmf/drnmf\.c -lm)$", (ROOT / "docs/anywhere.md").read_text(), re.MULTILINE)
    done = run(*line.replace("program.c", "libdrnmf/example.c").split(), "-o", tmp_path / "by_hand", cwd=ROOT)
    assert done.stderr == b""
    run("cmake", "--install", built(), "--prefix", tmp_path / "installed")
    (tmp_path / "CMakeLists.txt").write_text(f"""
        cmake_minimum_required(VERSION 3.18)
        project(user C)
        find_package(drnmf REQUIRED)
        add_executable(found "{ROOT / "libdrnmf" / "example.c"}")
        target_link_libraries(found drnmf::drnmf)
    """)
    run("cmake", "-S", tmp_path, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}")
    run("cmake", "--build", tmp_path)
    x = mixture()[0]
    for program in ("by_hand", "found"):
        y = run(tmp_path / program, model_file(), input=x.tobytes()).stdout
        np.testing.assert_allclose(np.frombuffer(y, np.float32), awkward(x), rtol=0, atol=1e-6)


def test_the_command_writes_the_file(tmp_path):
    drnmf("export", "--c", "default", "-o", tmp_path / "model.drnmf")
    assert (tmp_path / "model.drnmf").read_bytes() == model_file().read_bytes()
    save_model(LSTMMask(1, 8, n_features=BINS, generator=seeded()), tmp_path / "lstm")
    error = drnmf("export", "--c", tmp_path / "lstm", "-o", tmp_path / "other", status=2).stderr
    assert "no form for the C library" in error
    assert not (tmp_path / "other").exists()


def test_a_model_that_has_learned_a_noise(tmp_path, noise_dir):
    drnmf("adapt", "default", "--noise", noise_dir / "hum.flac", "-o", tmp_path / "learned")
    drnmf("export", "--c", tmp_path / "learned", "-o", tmp_path / "learned.drnmf")
    x = mixture()[0]
    y = Enhancer(model=tmp_path / "learned.drnmf").enhance(x, [1, 127, 480, 3, 1021, 128])
    np.testing.assert_allclose(y, streamed(x, 16000, tmp_path / "learned"), rtol=0, atol=1e-6)
    assert np.abs(y - awkward(x)).max() > 0.01


def test_other_sizes_than_the_default_s(tmp_path):
    """Panels of any number of atoms and units."""
    x = mixture()[0, :16000]
    for atoms, units in itertools.product((3, 209), (1, 70)):
        sizes = {"n_atoms": atoms, "n_units": units, "n_layers": 2, "n_listening": 1}
        model = PriorDRNMF(**sizes, generator=seeded())
        export_flat(model, tmp_path / "model")
        y = Enhancer(model=tmp_path / "model").enhance(x, [512])
        np.testing.assert_allclose(y, streamed(x, 16000, model), rtol=0, atol=1e-5)


def test_a_model_of_double_precision_is_rounded(tmp_path):
    export_flat(load_model("default").double(), tmp_path / "model")
    x = mixture()[0, :8000]
    expected = Enhancer().enhance(x, [512])
    np.testing.assert_allclose(Enhancer(model=tmp_path / "model").enhance(x, [512]), expected, rtol=0, atol=1e-4)
    with pytest.raises(InputError, match="has no form for the C library"):
        export_flat(LSTMMask(1, 8, n_features=BINS, generator=seeded()), tmp_path / "lstm")

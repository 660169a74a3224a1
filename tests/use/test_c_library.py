"""The C library gives what Python gives, in blocks of any size; it refuses what is damaged, and never allocates."""

import contextlib
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
from drnmf import InputError, LSTMMask, PriorDRNMF, Streamer, adapt, load_model, save_model, stft
from drnmf.engines.flat import _checksum
from drnmf.models.folders import load_ready
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
        "newer": content[:8] + b"\3" + content[9:],
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


def noise(name: str, first: float, last: float, rate: int = 16000, channels: int = 1) -> np.ndarray:
    """(channels, samples); a second channel is softer and later."""
    x = recording(f"noise/{name}").numpy()[round(16000 * first) : round(16000 * last)]
    x = soxr.resample(x, 16000, rate)
    return np.stack([x, 0.5 * np.roll(x, 300)])[:channels].astype(np.float32)


@pytest.mark.parametrize(("name", "seconds", "channels"), [("guitar", 3, 1), ("percussion", 0.5, 2)])
def test_it_learns_a_noise_as_python_does(name, seconds, channels):
    """In float, where Python's are doubles: atoms differ in their sixth digit, as does the sound."""
    x, v = mixture(channels=channels), noise(name, 0, seconds, channels=channels)
    enhancer = Enhancer(channels=channels)
    learned = enhancer.learn(v)
    assert enhancer.code == 0
    expected = streamed(x, 16000, adapt("default", v, 16000))
    np.testing.assert_allclose(awkward(x, channels=channels, model=learned), expected, rtol=0, atol=1e-5)
    assert np.abs(expected - awkward(x, channels=channels)).max() > 0.01


@pytest.mark.parametrize(("name", "rate"), [("guitar", 8000), ("percussion", 44100)])
def test_it_learns_at_other_rates(name, rate):
    """Through filters of 5 ms; Python's are steeper."""
    x, v, model = mixture(rate), noise(name, 3, 6, rate), load_ready("default")
    y = awkward(x, rate=rate, model=Enhancer(rate).learn(v))
    expected, before = (streamed(x, rate, each) for each in (adapt(model, v, rate), model))
    error, change = (np.sqrt(np.mean((y - each)[:, : -rate // 20] ** 2)) for each in (expected, before))
    assert error < 0.02 * change


NO_NOISE = {
    "must last at least 0.3 s": lambda: noise("hum", 0, 0.299),
    "is silent": lambda: np.full(16000, 0.1),
    "nothing but speech": lambda: recording("speech/austen_0920").numpy(),
    "not finite": lambda: np.append(noise("hum", 0, 1)[0], np.nan),
}


@pytest.mark.parametrize(("text", "make"), NO_NOISE.items(), ids=NO_NOISE)
def test_samples_that_hold_no_noise_are_refused_as_in_python(text, make):
    enhancer = Enhancer()
    enhancer.learn(make())
    assert text in enhancer.error()
    with pytest.raises(InputError, match=text.replace("not finite", "NaN or infinite")):
        adapt("default", make(), 16000)


def test_short_samples_are_heard_for_long_enough():
    """Of so short a noise, heard once, some is taken for speech: it is heard there and back again, as in Python."""
    enhancer = Enhancer()
    for name, first in (("percussion", 6), ("hum", 0), ("guitar", 2)):
        v = noise(name, first, first + 0.301)
        enhancer.learn(v)
        with pytest.raises(InputError, match="but speech") if enhancer.code else contextlib.nullcontext():
            adapt("default", v, 16000)


def test_a_stream_goes_on_with_what_it_has_learned():
    """In the middle of the sound, and back: as Python's."""
    x, v = mixture()[0], noise("guitar", 0, 1)
    enhancer, first, streamer = Enhancer(), Enhancer(), Streamer()
    content = enhancer.learn(v)
    learned = Enhancer(model=content)
    parts, expected = [], []
    for block, (model, act) in zip(
        np.split(x, [7000, 20000]),
        [(first, lambda: None), (learned, lambda: streamer.learn_noise(v[0])), (first, streamer.forget_noise)],
        strict=True,
    ):
        assert enhancer.go_on_with(model.pointer) == 0
        act()
        parts.append(enhancer.process(block))
        expected.append(streamer.feed(block))
    late, wanted = enhancer.latency(), np.concatenate(expected)
    y = np.concatenate(parts)[late:][: len(wanted)]
    np.testing.assert_allclose(y, wanted[: len(y)], rtol=0, atol=1e-5)


def test_a_stream_does_not_go_on_with_other_sizes(tmp_path):
    export_flat(PriorDRNMF(n_atoms=24, n_units=16, generator=seeded()), tmp_path / "small")
    small = Enhancer(model=tmp_path / "small")
    assert "sizes" in library().drnmf_error(Enhancer().go_on_with(small.pointer)).decode()


def test_files_from_before_models_could_learn_are_used_as_ever():
    content, origin = model_file().read_bytes(), load_ready("default").network.origin
    extra = sum(array.nbytes for array in origin)
    head = np.frombuffer(content[:40], "<u4").copy()
    head[2], head[9] = 1, head[9] - extra // 4
    old = head.tobytes() + content[40:64]
    numbers = content[80:-extra]
    enhancer = Enhancer(model=old + _checksum(old + numbers) + numbers)
    x = mixture()[0]
    np.testing.assert_array_equal(enhancer.process(x), Enhancer().process(x))
    enhancer.learn(noise("hum", 0, 1))
    assert "too old to learn a noise: export it again" in enhancer.error()


def test_other_sizes_than_the_default_s(tmp_path):
    """Panels of any number of atoms and units."""
    x, v = mixture()[0, :16000], noise("hum", 0, 0.5)
    for atoms, units in itertools.product((3, 209), (1, 70)):
        sizes = {"n_atoms": atoms, "n_units": units, "n_layers": 2, "n_listening": 1}
        model = PriorDRNMF(**sizes, generator=seeded())
        export_flat(model, tmp_path / "model")
        enhancer = Enhancer(model=tmp_path / "model")
        np.testing.assert_allclose(enhancer.enhance(x, [512]), streamed(x, 16000, model), rtol=0, atol=1e-5)
        y = Enhancer(model=enhancer.learn(v)).enhance(x, [512])
        np.testing.assert_allclose(y, streamed(x, 16000, adapt(model, v, 16000)), rtol=0, atol=1e-5)


def test_a_model_of_double_precision_is_rounded(tmp_path):
    export_flat(load_model("default").double(), tmp_path / "model")
    x = mixture()[0, :8000]
    expected = Enhancer().enhance(x, [512])
    np.testing.assert_allclose(Enhancer(model=tmp_path / "model").enhance(x, [512]), expected, rtol=0, atol=1e-4)
    with pytest.raises(InputError, match="has no form for the C library"):
        export_flat(LSTMMask(1, 8, n_features=BINS, generator=seeded()), tmp_path / "lstm")

"""Through the command line, as a person uses it. `drnmf` runs it in this process, `process` in one of its own."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyloudnorm
import pytest
import soundfile
import soxr
from rich.console import Console

from command import listen_to_ctrl_c
from drnmf import cli, enhance
from drnmf.signal import audio
from drnmf.signal.metrics import sdr
from small import AUDIO, recording, save_small_model, small_model, streamed


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> str:
    """A small model's folder."""
    return str(save_small_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def drnmf(monkeypatch, capsys, model) -> Callable[..., tuple[int, str]]:
    """`status, what it says = drnmf("enhance", ...)`, with the small model."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments: object) -> tuple[int, str]:
        options = ["-m", model] if arguments[0] == "enhance" and "-m" not in arguments else []
        monkeypatch.setattr(sys, "argv", ["drnmf", *map(str, arguments), *options])
        capsys.readouterr()
        status = 0
        try:
            cli.main()
        except SystemExit as end:
            status = end.code or 0
        return status, capsys.readouterr().err

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts the command in a process of its own; one that hangs is ended, and whoever waits for it goes on."""
    with ExitStack() as ends:

        def start(*arguments: object, **options) -> subprocess.Popen:
            command = [sys.executable, "-m", "drnmf.cli", *map(str, arguments)]
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            run = subprocess.Popen(command, **pipes, preexec_fn=listen_to_ctrl_c, **options)
            ends.enter_context(run)
            timer = threading.Timer(120, run.kill)
            timer.start()
            ends.callback(timer.cancel)
            ends.callback(run.kill)
            return run

        yield start


def noisy(channels: int = 1, seconds: float = 1.0) -> np.ndarray:
    n = round(16000 * seconds)
    speech, noise = (recording(name) for name in ("speech/austen_0930", "noise/printer_sauna"))
    speech, noise = (np.tile(x, n // len(x) + 1)[:n] for x in (speech, noise))
    return np.float32(np.linspace(1, 0.5, channels)[:, None] * speech + noise)


@pytest.mark.parametrize(
    ("name", "rate", "channels", "subtype"),
    [
        ("a.wav", 16000, 1, "PCM_16"),
        ("a.wav", 48000, 2, "PCM_24"),
        ("a.wav", 44100, 6, "FLOAT"),
        ("a.flac", 44100, 2, "PCM_16"),
        ("a.ogg", 22050, 1, "VORBIS"),
        ("a.mp3", 48000, 2, "MPEG_LAYER_III"),
        ("ä ö.wav", 8000, 1, "PCM_U8"),
    ],
)
def test_real_files_of_several_formats(drnmf, tmp_path, name, rate, channels, subtype):
    source, target = tmp_path / name, tmp_path / f"enhanced {name}"
    audio.write(source, audio.resample(noisy(channels), 16000, rate), rate, subtype=subtype)
    assert drnmf("enhance", source, "-o", target) == (0, "")
    assert audio.info(target) == audio.info(source)
    x, y = (audio.read_array(path)[0] for path in (source, target))
    assert 0.05 * np.linalg.norm(x) < np.linalg.norm(y) < 0.95 * np.linalg.norm(x)  # something is removed, and not all


def test_speech_and_noise_and_strength(drnmf, tmp_path):
    source, speech, noise = AUDIO / "speech/austen_0930.flac", tmp_path / "speech.wav", tmp_path / "noise.wav"
    assert drnmf("enhance", source, "-o", speech, "--removed", noise, "--strength", 0.7) == (0, "")
    x, y, n = (soundfile.read(path, dtype="int16")[0].astype(int) for path in (source, speech, noise))
    assert np.array_equal(y + n, x)
    assert np.abs(n).max() > 10
    assert drnmf("enhance", source, "-o", tmp_path / "same.wav", "--strength", 0)[0] == 0
    assert np.array_equal(soundfile.read(tmp_path / "same.wav", dtype="int16")[0], x)


def test_max_attenuation_of_files_and_folders(drnmf, model, tmp_path):
    source, limit = AUDIO / "noise/percussion.flac", ("--max-attenuation", 3)
    assert drnmf("enhance", source, "-o", tmp_path / "a.flac", *limit) == (0, "")
    assert drnmf("enhance", source, source, "-o", tmp_path / "many", *limit)[0] == 0
    x, y, z = (audio.read_array(path)[0] for path in (source, tmp_path / "a.flac", tmp_path / "many/percussion.flac"))
    np.testing.assert_array_equal(y, z)
    np.testing.assert_allclose(y, enhance(x, 16000, model, max_attenuation=3), rtol=0, atol=2**-15)
    assert np.abs(y - enhance(x, 16000, model)).max() > 0.01


def test_loudness_of_files_and_folders(drnmf, tmp_path):
    (tmp_path / "in").mkdir()
    for name, rate, channels, subtype in [("mono.wav", 16000, 1, "PCM_16"), ("stereo.flac", 44100, 2, "PCM_24")]:
        audio.write(
            tmp_path / "in" / name, audio.resample(0.1 * noisy(channels, 3), 16000, rate), rate, subtype=subtype
        )
    wanted = "--loudness", -17, "--true-peak", -2
    assert drnmf("enhance", tmp_path / "in", "-o", tmp_path / "out", *wanted)[0] == 0
    assert drnmf("enhance", tmp_path / "in/mono.wav", "-o", tmp_path / "a.wav", *wanted) == (0, "")
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "out/mono.wav").read_bytes()
    for name in ("mono.wav", "stereo.flac"):
        assert audio.info(tmp_path / "out" / name) == audio.info(tmp_path / "in" / name)
        y, rate = soundfile.read(tmp_path / "out" / name, always_2d=True)
        assert pyloudnorm.Meter(rate, filter_class="DeMan").integrated_loudness(y) == pytest.approx(-17, abs=0.05)
        assert np.abs(soxr.resample(y, rate, 8 * rate)).max() < 10 ** (-1.95 / 20)


def test_loudness_leaves_what_is_removed_as_it_is(drnmf, tmp_path):
    source = AUDIO / "speech/austen_0930.flac"
    for name, wanted in [("as it is", ()), ("loud", ("--loudness", -18))]:
        outputs = tmp_path / f"{name}.wav", "--removed", tmp_path / f"{name} removed.wav"
        assert drnmf("enhance", source, "-o", *outputs, *wanted) == (0, "")
    assert (tmp_path / "loud removed.wav").read_bytes() == (tmp_path / "as it is removed.wav").read_bytes()
    x, y = (soundfile.read(tmp_path / f"{name}.wav")[0] for name in ("as it is", "loud"))
    assert np.corrcoef(x, y)[0, 1] > 0.99
    assert y.std() > 1.2 * x.std()


def test_loudness_is_refused_for_pipes_and_told_for_silence(drnmf, tmp_path, caplog):
    status, said = drnmf("enhance", "-", "-o", tmp_path / "a.wav", "--loudness", -16)
    assert (status, said.count("\n")) == (2, 1)
    assert "enhance that" in said
    status, said = drnmf("enhance", AUDIO, "-o", tmp_path / "b", "--loudness", 16)
    assert status == 2
    assert "-5" in said
    audio.write(tmp_path / "silence.wav", np.zeros(16000), 16000)
    assert drnmf("enhance", tmp_path / "silence.wav", "-o", tmp_path / "c.wav", "--loudness", -16)[0] == 0
    assert "silence.wav: is silent" in caplog.text
    assert not soundfile.read(tmp_path / "c.wav")[0].any()


def test_separate_channels_of_a_file(drnmf, model, tmp_path):
    x = np.float32([recording("speech/austen_0930", 16000), recording("noise/hum", 16000)])
    audio.write(tmp_path / "two.wav", x, 16000, subtype="FLOAT")
    assert drnmf("enhance", tmp_path / "two.wav", "-o", tmp_path / "a.wav", "--separate-channels") == (0, "")
    expected = np.stack([enhance(channel, 16000, model) for channel in x])
    np.testing.assert_array_equal(audio.read_array(tmp_path / "a.wav")[0], expected)
    np.testing.assert_array_equal(enhance(x, 16000, model, separate_channels=True), expected)


def test_the_old_name_of_removed_works_and_is_said(drnmf, tmp_path):
    source = AUDIO / "speech/austen_0930.flac"
    old = drnmf("enhance", source, "-o", tmp_path / "a.wav", "--noise", tmp_path / "n.wav")
    assert old == (0, "--noise is now called --removed; the old name will go with the next release\n")
    assert drnmf("enhance", source, "-o", tmp_path / "b.wav", "--removed", tmp_path / "r.wav") == (0, "")
    assert (tmp_path / "n.wav").read_bytes() == (tmp_path / "r.wav").read_bytes()


def test_the_model_that_comes_with_the_package(drnmf, tmp_path):
    bundled = Path(cli.__file__).parents[1] / "bundled/demo"
    assert drnmf("enhance", bundled / "noisy.flac", "-o", tmp_path / "a.flac", "-m", "default") == (0, "")
    clean, noisy, enhanced = (
        audio.read_array(p)[0] for p in (bundled / "clean.flac", bundled / "noisy.flac", tmp_path / "a.flac")
    )
    assert sdr(enhanced, clean) - sdr(noisy, clean) > 6.6  # 6.9 as measured: sounds that it has never heard
    np.testing.assert_allclose(enhance(noisy, 16000), enhanced, rtol=0, atol=1e-4)


def test_a_tree_in_another_format_with_one_bad_file_then_again(drnmf, tmp_path):
    tree, out = tmp_path / "in", tmp_path / "out"
    shutil.copytree(AUDIO / "speech", tree / "speech")
    (tree / "speech/broken.flac").write_bytes((AUDIO / "speech/austen_0870.flac").read_bytes()[:5000])
    status, said = drnmf("enhance", tree, "-o", out, "--format", "wav")
    assert status == 1
    assert re.search(r"failed: .*broken\.flac: ", said)
    assert said.endswith("5 enhanced, 1 failed\n")
    assert sorted(p.name for p in out.rglob("*.*")) == sorted(f"{p.stem}.wav" for p in (AUDIO / "speech").iterdir())
    (tree / "speech/broken.flac").unlink()
    assert drnmf("enhance", tree, "-o", out, "--format", "wav") == (
        0,
        "0 enhanced, 5 skipped because they exist (--overwrite does them again)\n",
    )


def test_one_file_without_an_output_is_written_beside_it(drnmf, tmp_path, model):
    source = tmp_path / "my.noisy.wav"
    audio.write(source, noisy(), 16000)
    target = tmp_path / "my.noisy.enhanced.wav"
    assert drnmf("enhance", source, "-m", model) == (0, f"the enhanced sound is {target}\n")
    drnmf("enhance", source, "-m", model, "-o", tmp_path / "named.wav")
    assert target.read_bytes() == (tmp_path / "named.wav").read_bytes()
    assert drnmf("enhance", source, "-m", model, "--format", "flac", "-q") == (0, "")
    assert audio.info(target.with_suffix(".flac")).samples == audio.info(source).samples
    status, said = drnmf("enhance", source, "-m", model)
    assert status == 2
    assert "exists already" in said


@pytest.mark.parametrize("output", ["new/", "new/deep/", "there"])
def test_one_file_into_a_folder_keeps_its_name(drnmf, tmp_path, model, output):
    (tmp_path / "there").mkdir()
    audio.write(tmp_path / "a.wav", noisy(), 16000)
    assert drnmf("enhance", tmp_path / "a.wav", "-m", model, "-o", f"{tmp_path}/{output}") == (0, "1 enhanced\n")
    assert audio.info(tmp_path / output / "a.wav").samples == audio.info(tmp_path / "a.wav").samples


def test_shards_of_a_tree(drnmf, tmp_path):
    for i in (1, 2, 3):
        assert drnmf("enhance", AUDIO / "speech", "-o", tmp_path / "all", "--shard", f"{i}/3")[0] == 0
        assert len(list((tmp_path / "all").iterdir())) == (2, 4, 5)[i - 1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["{text}", "-o", "{out}"], "text.wav: cannot be read as sound"),
        (["{missing}", "-o", "{out}"], "missing.wav: no such file"),
        (["{sound}", "{sound}"], "give -o, the folder to write to"),
        (["{sound}", "-o", "{folder}/no/out.wav"], "no does not exist; make it first"),
        (["{sound}", "-o", "{sound}", "--overwrite"], "is the input itself"),
        (["{sound}", "-o", "{text}"], "exists already"),
        (["{sound}", "-o", "{out}", "--format", "flac"], "-o names the format"),
        (["{sound}", "-o", "{out}", "-m", "{folder}"], "not a model"),
        (["{sound}", "-o", "{out}", "-m", "big"], "drnmf: big: no such model folder; bundled models: default"),
        (["{sound}", "-o", "{out}", "-m", "{newer}"], "upgrade drnmf"),
        (["{sound}", "-o", "{out}", "-m", "{other_rate}"], "sample_rate is 8000"),
        (["{sound}", "{sound}", "-o", "{folder}", "--shard", "3/2"], "a shard is I/N"),
        (["{folder}", "-o", "{folder}2"], "has no sound files"),
        (["-", "--raw"], "--raw input needs --rate"),
        (["-", "{sound}", "-o", "{folder}"], "one stream of sound"),
    ],
)
def test_mistakes_are_one_line_and_status_2(drnmf, tmp_path, model, arguments, reason):
    paths = {name: tmp_path / f"{name}.wav" for name in ("text", "missing", "sound", "out")}
    paths |= {name: tmp_path / name for name in ("folder", "newer", "other_rate")}
    paths["folder"].mkdir()
    paths["text"].write_text("this is not sound")
    audio.write(paths["sound"], noisy(), 16000)
    for name, old, new in [
        ("newer", '"format": 1', '"format": 9'),
        ("other_rate", '"sample_rate": 16000', '"sample_rate": 8000'),
    ]:
        shutil.copytree(model, paths[name])
        config = paths[name] / "config.json"
        config.write_text(config.read_text().replace(old, new))
    before = sorted(tmp_path.rglob("*"))
    status, said = drnmf("enhance", *(argument.format(**paths) for argument in arguments))
    assert status == 2
    assert reason in said
    assert said.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_several_processes(process, tmp_path, model):
    run = process("enhance", AUDIO / "speech", "-o", tmp_path / "out", "-m", model, "--jobs", 2)
    _, said = run.communicate(timeout=60)
    assert (run.returncode, said.decode()) == (0, "5 enhanced\n")
    for path in (AUDIO / "speech").iterdir():
        assert audio.info(tmp_path / "out" / path.name) == audio.info(path)


def test_in_a_pipe_the_first_samples_come_out_before_the_input_ends(process, tmp_path, model):
    audio.write(tmp_path / "a.wav", noisy(2, 2.0), 16000)
    data = (tmp_path / "a.wav").read_bytes()
    data = data[:4] + b"\xff" * 4 + data[8:40] + b"\xff" * 4 + data[44:]  # a pipe does not know its length
    run = process("enhance", "-", "-m", model)
    run.stdin.write(data[:80000])
    run.stdin.flush()
    first = run.stdout.read(44 + 60000)  # would wait for ever if it waited for the end
    assert len(first) == 44 + 60000
    run.stdin.write(data[80000:])
    run.stdin.close()
    rest, said = run.stdout.read(), run.stderr.read()
    assert (run.wait(60), said) == (0, b"")
    assert len(first + rest) == len(data)
    y = np.frombuffer((first + rest)[44:], "<i2").reshape(-1, 2).T / 2**15
    expected = streamed(audio.read(tmp_path / "a.wav")[0].numpy(), 16000, model)
    np.testing.assert_allclose(y, expected, rtol=0, atol=2**-15)


def test_raw_pcm_in_a_pipe(process, tmp_path, model):
    x = (32767 * noisy(2).T).astype(np.int16)
    run = process(
        "enhance", "-", "--raw", "--rate", 16000, "--channels", 2, "-m", model, "--removed", tmp_path / "n.wav"
    )
    out, said = run.communicate(x.astype("<i2").tobytes(), timeout=60)
    assert (run.returncode, said) == (0, b"")
    speech = np.frombuffer(out, "<i2").reshape(-1, 2).astype(int)
    noise = soundfile.read(tmp_path / "n.wav", dtype="int16")[0]
    assert np.array_equal(speech + noise, x)


def test_a_reader_that_goes_away_is_no_traceback(process, tmp_path, model):
    audio.write(tmp_path / "a.wav", noisy(2, 20.0), 16000)
    run = process("enhance", tmp_path / "a.wav", "-o", "-", "-m", model)
    run.stdout.read(100)
    run.stdout.close()
    said = run.stderr.read().decode()
    assert run.wait(60) == 2
    assert said == "drnmf: stdout: cannot be written (Broken pipe)\n"


ODD = [b"\xff\xfe.flac", b"d\xfc\xe4/a.flac", b"[red].flac", b"two\nlines.flac", b" .flac", b"-o.flac", b"$a$.flac"]


def test_names_that_are_not_utf_8_or_look_like_something_else(drnmf, tmp_path, monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True)  # the names also go through the progress bar
    monkeypatch.setattr(cli.terminal, "stderr", console)
    names = [os.fsdecode(name) for name in ODD]
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        audio.write(tmp_path / "in" / name, noisy(seconds=0.2), 16000)
    (tmp_path / "in" / os.fsdecode(b"broken\xff.flac")).write_bytes(b"fLaC and nothing")
    status, _ = drnmf("enhance", tmp_path / "in", "-o", tmp_path / "out", "--jobs", 2)
    assert status == 1
    said = console.file.getvalue()
    assert r"broken\udcff.flac: cannot be read as sound" in said
    assert f"{len(names)} enhanced, 1 failed" in said
    assert {path.name for path in audio_files(tmp_path / "out")} == {Path(name).name for name in names}


def audio_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_names_that_are_not_utf_8_in_scores_manifests_and_pictures(drnmf, tmp_path):
    pytest.importorskip("torch")
    from drnmf.data.folders import Pool
    from drnmf.data.manifests import read_manifest, write_manifest
    from drnmf.pictures.show import draw_file, save

    name = os.fsdecode(b"\xff\xfe $x^$.flac")
    (tmp_path / "in").mkdir(exist_ok=True)
    shutil.copy(AUDIO / "speech/austen_0880.flac", tmp_path / "in" / name)
    manifest = tmp_path / os.fsdecode(b"tr\xe4in.csv")
    write_manifest(manifest, Pool.from_folders(tmp_path / "in", AUDIO / "noise").draw(defaultdict(lambda: 9), seed=0))
    assert [m.speech.name for m in read_manifest(manifest)] == [name]
    (tmp_path / "in" / os.fsdecode(b"broken\xff.flac")).write_bytes(b"fLaC and nothing")
    status, _ = drnmf("score", tmp_path / "in", tmp_path / "in", "--metric", "sdr", "--jobs", 1)
    assert status == 1
    save(draw_file(small_model(), tmp_path / "in" / name, name="$"), tmp_path / "a.png")


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
def test_a_scheduler_s_stop_and_a_terminal_that_goes_away_are_like_ctrl_c(drnmf, tmp_path, monkeypatch, sign):
    def stop(*_: object) -> None:
        assert list(tmp_path.glob(".out*.wav"))
        os.kill(os.getpid(), sign)

    audio.write(tmp_path / "in.wav", noisy(), 16000)
    monkeypatch.setattr(audio.Writer, "write", stop)
    signal.signal(sign, lambda *_: None)  # should the command leave it, it must not end the tests
    assert drnmf("enhance", tmp_path / "in.wav", "-o", tmp_path / "out.wav")[0] == 130
    assert [path.name for path in tmp_path.iterdir()] == ["in.wav"]


def test_nohup_is_respected(drnmf, tmp_path):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    drnmf("enhance", tmp_path / "missing.wav", "-o", tmp_path / "out.wav")
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize(("jobs", "sign"), [(1, signal.SIGTERM), (2, signal.SIGINT)])
def test_ctrl_c_leaves_no_half_written_output(process, tmp_path, model, jobs, sign):
    (tmp_path / "in").mkdir()
    audio.write(tmp_path / "in/a.wav", noisy(2, 600.0), 16000)
    shutil.copy(tmp_path / "in/a.wav", tmp_path / "in/b.wav")
    out = tmp_path / "out"
    run = process("enhance", tmp_path / "in", "-o", out, "-m", model, "--jobs", jobs, start_new_session=True)
    end = time.monotonic() + 60
    while not list(out.glob(".*.wav")) and time.monotonic() < end:  # until it has begun to write
        time.sleep(0.01)
    os.killpg(run.pid, sign)  # as a terminal or a scheduler does: all processes
    said = run.communicate(timeout=60)[1].decode()
    assert run.returncode == 130
    assert said in ("", "stopped\n")
    assert [p for p in out.rglob("*") if p.name != "a.wav"] == []  # one may have been complete

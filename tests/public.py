"""Public data sets in their exact layouts, in small, made of recordings in tests/audio; and stand-ins for DNSMOS."""

from pathlib import Path

import pytest
from torch import Tensor

from drnmf.signal import audio
from drnmf.signal.dnsmos import P808, P835, PIECE

AUDIO = Path(__file__).parent / "audio"
DNS = {158: "clnsp1_train_69005_1_snr15_tl-21_fileid_158", 7: "clnsp36_amazing_0_snr-5_tl-30_fileid_7"}


def sound(speech: str, gain: float, count: int = 12000) -> tuple[Tensor, Tensor]:
    """A piece of an utterance, and the same in noise."""
    clean = audio.read(AUDIO / "speech" / f"{speech}.flac", start=8000, count=count)[0][0]
    noise = audio.read(AUDIO / "noise" / "hum.flac", count=count)[0][0]
    return clean, clean + gain * noise


def voicebank(root: Path) -> Path:
    """VoiceBank+DEMAND's test set: two pairs at 48 kHz, without the log of SNRs."""
    for id, speech, gain in (("p232_001", "austen_0880", 4.0), ("p257_434", "austen_0930", 2.0)):
        for name, x in zip(("clean", "noisy"), sound(speech, gain), strict=True):
            folder = root / f"{name}_testset_wav"
            folder.mkdir(exist_ok=True)
            audio.write(folder / f"{id}.wav", audio.resample(x[None], 16000, 48000), 48000)
    return root


def dns(root: Path) -> Path:
    """DNS's synthetic test set: two pairs in each of its folders."""
    for place in ("no_reverb", "with_reverb"):
        for id, noisy in DNS.items():
            names = {"clean": f"clean_fileid_{id}", "noisy": noisy}
            for (part, name), x in zip(names.items(), sound("austen_0880", id / 99), strict=True):
                folder = root / place / part
                folder.mkdir(parents=True, exist_ok=True)
                audio.write(folder / f"{name}.wav", x, 16000)
    return root


def dnsmos(folder: Path) -> Path:
    """Networks of DNSMOS's shapes whose answers are known: peak, mean and 2; and the mean of the mel spectrum."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    node, tensor = onnx.helper.make_node, onnx.helper.make_tensor

    def save(name: str, shape: tuple[int, ...], nodes: list, constant, width: int) -> None:
        float32 = onnx.TensorProto.FLOAT
        heard = [onnx.helper.make_tensor_value_info("input_1", float32, shape)]
        said = [onnx.helper.make_tensor_value_info("scores", float32, (1, width))]
        graph = onnx.helper.make_graph(nodes, name, heard, said, [constant])
        versions = {"opset_imports": [onnx.helper.make_opsetid("", 13)], "ir_version": 8}
        onnx.save(onnx.helper.make_model(graph, **versions), folder / name)

    p835 = [
        node("ReduceMax", ["input_1"], ["peak"], axes=[1], keepdims=1),
        node("ReduceMean", ["input_1"], ["mean"], axes=[1], keepdims=1),
        node("Concat", ["peak", "mean", "two"], ["scores"], axis=1),
    ]
    save(P835, (1, PIECE), p835, tensor("two", onnx.TensorProto.FLOAT, (1, 1), [2.0]), 3)
    p808 = [
        node("ReduceMean", ["input_1"], ["mean"], axes=[1, 2], keepdims=0),
        node("Reshape", ["mean", "shape"], ["scores"]),
    ]
    save(P808, (1, 900, 120), p808, tensor("shape", onnx.TensorProto.INT64, (2,), [1, 1]), 1)
    return folder


SPEAKERS = {"103": "1240", "1034": "121119", "1040": "133433", "1069": "133709"}


def librispeech(root: Path) -> Path:
    """LibriSpeech: four speakers of train-clean-100, two utterances each, with the transcripts beside them."""
    subset = root / "LibriSpeech" / "train-clean-100"
    names = sorted(path.stem for path in (AUDIO / "speech").glob("*.flac"))
    for number, (speaker, chapter) in enumerate(SPEAKERS.items()):
        folder = subset / speaker / chapter
        folder.mkdir(parents=True)
        (folder / f"{speaker}-{chapter}.trans.txt").write_text(f"{speaker}-{chapter}-0000 HE WAS\n")
        for i in range(2):
            x = audio.read(AUDIO / "speech" / f"{names[number]}.flac", start=8000 + 4000 * i, count=24000)[0]
            audio.write(folder / f"{speaker}-{chapter}-{i:04d}.flac", x, 16000)
    (root / "LibriSpeech" / "SPEAKERS.TXT").write_text(";ID |SEX| SUBSET |MINUTES| NAME\n")
    return root / "LibriSpeech"


ESC50 = {
    "1-100032-A-0.wav": ("dog", "100032", "guitar"),
    "1-100038-A-14.wav": ("chirping_birds", "100038", "hum"),
    "1-100038-B-14.wav": ("chirping_birds", "100038", "percussion"),
    "2-101676-A-10.wav": ("rain", "101676", "printer_sauna"),
}


def esc50(root: Path) -> Path:
    """ESC-50: four clips at 44.1 kHz, two of them from one recording, one filled up with silence."""
    folder = root / "ESC-50-master"
    for part in ("audio", "meta"):
        (folder / part).mkdir(parents=True)
    lines = ["filename,fold,target,category,esc10,src_file,take"]
    for number, (name, (category, recording, noise)) in enumerate(ESC50.items()):
        x = audio.read(AUDIO / "noise" / f"{noise}.flac", start=20000, count=24000)[0]
        x[:, 16000:] *= number != 0
        audio.write(folder / "audio" / name, audio.resample(x, 16000, 44100), 44100)
        fold, _, take, target = name.removesuffix(".wav").split("-")
        lines.append(f"{name},{fold},{target},{category},False,{recording},{take}")
    (folder / "meta" / "esc50.csv").write_text("\n".join(lines) + "\n")
    return folder


def games(root: Path) -> Path:
    """Other noise: two sounds, a copy of one of them, and a silent file."""
    folder = root / "games"
    (folder / "doors").mkdir(parents=True)
    for name, noise in (("wind", "hum"), ("doors/slam", "percussion"), ("doors/slam_again", "percussion")):
        audio.write(folder / f"{name}.flac", audio.read(AUDIO / "noise" / f"{noise}.flac", count=40000)[0], 16000)
    x = audio.read(AUDIO / "noise" / "hum.flac", count=8000)[0]
    audio.write(folder / "silence.wav", 0 * x, 16000)
    return folder

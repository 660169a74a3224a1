"""Tags, chunks and bit rates survive; mutagen, and bytes made by hand, are the oracles."""

import struct
from pathlib import Path

import mutagen
import numpy as np
import pytest
import soundfile
from mutagen.flac import FLAC, Picture
from mutagen.id3 import APIC, CHAP, ID3, TIT2, TXXX

from drnmf import InputError
from drnmf.signal import audio, tags
from drnmf.use.files import enhance_file
from small import AUDIO, small_model

SPEECH = AUDIO / "speech/austen_0930.flac"
MODEL = small_model()


def encoded(path: Path, subtype: str, rate: int = 16000, **options: object) -> Path:
    x = audio.resample(audio.read_array(SPEECH)[0], 16000, rate)
    with soundfile.SoundFile(path, "w", rate, 1, subtype, **options) as file:
        file.write(x.T)
    return path


@pytest.mark.parametrize("rate", [64, 128, 256])
def test_an_mp3_keeps_its_constant_bit_rate(tmp_path, rate):
    source = encoded(
        tmp_path / "a.mp3",
        "MPEG_LAYER_III",
        44100,
        **tags.encoder(tags.BitRate(1000 * rate, True), "MPEG_LAYER_III", 44100, 1),
    )
    assert mutagen.File(source).info.bitrate == pytest.approx(1000 * rate, rel=0.01)
    enhance_file(source, tmp_path / "b.mp3", MODEL)
    assert mutagen.File(tmp_path / "b.mp3").info.bitrate == pytest.approx(1000 * rate, rel=0.01)


@pytest.mark.parametrize(
    ("name", "subtype", "level"), [("a.ogg", "VORBIS", 0.2), ("a.ogg", "VORBIS", 0.8), ("a.opus", "OPUS", 0.9)]
)
def test_ogg_keeps_about_its_bit_rate(tmp_path, name, subtype, level):
    source = encoded(tmp_path / name, subtype, 16000, format="OGG", compression_level=level)
    enhance_file(source, tmp_path / f"b{name}", MODEL, strength=0)
    sizes = [path.stat().st_size for path in (source, tmp_path / f"b{name}")]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.2)


@pytest.mark.parametrize("version", [3, 4])
def test_id3_with_cover_chapters_and_its_version(tmp_path, version):
    source = encoded(tmp_path / "a.mp3", "MPEG_LAYER_III")
    given = ID3()
    for frame in (
        TIT2(encoding=3, text="Größe"),
        TXXX(encoding=3, desc="own", text="x"),
        APIC(encoding=3, mime="image/png", type=3, desc="", data=b"a picture"),
        CHAP(element_id="c1", start_time=0, end_time=1000, sub_frames=[TIT2(encoding=3, text="One")]),
    ):
        given.add(frame)
    given.save(source, v2_version=version)
    enhance_file(source, tmp_path / "b.mp3", MODEL)
    kept = ID3(tmp_path / "b.mp3")
    assert kept.version[1] == version
    assert kept["TIT2"].text == ["Größe"]
    assert kept["TXXX:own"].text == ["x"]
    assert kept["APIC:"].data == b"a picture"
    assert kept["CHAP:c1"].end_time == 1000
    enhance_file(source, tmp_path / "c.flac", MODEL)
    assert FLAC(tmp_path / "c.flac")["title"] == ["Größe"]


@pytest.mark.parametrize(("name", "subtype"), [("a.flac", "PCM_16"), ("a.ogg", "VORBIS"), ("a.opus", "OPUS")])
def test_vorbis_comments(tmp_path, name, subtype):
    source = encoded(tmp_path / name, subtype, format="FLAC" if name == "a.flac" else "OGG")
    file = mutagen.File(source)
    file["title"], file["whatever"] = ["Talk"], ["one", "two"]
    if isinstance(file, FLAC):
        picture = Picture()
        picture.data = b"a picture"
        file.add_picture(picture)
    file.save()
    enhance_file(source, tmp_path / f"b{name}", MODEL, removed=tmp_path / f"n{name}")
    for result in map(mutagen.File, (tmp_path / f"b{name}", tmp_path / f"n{name}")):
        assert (result["title"], result["whatever"]) == (["Talk"], ["one", "two"])
        assert not isinstance(result, FLAC) or result.pictures[0].data == b"a picture"
    if name != "a.flac":
        enhance_file(source, tmp_path / "c.mp3", MODEL)
        assert ID3(tmp_path / "c.mp3")["TIT2"].text == ["Talk"]


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_U8"])
def test_a_broadcast_wave_keeps_its_chunks_and_its_sound(tmp_path, subtype):
    source = encoded(tmp_path / "a.wav", subtype)
    chunks = {b"bext": b"Interview".ljust(602, b"\0"), b"iXML": b"<BWFXML/>", b"LIST": b"INFOINAM\5\0\0\0Talk\0\0"}
    data = source.read_bytes()
    parts = [struct.pack("<4sI", name, len(c)) + c + b"\0" * (len(c) % 2) for name, c in chunks.items()]
    whole = data[:12] + parts[0] + data[12:] + b"\0" * (len(data) % 2) + parts[1] + parts[2]  # before and after
    source.write_bytes(whole[:4] + struct.pack("<I", len(whole) - 8) + whole[8:])
    enhance_file(source, tmp_path / "b.wav", MODEL, strength=0)
    result = (tmp_path / "b.wav").read_bytes()
    assert struct.unpack("<I", result[4:8])[0] == len(result) - 8
    assert all(part in result for part in parts)
    np.testing.assert_array_equal(*(soundfile.read(path)[0] for path in (source, tmp_path / "b.wav")))


def test_broken_tags_are_told_and_the_sound_is_written(tmp_path, monkeypatch, caplog):
    def broken(*_: object) -> None:
        raise struct.error("unpack requires\na buffer")

    monkeypatch.setattr(mutagen, "File", broken)
    enhance_file(SPEECH, tmp_path / "a.flac", MODEL)
    assert caplog.messages == [f"{SPEECH}: its tags could not be kept (unpack requires a buffer)"]
    assert audio.info(tmp_path / "a.flac") == audio.info(SPEECH)


def test_a_form_that_a_format_cannot_hold_is_told_as_ever(tmp_path):
    source = encoded(tmp_path / "a.ogg", "VORBIS", 11000)
    with pytest.raises(InputError, match=r"b\.mp3: cannot be written as MPEG_LAYER_III at 11000 Hz"):
        enhance_file(source, tmp_path / "b.mp3", MODEL)

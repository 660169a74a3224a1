import csv
import io
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from drnmf.errors import InputError
from drnmf.models.base import Separator, State
from drnmf.models.kinds import LSTMMask, OracleMask
from drnmf.signal import audio
from drnmf.signal.metrics import sdr, si_sdr
from drnmf.signal.spectra import stft
from drnmf.use import evaluation
from drnmf.use.evaluation import Example, Failure, Row, Table, evaluate, score_files, score_pair

AUDIO = Path(__file__).parents[1] / "audio"
FAST = ("sdr", "si_sdr")


def mixture(speech: str, noise: str, snr_db: float, samples: int = 24000) -> Example:
    clean = audio.read(AUDIO / "speech" / f"{speech}.flac", count=samples)[0][0]
    v = audio.read(AUDIO / "noise" / f"{noise}.flac", count=samples)[0][0]
    return f"{speech}_{snr_db}", snr_db, clean + v * (clean.norm() / v.norm()) * 10 ** (-snr_db / 20), clean


@pytest.fixture(scope="module")
def mixtures() -> list[Example]:
    return [
        mixture("austen_0870", "printer_sauna", -5.0, 30000),
        mixture("austen_0880", "guitar", 5.0, 24001),
        mixture("austen_0920", "hum", 5.0, 16000),
    ]


@pytest.fixture
def folders(tmp_path: Path, mixtures: list[Example]) -> Path:
    """Noisy files, clean files, and estimates that hold half of the noise: 6.02 dB better."""
    for name in ("estimates", "clean", "noisy"):
        (tmp_path / name / "set").mkdir(parents=True)
    for id, _, noisy, clean in mixtures:
        for name, wave in (("estimates", (noisy + clean) / 2), ("clean", clean), ("noisy", noisy)):
            audio.write(tmp_path / name / "set" / f"{id}.wav", wave, 16000, subtype="FLOAT")
    return tmp_path


class Pass(Separator):
    """The mask of ones: the estimate is the mixture."""

    def __init__(self) -> None:
        super().__init__(257)

    def separate(self, magnitude: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        return torch.ones_like(magnitude), ()


def test_folders_are_scored_by_snr(folders: Path, mixtures: list[Example]) -> None:
    seen = []
    table = score_files(
        folders / "estimates",
        folders / "clean",
        noisy=folders / "noisy",
        metrics=FAST,
        progress=lambda *n: seen.append(n),
    )
    assert seen == [("scoring", 1, 3), ("scoring", 2, 3), ("scoring", 3, 3)]
    assert not table.failures
    assert [row.id for row in table.rows] == [f"set/{m[0]}" for m in mixtures]
    for row, (_, _, noisy, clean) in zip(table.rows, mixtures, strict=True):
        assert row.scores["sdr"] == pytest.approx(sdr((noisy + clean) / 2, clean).item(), abs=1e-4)
        assert row.noisy["si_sdr"] == pytest.approx(si_sdr(noisy, clean).item(), abs=1e-4)
    low, high, overall = table.summary()
    assert [line["snr_db"] for line in (low, high, overall)] == [-5.0, 5.0, "all"]
    assert [line["count"] for line in (low, high, overall)] == [1, 2, 3]
    assert overall["si_sdr_improvement"] == pytest.approx(6.02, abs=0.3)
    assert overall["sdr"] == pytest.approx((low["sdr"] + 2 * high["sdr"]) / 3)


def test_bad_files_among_good_ones_are_reported(folders: Path) -> None:
    (folders / "estimates" / "set" / "garbage.wav").write_bytes(b"this is no sound")
    for name in ("garbage", "silent", "short", "unheard"):
        audio.write(folders / "clean" / "set" / f"{name}.flac", torch.full((8000,), 0.1), 16000)
    audio.write(folders / "estimates" / "set" / "silent.flac", torch.zeros(8000), 16000)
    audio.write(folders / "estimates" / "set" / "short.flac", torch.full((7000,), 0.1), 16000)
    audio.write(folders / "estimates" / "set" / "stray.flac", torch.full((7000,), 0.1), 16000)
    table = score_files(folders / "estimates", folders / "clean", metrics=FAST)
    assert len(table.rows) == 3
    reasons = {failure.id: failure.reason for failure in table.failures}
    assert set(reasons) == {"set/garbage", "set/silent", "set/short", "set/stray", "set/unheard"}
    assert "cannot be read" in reasons["set/garbage"]
    assert "estimate is silent" in reasons["set/silent"]
    assert "7000" in reasons["set/short"]
    assert "8000" in reasons["set/short"]
    assert "no file of that name" in reasons["set/stray"]
    assert "no estimate" in reasons["set/unheard"]
    for form in (table.text(), table.markdown()):
        assert all(f"failed: {id}: {reason}\n" in form for id, reason in reasons.items())
    assert json.loads(table.json())["failures"] == [vars(failure) for failure in table.failures]


def test_two_processes_give_what_one_gives(folders: Path) -> None:
    (folders / "estimates" / "set" / "garbage.wav").write_bytes(b"this is no sound")
    (folders / "clean" / "set" / "garbage.wav").write_bytes(b"neither is this")
    one, two = (
        score_files(folders / "estimates", folders / "clean", noisy=folders / "clean", jobs=jobs) for jobs in (1, 2)
    )
    assert one.failures == two.failures
    for a, b in zip(one.rows, two.rows, strict=True):
        assert (a.id, a.notes) == (b.id, b.notes)
        assert a.scores == pytest.approx(b.scores, rel=1e-6)


def test_a_file_goes_with_a_file_and_else_by_name(folders: Path) -> None:
    id = "austen_0880_5.0"
    row = score_files(folders / "estimates" / "set" / f"{id}.wav", folders / "clean", metrics=FAST)
    (folders / "clean" / "set" / f"{id}.wav").rename(folders / "truth.wav")
    alone = score_files(folders / "estimates" / "set" / f"{id}.wav", folders / "truth.wav", metrics=FAST)
    assert [r.scores for r in row.rows] == [r.scores for r in alone.rows]
    assert not row.failures
    (folders / "flat").mkdir()
    for path in (folders / "noisy" / "set").iterdir():
        path.rename(folders / "flat" / path.name)
    assert len(score_files(folders / "estimates", folders / "flat", metrics=FAST).rows) == 3


def test_what_cannot_be_scored_at_all_is_an_error(folders: Path) -> None:
    estimates, clean = folders / "estimates", folders / "clean"
    with pytest.raises(InputError, match="nowhere: no such folder"):
        score_files(estimates, folders / "nowhere")
    with pytest.raises(InputError, match="unknown metric 'mos'"):
        score_files(estimates, clean, metrics=("mos",))
    with pytest.raises(InputError, match="jobs"):
        score_files(estimates, clean, jobs=0)
    (folders / "empty").mkdir()
    with pytest.raises(InputError, match="has no sound files"):
        score_files(folders / "empty", clean)
    audio.write(folders / "empty" / "other.wav", torch.ones(100), 16000)
    with pytest.raises(InputError, match="nothing to score"):
        score_files(folders / "empty", clean)
    audio.write(folders / "empty" / "other.flac", torch.ones(100), 16000)
    with pytest.raises(InputError, match="which one"):
        score_files(folders / "empty", clean)


def test_other_rates_and_channels_are_scored_at_16_khz_and_said(tmp_path: Path) -> None:
    _, _, noisy, clean = mixture("austen_0880", "guitar", 5.0)
    for name, wave in (("noisy", noisy), ("clean", clean)):
        stereo = torch.stack([wave, wave * 0.5])
        audio.write(tmp_path / f"{name}.wav", audio.resample(stereo, 16000, 48000), 48000, subtype="FLOAT")
    table = score_files(tmp_path / "noisy.wav", tmp_path / "clean.wav", metrics=FAST)
    assert table.rows[0].scores["si_sdr"] == pytest.approx(si_sdr(noisy, clean).item(), abs=0.05)
    assert table.text().count("resampled from 48000 Hz") == 2


def test_metrics_without_their_package_are_left_out_and_said(mixtures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "find_spec", lambda name: None)
    table = evaluate(Pass(), mixtures[:1])
    assert set(table.rows[0].scores) == {"sdr", "si_sdr"}
    assert "pesq left out: pip install pesq\nstoi left out: pip install pystoi" in table.text()
    with pytest.raises(InputError, match="pip install pystoi"):
        evaluate(Pass(), mixtures, metrics=("stoi",))


def test_a_score_that_is_not_defined_is_left_out_of_the_mean_and_said() -> None:
    pytest.importorskip("pystoi")
    _, _, noisy, clean = mixture("austen_0880", "guitar", 5.0)
    rows = [
        score_pair(id, x[:n], y[:n], x[:n], metrics=("stoi", "sdr"))
        for id, n, x, y in (("long", 24000, noisy, clean), ("brief", 2000, noisy, clean))
    ]
    assert rows[1].scores["stoi"] is None
    assert len(rows[1].notes) == 1
    table = Table(tuple(rows))
    assert table.summary()[-1]["stoi"] == rows[0].scores["stoi"]
    assert "brief: STOI not scored: less than 0.4 s" in table.text()
    assert json.loads(table.json())["rows"][1]["scores"]["stoi"] is None
    assert Table(tuple(rows[1:])).text().split("\n")[1].split()[2] == "-"


@pytest.fixture
def table() -> Table:
    rows = (
        Row("a", 0.0, {"sdr": 5.0, "stoi": 0.5}, {"sdr": 1.0, "stoi": 0.25}, loss=0.1, cells=100),
        Row("b", 0.0, {"sdr": 7.0, "stoi": None}, {"sdr": 2.0, "stoi": 0.75}, loss=0.4, cells=300, notes=("why",)),
        Row("c", -6.0, {"sdr": -1.0, "stoi": 0.5}, {"sdr": -6.0, "stoi": 0.5}, loss=0.2, cells=100),
    )
    return Table(rows, (Failure("d", "it is silent"),))


HEAD = ["snr_db", "count", "sdr_noisy", "sdr", "sdr_improvement", "stoi_noisy", "stoi", "stoi_improvement", "loss"]
BODY = [  # worked out by hand
    [-6, 1, -6, -1, 5, 0.5, 0.5, 0, 0.2],
    [0, 2, 1.5, 6, 4.5, 0.25, 0.5, 0.25, 0.325],
    ["all", 3, -1, 11 / 3, 14 / 3, 0.375, 0.5, 0.125, 0.3],
]


def assert_body(body: list[list[str]], tolerance: float) -> None:
    assert [row[0] if row[0] == "all" else float(row[0]) for row in body] == [-6, 0, "all"]
    for row, expected in zip(body, BODY, strict=True):
        assert [float(cell) for cell in row[1:]] == pytest.approx(expected[1:], abs=tolerance)


def test_the_four_forms_say_the_same(table: Table) -> None:
    head, *body = list(csv.reader(io.StringIO(table.csv())))
    assert head == HEAD
    assert_body(body, 1e-12)

    document = json.loads(table.json())
    assert [list(line) for line in document["summary"]] == [HEAD] * 3
    assert_body([list(line.values()) for line in document["summary"]], 1e-12)
    assert [row["id"] for row in document["rows"]] == ["a", "b", "c"]
    assert document["rows"][1]["noisy"]["sdr"] == 2
    assert document["failures"] == [{"id": "d", "reason": "it is silent"}]

    lines = table.markdown().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:5]]
    assert cells[0] == HEAD
    assert cells[1] == ["---", *["--:"] * (len(HEAD) - 1)]
    assert_body(cells[2:], 0.005)
    assert lines[5:] == ["", "- b: why", "- failed: d: it is silent"]

    *tables, last = table.text().split("\n\n")
    tables, said = [*tables, "\n".join(last.splitlines()[:4])], last.splitlines()[4:]
    assert all(len({len(line) for line in block.splitlines()}) == 1 for block in tables)
    cells = [[line.split() for line in block.splitlines()] for block in tables]
    assert {line[0] for lines in cells for line in lines[3:]} == {"all"}
    first, *others = cells
    whole = [sum((lines[i][1:] for lines in others), first[i]) for i in range(4)]
    assert whole[0] == HEAD
    assert_body(whole[1:], 0.005)
    assert said == ["b: why", "failed: d: it is silent"]


def test_an_empty_table_has_all_its_forms() -> None:
    empty = Table((), (Failure("d", "it is silent"),))
    assert empty.csv() == "snr_db,count\nall,0\n"
    assert "all" in empty.text()
    assert json.loads(empty.json())["rows"] == []


def test_a_mask_of_ones_changes_nothing_and_its_loss_is_known(mixtures: list[Example]) -> None:
    table = evaluate(Pass(), mixtures, metrics=FAST)
    squares = [(stft(noisy).abs() - stft(clean).abs()).square().double() for _, _, noisy, clean in mixtures]
    overall = table.summary()[-1]
    assert overall["loss"] == pytest.approx(torch.cat([s.flatten() for s in squares]).mean().item(), rel=1e-5)
    assert overall["sdr_improvement"] == pytest.approx(0, abs=1e-4)
    for row, (id, snr_db, noisy, clean), square in zip(table.rows, mixtures, squares, strict=True):
        assert (row.id, row.snr_db, row.cells) == (id, snr_db, square.numel())
        assert row.noisy["sdr"] == pytest.approx(sdr(noisy, clean).item())


def test_the_input_need_not_be_scored(mixtures: list[Example]) -> None:
    one, other = (evaluate(Pass(), mixtures, metrics=FAST, with_noisy=choice) for choice in (True, False))
    assert [row.scores for row in one.rows] == [row.scores for row in other.rows]
    assert [row.noisy for row in other.rows] == [None] * len(mixtures)
    assert "sdr_noisy" not in other.summary()[-1]


def test_the_oracle_improves_every_score(mixtures: list[Example]) -> None:
    pytest.importorskip("pystoi")
    _, _, noisy, clean = mixtures[0]
    oracle = OracleMask(stft(clean)[None], stft(noisy - clean)[None])
    overall = evaluate(oracle, mixtures[:1], metrics=("sdr", "si_sdr", "stoi"), batch_size=1).summary()[-1]
    assert overall["sdr_improvement"] > 8
    assert overall["stoi_improvement"] > 0.1
    assert overall["loss"] < evaluate(Pass(), mixtures[:1], metrics=()).summary()[-1]["loss"] / 4


def test_batches_and_processes_change_no_score(mixtures: list[Example]) -> None:
    torch.manual_seed(0)
    model = LSTMMask(n_features=257, n_units=8, n_layers=1)
    one = evaluate(model, mixtures, metrics=FAST, batch_size=1)
    many = evaluate(model, iter(mixtures), metrics=FAST, batch_size=3, jobs=2)
    for a, b in zip(one.rows, many.rows, strict=True):
        assert a.scores == pytest.approx(b.scores, abs=1e-3)
        assert a.noisy == pytest.approx(b.noisy, abs=1e-6)
        assert (a.loss, a.cells) == pytest.approx((b.loss, b.cells), rel=1e-5)
    assert model.training


def test_a_bad_mixture_is_reported_and_the_others_are_scored(mixtures: list[Example]) -> None:
    (_, _, noisy, clean), good = mixtures[0], mixtures[1]
    bad: list[Example] = [
        ("nan", 0.0, noisy * float("nan"), clean),
        ("silent", 0.0, noisy, clean * 0),
        ("lengths", 0.0, noisy[1:], clean),
        ("stereo", 0.0, torch.stack([noisy, noisy]), torch.stack([clean, clean])),
    ]
    table = evaluate(Pass(), [bad[0], good, *bad[1:]], metrics=FAST, batch_size=2)
    assert [row.id for row in table.rows] == [good[0]]
    reasons = [failure.reason for failure in table.failures]
    assert [failure.id for failure in table.failures] == ["nan", "silent", "lengths", "stereo"]
    for reason, part in zip(
        reasons, ("noisy input contains NaN", "reference is silent", "29999", "one channel"), strict=True
    ):
        assert part in reason

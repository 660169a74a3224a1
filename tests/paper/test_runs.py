"""The paper's experiments on a corpus of a few clips: the real commands, trainings and scores, only shorter."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from command import drnmf, listen_to_ctrl_c, wait_for_file
from drnmf import DRNMF, InputError, load_model
from drnmf.data.batches import Dataset
from drnmf.data.folders import Pool
from drnmf.data.manifests import write_manifest
from drnmf.data.recordings import scan
from drnmf.errors import DivergedError
from drnmf.paper import runs as reproduce
from drnmf.paper.runs import Cell, Corpus, cell_recipe, choose_cells, is_trained, state, train_cell, train_cells
from drnmf.paper.tables import changes, records, write_report
from drnmf.paper.waspaa2017 import ABLATIONS, PAPER, PUBLISHED, RECIPES, ROWS, ablations, merged, settings
from drnmf.pictures import plots
from drnmf.signal import audio
from drnmf.training.recipe import Recipe
from drnmf.training.run import initial_model
from drnmf.use.evaluation import evaluate

pytestmark = pytest.mark.filterwarnings("ignore:alpha")  # the paper's alpha does not suit dictionaries of a few clips
ROW = {row.id: row for row in ROWS}


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory, speech_dir, noise_dir):
    """Twelve mixtures of clips of one second to train on, three in each other set; there is no unseen.csv."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "voices").mkdir()
    for path in speech_dir.glob("*.flac"):
        audio.write(folder / "voices" / path.name, audio.read(path, start=4000, count=16000)[0], 16000)
    pool = Pool.from_folders(folder / "voices", noise_dir)
    sizes = scan(pool.files)
    for seed, (name, count) in enumerate({"train": 12, "dev": 3, "test": 3, "newhome": 3}.items()):
        write_manifest(folder / f"{name}.csv", pool.draw(sizes, seed=seed, count=count))
    return folder


@pytest.fixture(scope="module")
def done(corpus_folder, tmp_path_factory):
    """Three cells of the 10 % set, trained for two epochs, scored and told by the command."""
    folder = tmp_path_factory.mktemp("runs")
    rows = ["--only", "snmf-n200/", "--only", "lstm-2x54", "--only", "drnmf-k2-n200/"]
    command = ["reproduce", "waspaa2017", "--data", corpus_folder, "-o", folder, "--size", 10, "--epochs", 2]
    return folder, drnmf(*command, *rows).stdout, [*command, *rows]


def cell(row: str, **changes: object) -> Cell:
    return replace(Cell("paper", 10, ROW[row]), **changes)


def test_the_table_has_the_paper_s_rows_twice_and_ablations_once():
    cells = choose_cells()
    assert len(cells) == len({c.id for c in cells}) == 2 * 11
    assert [c.id for c in cells[:2]] == ["paper/100/snmf-n200/2016", "paper/100/snmf-n2000/2016"]
    more = choose_cells("tuned", with_ablations=True, seeds=[7])
    assert len(more) == 22 + 11
    assert {c.size for c in more[22:]} == {10}
    assert [c.id for c in choose_cells(sizes=[10], only=["drnmf-k?-n200/"])] == [
        "paper/10/drnmf-k2-n200/2016",
        "paper/10/drnmf-k5-n200/2016",
    ]
    assert [c.row.id for c in choose_cells(only=["ablation-tied"])] == ["ablation-tied-layers"]
    for pattern in ("n200", "*-n200", "n200/2016"):
        assert {c.row.N for c in choose_cells(sizes=[10], only=[pattern])} == {200}
    assert {c.size for c in choose_cells(only=["10"])} == {10}
    assert len(choose_cells(only=["n200*"])) == 14


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipe": "best"}, "no recipe 'best'; known: paper, tuned"),
        ({"sizes": [50]}, "comes in 100 and 10 %, not 50"),
        ({"only": ["gru", "cnn"]}, "no cell goes by gru or cnn; --list shows them"),
    ],
)
def test_cells_that_there_are_not(arguments, message):
    with pytest.raises(InputError, match=message):
        choose_cells(**arguments)


PARAMETERS = {  # as the authors report them; PyTorch's LSTM has a second bias vector of 4 N for each layer
    "lstm-2x54": 105_071 + 2 * 4 * 54,
    "lstm-2x244": 1_030_181 + 2 * 4 * 244,
    "lstm-5x70": 268_007 + 5 * 4 * 70,
    "lstm-5x250": 2_576_507 + 5 * 4 * 250,
    "drnmf-k2-n200": 103_002,
    "drnmf-k5-n200": 257_205,
    "drnmf-k2-n2000": 1_030_002,
    "drnmf-k5-n2000": 2_572_005,
}


@pytest.mark.filterwarnings("ignore:alpha")
@pytest.mark.parametrize(("row", "count"), PARAMETERS.items())
def test_the_models_have_the_paper_s_size(row, count, corpus_folder):
    recipe = cell_recipe(cell(row), Corpus.open(corpus_folder))
    W = torch.rand(257, 2 * recipe.dictionary.rank_per_source, generator=torch.Generator().manual_seed(0))
    model = initial_model(recipe.model, W, 0)
    assert sum(p.numel() for p in model.parameters()) == count


def test_the_paper_s_settings(corpus_folder):
    corpus = Corpus.open(corpus_folder)
    recipes = {row: cell_recipe(cell(row), corpus) for row in ROW}
    for row, recipe in recipes.items():
        assert (recipe.data.max_frames, recipe.data.subset, recipe.data.fresh) == (500, 10, False)
        assert (recipe.training.batch_size, recipe.training.patience) == (32, 50)
        assert (recipe.dictionary.sparsity, recipe.dictionary.tol) == (1, 1e-4)
        if not row.startswith("lstm"):
            assert (recipe.dictionary.max_iter, recipe.dictionary.max_frames) == (300, 200_000)
        lstm = row.startswith("lstm")
        assert recipe.training.learning_rate == (1e-4 if lstm else None if "snmf" in row else 1e-3)
        assert recipe.training.max_epochs == (1200 if "k5" in row else 400)
        assert recipe.training.gradient_clip == (1 if lstm else None if "snmf" in row else 0)
        if "drnmf" in row:
            assert recipe.model.options["alpha"] == (400 if "n2000" in row else 50)
    assert recipes["deepnmf-n2000"].model.options == {"n_layers": 25, "n_untied": 3}
    assert cell_recipe(cell("lstm-2x54", size=100), corpus).data.subset == 1
    assert cell_recipe(cell("lstm-2x54", seed=3), corpus).training.seed == 3


RATES = {  # of the tuned recipe on 100 % and 10 %, as they were chosen on dev
    "snmf-n200": (None, None),
    "snmf-n2000": (None, None),
    "lstm-2x54": (4e-3, 4e-3),
    "lstm-2x244": (4e-3, 4e-3),
    "lstm-5x70": (2e-3, 4e-3),
    "lstm-5x250": (1e-3, 2e-3),
    "deepnmf-n2000": (2e-3, 2e-3),
    "drnmf-k2-n200": (4e-2, 4e-2),
    "drnmf-k2-n2000": (4e-2, 4e-2),
    "drnmf-k5-n200": (4e-2, 4e-2),
    "drnmf-k5-n2000": (4e-2, 4e-2),
}


def test_how_fast_and_how_long_the_tuned_recipe_trains(corpus_folder):
    corpus = Corpus.open(corpus_folder)
    assert set(RATES) == set(ROW)
    for row, rates in RATES.items():
        for size, epochs, rate in zip((100, 10), (20, 100), rates, strict=True):
            training = cell_recipe(cell(row, recipe="tuned", size=size), corpus).training
            assert (training.learning_rate, training.max_epochs) == (rate, epochs), (row, size)
            if rate is not None:
                assert (training.loss, training.schedule, training.gradient_clip) == ("snr", "cosine", 1), row
    for recipe, expected in (("tuned", (4e-2, 40)), ("paper", (1e-3, 1200))):
        for row in ablations(recipe):
            training = cell_recipe(Cell(recipe, 10, row), corpus).training
            assert (training.learning_rate, training.max_epochs) == expected, row.id


def test_fewer_epochs_can_be_asked_for(corpus_folder):
    corpus = Corpus.open(corpus_folder)
    assert cell_recipe(cell("lstm-2x54"), corpus, epochs=3).training.max_epochs == 3
    with pytest.raises(InputError, match=r"paper/10/lstm-2x54/2016: \[training\] max_epochs must be 1 or more, got 0"):
        cell_recipe(cell("lstm-2x54"), corpus, epochs=0)


def test_what_a_recipe_changes_is_told_with_its_rates():
    assert changes("paper") == []
    (line,) = (line for line in changes("tuned") if line.startswith("LSTM, K = 5, N = 70: "))
    assert line.endswith("on 100 %: rate 0.002 for 20 epochs, on 10 %: rate 0.004 for 100 epochs")
    assert not any("Sparse NMF" in line for line in changes("tuned"))


def test_recipes_change_rows_and_ablations_change_one_thing():
    assert set(RECIPES["tuned"]) == set(PAPER) == set(ROW)
    assert "alpha" not in settings("tuned", ROW["drnmf-k5-n2000"])["model"]  # the paper's 400 is taken away
    assert settings("tuned", ROW["drnmf-k5-n200"])["model"]["n_layers"] == 5
    assert merged({"a": {"x": 1, "y": 2}}, {"a": {"x": None}, "b": {"z": 3}}) == {"a": {"y": 2}, "b": {"z": 3}}
    ids = {recipe: {row.id for row in ablations(recipe)} for recipe in RECIPES}
    assert ids["paper"] ^ ids["tuned"] == {
        f"ablation-{name}" for name in ("alpha-free", "lambda-trained", "lambda-fixed")
    }
    for recipe in RECIPES:
        nothing, *others = ablations(recipe)
        for row in others:
            change = ABLATIONS[row.id.removeprefix("ablation-")]
            assert settings(recipe, row) == merged(settings(recipe, nothing), change) != settings(recipe, nothing)


@pytest.mark.filterwarnings("ignore:alpha")
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_ablation_is_a_model_that_can_be_made(recipe, corpus_folder):
    corpus, W = Corpus.open(corpus_folder), torch.rand(257, 12, generator=torch.Generator().manual_seed(0))
    for row in ablations(recipe):
        made = cell_recipe(Cell(recipe, 10, row), corpus)
        assert isinstance(initial_model(made.model, W, 0), DRNMF), row.id


def test_cells_are_trained_scored_and_told(done, corpus_folder):
    folder, text, _ = done
    lines = [line.split() for line in text.splitlines() if line.startswith("DR-NMF  ")]
    first, second, _, tenth = [line for line in lines if line[1:3] == ["2", "200"]][:4]  # Table 1, in four parts
    scores = json.loads((folder / "paper/10/drnmf-k2-n200/2016/scores/test.json").read_text())["summary"][-1]
    dataset = Dataset(Corpus.open(corpus_folder).items("test"))
    mixtures = [(m.id, m.snr_db, *dataset.waveforms(m)) for m in dataset.items()]
    model = load_model(folder / "paper/10/drnmf-k2-n200/2016")
    expected = evaluate(model, mixtures, metrics=["sdr"]).summary()[-1]
    assert scores["sdr"] == pytest.approx(expected["sdr"], abs=1e-5)
    assert tenth[3:] == [f"{expected['sdr']:.2f}", "11.33"]  # beside the paper's
    assert first[3:] == ["103,002", "-", "0.0320"]
    assert second[3:] == ["-", "10.94", "-", "11.86"]  # of 100 % only the paper knows
    *_, noisy = [line.split() for line in text.splitlines() if line.startswith("noisy")]
    assert noisy[3:] == [f"{expected['sdr_noisy']:.2f}", "-"]
    assert max(len(line) for line in text.splitlines() if not line.startswith("- ")) <= 80
    assert "missing: 100/snmf-n200, 100/snmf-n2000" in text
    told = [path for path in folder.glob("paper/10/*/2016/scores/test.json") if '"sdr_noisy"' in path.read_text()]
    assert len(told) == 1  # the noisy input is scored once


def test_all_forms_of_the_table_and_the_figure_are_written(done):
    folder, text, _ = done
    assert (folder / "table-paper.txt").read_text() == text
    with (folder / "table-paper.csv").open() as file:
        rows = {row["row"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"snmf-n200", "lstm-2x54", "drnmf-k2-n200"}
    assert rows["lstm-2x54"]["P"] == str(PARAMETERS["lstm-2x54"])
    assert rows["snmf-n200"]["P"] == str(257 * 200)
    assert rows["drnmf-k2-n200"]["epochs"] == "2"
    assert float(rows["drnmf-k2-n200"]["newhome_sdr"]) != 0
    found = {record["row"]: record for record in json.loads((folder / "table-paper.json").read_text())}
    assert found["drnmf-k2-n200"]["dev_loss"] == float(rows["drnmf-k2-n200"]["dev_loss"])
    markdown = (folder / "table-paper.md").read_text()
    assert markdown.startswith("## Table 1\n\n| model | K | N | P | 100% dev loss | paper |")
    assert (rows["drnmf-k2-n200"]["paper_dev_sdr"], rows["lstm-2x54"]["paper_dev_loss"]) == ("10.39", "0.0512")
    assert (folder / "learning-curves-paper.png").read_bytes()[1:4] == b"PNG"


def test_speed_is_told_beside_sparse_nmf_of_as_many_atoms(done):
    found = {record["row"]: record for record in records("paper", done[0])}
    sparse, network = found["snmf-n200"], found["drnmf-k2-n200"]
    assert sparse["times_faster"] == 1
    assert network["times_faster"] == pytest.approx(sparse["real_time_factor"] / network["real_time_factor"])
    assert found["lstm-2x54"]["times_faster"] is None
    assert 0 < network["real_time_factor"] < 1


def test_what_is_there_is_kept_and_can_be_listed(done):
    folder, text, command = done
    before = {path: path.stat().st_mtime_ns for path in (folder / "paper").rglob("*") if path.is_file()}
    again = drnmf(*command)
    assert again.stdout == text
    assert {path: path.stat().st_mtime_ns for path in (folder / "paper").rglob("*") if path.is_file()} == before
    lines = drnmf("reproduce", "waspaa2017", "-o", folder, "--size", 10, "--list").stdout.splitlines()
    states = dict(line.split(maxsplit=1) for line in lines)
    assert len(states) == 11
    assert states["paper/10/lstm-2x54/2016"] == "trained, scored on dev, test, newhome"
    assert states["paper/10/lstm-2x244/2016"] == "-"
    assert drnmf("reproduce", "waspaa2017", "-o", folder, "--table").stdout == text


def test_dictionaries_are_made_once_and_shared(done):
    (path,) = (done[0] / "dictionaries").iterdir()
    assert re.fullmatch(r"every10-n200-lambda1-seed2016-[0-9a-f]{10}\.safetensors", path.name)
    W = safetensors.torch.load_file(path)["W"]
    torch.testing.assert_close(load_model(done[0] / "paper/10/snmf-n200/2016").W, W)
    assert not (done[0] / "paper/10/snmf-n200/2016/dictionaries.safetensors").exists()


def test_a_random_dictionary_comes_from_the_seed(corpus_folder, tmp_path):
    corpus = Corpus.open(corpus_folder)
    (row,) = (row for row in ablations("paper") if row.id == "ablation-random-dictionary")
    for seed in (1, 2):
        train_cell(Cell("paper", 10, row, seed), corpus, tmp_path, epochs=1)
    paths = sorted((tmp_path / "dictionaries").iterdir())
    assert [path.name[:34] for path in paths] == [f"every10-n200-lambda1-seed{seed}-random-" for seed in (1, 2)]
    first, second = (safetensors.torch.load_file(path)["W"] for path in paths)
    torch.testing.assert_close(first.norm(dim=0), torch.ones(200))
    assert first.std(0).min() > 0.01  # no two bins alike, as in spectra
    assert not torch.equal(first, second)


def test_the_command_trains_with_several_seeds(corpus_folder, tmp_path):
    command = ["reproduce", "waspaa2017", "--data", corpus_folder, "-o", tmp_path, "--only", "10/lstm-2x54"]
    text = drnmf(*command, "--seed", 7, "--seed", 8, "--seed", 7, "--epochs", 1).stdout
    folders = {path.name: path for path in (tmp_path / "paper/10/lstm-2x54").iterdir()}
    assert set(folders) == {"7", "8"}
    for seed, folder in folders.items():
        assert Recipe.read(folder / "recipe.toml").training.seed == int(seed)
    summaries = [json.loads((path / "scores/test.json").read_text())["summary"][-1] for path in folders.values()]
    first, second = (summary["sdr"] for summary in summaries)
    assert first != second
    assert f"{(first + second) / 2:.2f} ±{abs(first - second) / 2:.2f}" in text


def test_the_paper_s_values_are_those_it_prints():
    """The sentences of its text: best on dev, and the least loss."""
    assert set(PUBLISHED) == set(ROW)
    whole, tenth = ({row: values[size] for row, values in PUBLISHED.items() if size in values} for size in (100, 10))
    assert max(dev for _, dev, _ in whole.values()) == whole["lstm-5x250"][1] == 12.35
    assert min(loss for loss, _, _ in whole.values() if loss is not None) == whole["drnmf-k5-n2000"][0] == 0.0266
    assert max(dev for _, dev, _ in tenth.values()) == tenth["drnmf-k5-n2000"][1] == 11.12
    assert max(dev for row, (_, dev, _) in tenth.items() if "lstm" in row) == 10.59


def test_seeds_are_averaged_and_their_range_is_told(done, tmp_path):
    shutil.copytree(done[0], tmp_path / "runs")
    first = tmp_path / "runs/paper/10/lstm-2x54/2016"
    shutil.copytree(first, first.with_name("7"))
    scores = json.loads((first / "scores/dev.json").read_text())
    scores["summary"][-1]["sdr"] += 1
    (first.with_name("7") / "scores/dev.json").write_text(json.dumps(scores))
    text = write_report("paper", tmp_path / "runs")["txt"]
    assert f"{scores['summary'][-1]['sdr'] - 0.5:.2f} ±0.50" in text


def test_a_cell_that_diverges_is_marked_and_not_run_again(done, corpus_folder, tmp_path, monkeypatch):
    from drnmf.training import run as training

    def diverge(recipe, folder, **_):
        shutil.copytree(done[0] / "paper/10/drnmf-k2-n200/2016", folder)
        (folder / "summary.json").unlink()
        raise DivergedError("the training loss is not a finite number any more (epoch 3, step 1)")

    monkeypatch.setattr(training, "train", diverge)
    mine = cell("drnmf-k2-n200")
    train_cell(mine, Corpus.open(corpus_folder), tmp_path)
    assert is_trained(mine, tmp_path)
    assert state(mine, tmp_path).startswith("diverged, scored on dev")
    text = write_report("paper", tmp_path)["txt"]
    assert "DR-NMF†" in text
    assert "† diverged" in text


def test_stopped_by_ctrl_c_and_continued(corpus_folder, tmp_path):
    mine, folder = cell("lstm-2x54"), tmp_path / "runs"
    command = ["reproduce", "waspaa2017", "--data", corpus_folder, "-o", folder, "--only", mine.id, "--epochs", 60]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as here, or sums would round otherwise
    start = [sys.executable, "-m", "drnmf.cli", *map(str, command)]
    process = subprocess.Popen(start, stderr=subprocess.PIPE, env=one_thread, preexec_fn=listen_to_ctrl_c)
    wait_for_file(folder / mine.id / "last.ckpt", process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert state(mine, folder).startswith("training, epoch ")
    assert "…" in write_report("paper", folder)["txt"]
    train_cell(mine, Corpus.open(corpus_folder), folder, epochs=60)
    assert state(mine, folder) == "trained"
    train_cell(mine, Corpus.open(corpus_folder), tmp_path / "unbroken", epochs=60)
    weights = [load_model(tmp_path / where / mine.id).state_dict() for where in ("runs", "unbroken")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_side_by_side(corpus_folder, tmp_path):
    """One cell that is trained, and one that cannot be."""
    cells = [cell("drnmf-k2-n200"), cell("lstm-2x54")]
    (tmp_path / cells[1].id).mkdir(parents=True)
    (tmp_path / cells[1].id / "recipe.toml").write_text("[data]\n")
    with pytest.raises(InputError, match="paper/10/lstm-2x54/2016: could not be trained; the file log"):
        train_cells(cells, Corpus.open(corpus_folder), tmp_path, epochs=1, jobs=2)
    assert [state(c, tmp_path) for c in cells] == ["trained", "begun"]
    logs = [(tmp_path / c.id / "log").read_text() for c in cells]
    assert "epoch 1/1" in logs[0]
    assert "holds a run of another recipe" in logs[1]


def test_nobody_makes_a_dictionary_that_another_is_making(done, corpus_folder):
    corpus, (first, second, third) = Corpus.open(corpus_folder), map(cell, ("snmf-n200", "drnmf-k2-n200", "lstm-2x54"))
    other = cell("drnmf-k5-n200", seed=1)
    elsewhere = [Path("nowhere"), done[0]]
    nowhere, there = (
        {c: reproduce._dictionaries(cell_recipe(c, corpus), folder) for c in (first, second, third, other)}
        for folder in elsewhere
    )
    assert reproduce._ready([first, second, third, other], [], nowhere) == [first, third, other]
    assert reproduce._ready([second, third, other], [first], nowhere) == [third, other]
    assert reproduce._ready([second, other], [first], there) == [second, other]  # there it is made


def test_a_chime2_tree_is_a_corpus_too(tmp_path, corpus_folder):
    x = 0.1 * np.random.default_rng(0).standard_normal((2, 8000)).astype(np.float32)
    for part in ("isolated", "scaled"):
        for name in ("si_dt_05", "si_et_05"):
            path = tmp_path / part / name / "0dB" / "wsj0" / name / "050" / "050c0101.wav"
            path.parent.mkdir(parents=True)
            audio.write(path, torch.from_numpy(x), 16000)
    corpus = Corpus.open(tmp_path)
    assert corpus.sets() == ["dev", "test"]
    assert [item.snr_db for item in corpus.items("test")] == [0]
    recipe = cell_recipe(Cell("tuned", 10, ROW["drnmf-k2-n200"]), corpus)
    assert (recipe.data.chime2, recipe.data.fresh, recipe.data.subset) == (str(tmp_path), False, 10)
    assert Corpus.open(corpus_folder).sets() == ["dev", "test", "newhome"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["icassp2018", "-o", "out"], "no experiment 'icassp2018'; known: waspaa2017"),
        (["waspaa2017", "-o", "out"], "give --data, the folder of the corpus"),
        (["waspaa2017", "-o", "out", "--data", "nowhere"], "nowhere: has no train.csv, and is no CHiME2 tree either"),
        (["waspaa2017", "-o", "out", "--recipe", "best"], "no recipe 'best'"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in drnmf("reproduce", *arguments, status=2).stderr
    assert list(tmp_path.iterdir()) == []


def test_a_corpus_without_a_test_set(tmp_path):
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"has train.csv but no test.csv; drnmf mix writes one"):
        Corpus.open(tmp_path)


def test_scoring_and_tables_need_no_package_for_training():
    absent = "lightning=None, pydantic=None, typer=None, pystoi=None, matplotlib=None"
    code = f"import sys; sys.modules.update({absent}); import drnmf.paper.tables"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert Path(reproduce.__file__).is_file()


def test_four_panels_share_one_scale():
    curve = ([float("nan"), 0.5, 0.4, 0.3], [0.9, 0.5, 0.4, 0.35])
    figure = plots.learning_panels({f"panel {i}": {"a": curve, "b": curve} for i in range(4)})
    assert [axes.get_title() for axes in figure.axes] == [f"panel {i}" for i in range(4)]
    assert all(axes.get_ylim() == pytest.approx((0.295, 0.355)) for axes in figure.axes)
    solid, dotted, *_ = figure.axes[2].get_lines()
    np.testing.assert_array_equal(solid.get_ydata(), curve[1])
    assert (solid.get_linestyle(), dotted.get_linestyle()) == ("-", ":")
    assert dotted.get_color() == solid.get_color()


def test_a_training_beside_others_ends_with_its_parent(monkeypatch, tmp_path):
    """First of all: a parent that is killed while it trains cannot end it."""

    class Followed(Exception):  # noqa: N818
        pass

    def follow() -> None:
        raise Followed

    monkeypatch.setattr(reproduce, "end_with_parent", follow)
    with pytest.raises(Followed):
        reproduce._train_alone(None, None, tmp_path, None)
    assert list(tmp_path.iterdir()) == []

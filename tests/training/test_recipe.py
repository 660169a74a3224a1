"""Recipes: what they say when they are right, and one line for everything that can be wrong."""

import tomllib
from pathlib import Path

import pytest

from drnmf import InputError
from drnmf.training.recipe import Recipe, folders_recipe
from drnmf.training.sections import DataSettings, EndlessSettings, LossWeights, ModelSettings, TrainingSettings

RECIPES = Path(__file__).parents[2] / "recipes"
DATA = '[data]\ntrain = "a.csv"\n'
MODEL = "[model]\nn_layers = 2\n"


def test_defaults_are_the_papers():
    recipe = Recipe(data=DataSettings(train="train.csv"), model=ModelSettings(options={"n_layers": 5}))
    assert recipe.dictionary.rank_per_source == 100
    assert recipe.dictionary.sparsity == 1
    assert recipe.training.loss == "signal_approximation"
    assert (recipe.training.batch_size, recipe.training.patience) == (32, 50)
    assert recipe.data.max_frames == 500
    assert not recipe.data.fresh


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_that_comes_along_is_right_and_survives_being_written(path):
    recipe = Recipe.from_tables(tomllib.loads(path.read_text()), str(path))
    assert Recipe.from_tables(tomllib.loads(recipe.to_toml()), "copy") == recipe


def test_every_setting_survives_being_written(tmp_path):
    recipe = Recipe(
        data=DataSettings(
            train='/sets/"a" ünd 🎤\\b.csv',
            fresh=True,
            varied=True,
            levels_dbfs=[-40, -20.5],
            in_memory=False,
            workers=0,
        ),
        model=ModelSettings(kind="LSTMMask", options={"n_layers": 2, "n_units": 54}),
        training=TrainingSettings(learning_rate=1e-7, loss="si_sdr", gradient_clip=0, precision="bf16-mixed"),
    )
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.to_toml(), encoding="utf-8")
    assert Recipe.read(path) == recipe


def test_sections_inside_sections_survive_being_written(tmp_path):
    recipe = Recipe(
        data=DataSettings(train="/sets/a.csv", endless=EndlessSettings(snrs_db=[-3.5, 2], clean_share=0.5)),
        model=ModelSettings(kind="LSTMMask", options={"n_layers": 2, "n_units": 54}),
        training=TrainingSettings(loss=LossWeights(pesq=8.0), average=0.99, warmup_steps=3, recurrent_rate=1e-3),
    )
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.to_toml(), encoding="utf-8")
    assert Recipe.read(path) == recipe


def test_a_model_to_start_from_is_a_name_or_lies_beside_the_recipe(tmp_path):
    (tmp_path / "before").mkdir()
    (tmp_path / "first.toml").write_text("")
    beside = (("before", str(tmp_path / "before")), ("first.toml", str(tmp_path / "first.toml")))
    for start, expected in (*beside, ("default", "default")):
        path = tmp_path / "recipe.toml"
        path.write_text(f'[data]\ntrain = "a.csv"\n[model]\nstart = "{start}"\n')
        recipe = Recipe.read(path)
        assert recipe.model.start == expected
        path.write_text(recipe.to_toml())
        assert Recipe.read(path) == recipe


def test_paths_start_from_the_recipe_and_know_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("CORPUS_OF_TEST", "/somewhere")
    path = tmp_path / "recipe.toml"
    path.write_text(f'[data]\ntrain = "sets/train.csv"\nvalidation = "$CORPUS_OF_TEST/dev.csv"\n{MODEL}')
    data = Recipe.read(path).data
    assert data.train == str(tmp_path / "sets" / "train.csv")
    assert data.validation == "/somewhere/dev.csv"


HUGE = "1" + 400 * "0"
COUNTS = ["0", "-1", "8.0", "true", "nan", "'8'", "[8]", "{n = 8}", "2024-01-01", HUGE]
NUMBERS = ["nan", "inf", "-inf", "true", "'0.5'", "[0.5]", "{x = 0.5}", "12:00:00"]
SWITCHES = ["0", "1.0", "'no'", "[true]", "{on = true}"]
TEXTS = ["3", "true", "['a']", "{a = 'a'}", "''"]


def every(keys, values):
    return {key: values for key in keys}


WRONG = {  # section and setting: values that it must refuse
    "data": {
        **every(("train", "validation", "speech", "noise", "rooms", "noisy", "clean", "chime2"), TEXTS),
        **every(("fresh", "varied", "in_memory"), SWITCHES),
        **every(("subset", "max_frames"), COUNTS),
        "workers": ["-1", "1.5", "'all'", "1000000"],
        "held_out": [*NUMBERS, "0", "1", "-0.1", "5e-324"],
        "levels_dbfs": [
            "-30",
            "[-30]",
            "[-30, -20, -10]",
            "[-30, 'loud']",
            "[-30, nan]",
            "[]",
            "{low = -30}",
            "[-1e300, 0]",
        ],
    },
    "dictionary": {
        **every(("rank_per_source", "max_iter", "max_frames"), COUNTS),
        **every(("sparsity", "tol"), [*NUMBERS, "-1", "1e300"]),
        "beta": [*NUMBERS, "1e300", "-1e300"],
        "random": SWITCHES,
    },
    "training": {
        **every(("batch_size", "max_epochs", "patience", "devices", "nodes"), COUNTS),
        "learning_rate": [*NUMBERS, "0", "-1e-3", "'fast'", "1e300"],
        "gradient_clip": [*NUMBERS, "-1"],
        "beta2": [*NUMBERS, "0", "1", "-0.5"],
        "seed": ["-1", "1.5", "'lucky'", "100000000000000000000"],
        **every(("schedule", "precision", "accelerator"), [*TEXTS, "'none'"]),
        "loss": ["3", "true", "['a']", "''", "'none'"],
        **every(("recurrent_rate", "epsilon"), [*NUMBERS, "0", "-1e-3"]),
        "warmup_steps": ["-1", "1.5", "'some'", HUGE],
        "average": [*NUMBERS, "1", "-0.5"],
        "average_share": [*NUMBERS, "0", "1"],
        "validate_every": COUNTS,
    },
    "training.loss": {
        **every(("si_sdr", "pesq", "gain", "limit_db", "objective"), [*NUMBERS, "-1"]),
    },
    "data.endless": {
        **every(
            ("snrs_db", "good_snrs_db", "levels_dbfs"), ["-30", "[-30]", "[-30, nan]", "[9, -6]", "[]", "{low = -30}"]
        ),
        **every(
            ("good_share", "clean_share", "narrow_share", "waiting_share", "sample_share"), [*NUMBERS, "-0.1", "1.1"]
        ),
    },
}


def cases(wrong):
    return [(name, key, value) for name, keys in wrong.items() for key, values in keys.items() for value in values]


def mistake(tmp_path, content):
    """What is said of a recipe that is wrong: one line that begins with the file."""
    path = tmp_path / "recipe.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as error:
        Recipe.read(path)
    name, _, rest = str(error.value).partition(": ")
    assert name == str(path)
    assert "\n" not in rest
    assert len(rest) < 600
    return rest


@pytest.mark.parametrize(("section", "key", "value"), cases(WRONG))
def test_a_wrong_value_is_named_with_file_and_key(section, key, value, tmp_path):
    tables = {"data": "" if key == "train" else 'train = "a.csv"\n', "model": "n_layers = 2\n"}
    tables[section] = tables.get(section, "") + f"{key} = {value}\n"
    said = mistake(tmp_path, "".join(f"[{name}]\n{lines}" for name, lines in tables.items()))
    assert said.startswith(f"[{section}] {key}")
    assert " must " in said


OPTIONS = {  # kind and option: values that it must refuse
    "DRNMF": {
        "n_layers": COUNTS,
        **every(("alpha", "level", "power", "epsilon"), [*NUMBERS, "-1", "0"]),
        "sparsity": [*NUMBERS, "-1"],
        **every(("train_sparsity", "warm_start", "tied"), SWITCHES),
        **every(("sparsity_per", "alpha_per", "alpha_range", "first_layer", "reconstruction"), ["3", "'none'"]),
    },
    "LSTMMask": every(("n_layers", "n_units"), COUNTS),
    "DeepNMF": {
        **every(("n_layers", "n_untied", "context"), COUNTS),
        "sparsity": [*NUMBERS, "-1"],
        "epsilon": [*NUMBERS, "0", "-1"],
        "beta": [*NUMBERS, "1e300"],
    },
    "SistaRNN": {"n_layers": COUNTS, **every(("sparsity", "coupling", "alpha"), [*NUMBERS, "0", "-1"])},
    "SparseNMFMask": {"n_iter": COUNTS, "sparsity": [*NUMBERS, "-1"], "beta": NUMBERS},
    "ISTAMask": {"n_iter": COUNTS, "sparsity": [*NUMBERS, "-1"], "alpha": [*NUMBERS, "0"], "warm_start": SWITCHES},
}
NEEDED = {
    "DRNMF": {"n_layers": "2"},
    "LSTMMask": {"n_layers": "1", "n_units": "4"},
    "DeepNMF": {"n_layers": "3", "n_untied": "2"},
    "SistaRNN": {"n_layers": "2"},
}


@pytest.mark.parametrize(("kind", "key", "value"), cases(OPTIONS))
def test_a_wrong_option_of_a_model_is_named_with_file_and_key(kind, key, value, tmp_path):
    options = {**NEEDED.get(kind, {}), key: value}
    lines = "".join(f"{name} = {given}\n" for name, given in options.items())
    said = mistake(tmp_path, f'{DATA}[model]\nkind = "{kind}"\n{lines}')
    assert said.startswith("[model] ")
    assert key in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[data]\ntrain = 3 3", "not a TOML file"),
        (b"[data\n", "not a TOML file"),
        (b"\xff\xfe[\x00d\x00", "not a TOML file"),
        ('[data]\ntrain = "müll"'.encode("latin-1"), "not a TOML file"),
        (b"\x00", "not a TOML file"),
        (f"{DATA}{MODEL}x = {'[' * 900}{']' * 900}", "not a TOML file: maximum recursion depth"),
        (f"{DATA}{MODEL}x = {'{a=' * 390}1{'}' * 390}", "not a TOML file: maximum recursion depth"),
        (f"{DATA}{MODEL}{'.'.join('a' * 9000)} = 1", "has a line of more than 2000 bytes"),
        (f"{DATA}{MODEL}# {'a ' * 990}\n" * 40, "65536 are the most"),
        (f"{DATA}{MODEL}[training]\nprecision = '{'a' * 1000}'", "[training] precision must be '32-true', "),
        (f"{DATA}{MODEL}[training]\n'{'a' * 1000}' = 1", "[training] has no setting 'aaa"),
        (f'{DATA}{MODEL}["a\\nb"]', "unknown section [a\\nb]"),
        (f"{DATA}{MODEL}[dictionary]\nrank_per_source = 1000000", "[dictionary] rank_per_source gives 2000000 atoms: "),
        (f"{DATA}[model]\nn_layers = 1001", "[model] n_layers must be at most 1000, got 1001"),
        (f"{DATA}[model]\nkind = 'PriorDRNMF'\nn_units = 99999", "weights is too large"),
        (f"{DATA}[model]\nkind = 'LSTMMask'\nn_layers = 9\nn_units = 99999", "weights is too large"),
        (f"[data]\ntrain = '{'a' * 1000}'\n{MODEL}[model.n_layers]", "not a TOML file"),
        ("", "[data] needs exactly one of"),
        ("data = 3", "[data] must be a section, got 3"),
        ("[[data]]\ntrain = 'a'", "[data] must be a section"),
        (f"{DATA}[model]\n[training]\n", "[model] needs n_layers"),
        (f"model = 'DRNMF'\n{DATA}", "[model] must be a section, got 'DRNMF'"),
        (f"training = [1]\n{DATA}{MODEL}", "[training] must be a section, got [1]"),
        (f"{DATA}{MODEL}[date]\n", "unknown section [date]; known: data, "),
        (f"seed = 3\n{DATA}{MODEL}", "unknown section [seed]"),
        (f"{DATA}subsets = 10", "[data] has no setting 'subsets'; known: train, "),
        (f"{DATA}{MODEL}[training]\nlr = 1e-3", "[training] has no setting 'lr'; known: loss, "),
        (f"{DATA}{MODEL}[dictionary.rank]\nspeech = 3", "[dictionary] has no setting 'rank'"),
        (f"{DATA}{MODEL}[training.learning_rate]\nfirst = 1e-3", "[training] learning_rate must be a number, got {"),
        (f"{DATA}[model]\nn_layer = 2", "[model] has no setting 'n_layer'; known: kind, "),
        (f"{DATA}[model]\nkind = 'DRNMFF'", "[model] unknown kind of model 'DRNMFF'; known: DRNMF, "),
        (f"{DATA}[model]\nkind = 3", "[model] kind must be a string, got 3"),
        (f"{DATA}[model]\nstart = 3", "[model] start must be a string, got 3"),
        (f"{DATA}{MODEL}n_atoms = 8", "[model] has no setting 'n_atoms'"),
        (f"{DATA}{MODEL}h0 = [1.0]", "[model] has no setting 'h0'"),
        (f"{DATA}{MODEL}W = [[1.0]]", "[model] has no setting 'W'"),
        (f"{DATA}{MODEL}self = 1", "[model] has no setting 'self'"),
        (f"{DATA}{MODEL}alpha_range = 'weighted'\nalpha = 0.4", "alpha lies above"),
        (f"{DATA}[model]\nkind = 'DeepNMF'\nn_layers = 2\nn_untied = 3", "n_untied <= n_layers"),
        (f"{DATA}[model]\nstart = 'default'\nn_layers = 2", "[model] start names a model that has its own kind"),
        (f"{DATA}[model]\nstart = 'nobody'", "[model] start = 'nobody': no such folder or recipe; bundled: default"),
        (f"[data]\n{MODEL}", "[data] needs exactly one of train, "),
        (f"{DATA}speech = 'b'\nnoise = 'c'\n{MODEL}", "[data] needs exactly one of"),
        (f"[data]\nspeech = 'b'\n{MODEL}", "[data] speech and noise go together"),
        (f"{DATA}clean = 'b'\n{MODEL}", "[data] noisy and clean go together"),
        (f"{DATA}rooms = 'b'\n{MODEL}", "[data] rooms goes with speech"),
        (f"[data]\nspeech = 'a'\nnoise = 'b'\nvalidation = 'c'\n{MODEL}", "[data] validation goes with train"),
        (f"[data]\nspeech = 'a'\nnoise = 'b'\nsubset = 10\n{MODEL}", "[data] subset is for lists"),
        (f"[data]\nchime2 = 'b'\nfresh = true\n{MODEL}", "[data] fresh = true needs"),
        (f"{DATA}{MODEL}[training.loss]\nsdr = 1.0", "[training.loss] has no setting 'sdr'; known: si_sdr, "),
        (f"{DATA}{MODEL}[training.loss]\nsi_sdr = 0", "[training.loss] needs a weight above 0"),
        (f"{DATA}{MODEL}[training.loss]\nobjective = 1", "[training.loss] objective needs [data.endless]"),
        (
            f"{DATA}{MODEL}[training]\nvalidate_every = 3",
            "[training] max_epochs must be a multiple of validate_every, 3",
        ),
        (f"{DATA}{MODEL}[training]\naverage = 0.9", "[training] average needs [data.endless]"),
        (f"{DATA}{MODEL}[training]\naverage_share = 0.2", "[training] average_share needs [data.endless]"),
        (f"{DATA}{MODEL}[training]\nwarmup_steps = 9", "[training] warmup_steps needs [data.endless]"),
        (f"{DATA}endless = true\n{MODEL}", "[data] endless must be a section, got True"),
        (f"{DATA}[data.endless]\nsnr_db = 3\n{MODEL}", "[data.endless] has no setting 'snr_db'; known: snrs_db, "),
        (f"{DATA}[data.endless]\ngood_share = 0.8\nclean_share = 0.3\n{MODEL}", "[data.endless] good_share and clean"),
        (f"[data]\nchime2 = 'b'\n[data.endless]\n{MODEL}", "[data] endless needs speech and noise apart"),
        (f"{DATA}fresh = true\n[data.endless]\n{MODEL}", "[data] endless mixtures are always fresh"),
        (f"{DATA}in_memory = false\n[data.endless]\n{MODEL}", "[data] endless mixtures are made in memory"),
        (f"{DATA}max_frames = 99\n[data.endless]\n{MODEL}", "[data.endless] needs max_frames = 125"),
        (f"{DATA}[data.endless]\n{MODEL}[training]\ndevices = 2", "[data.endless] needs devices = 1"),
        (f"{DATA}varied = true\n{MODEL}", "[data] varied = true needs fresh"),
        (f"{DATA}levels_dbfs = [-40, -20]\n{MODEL}", "[data] levels_dbfs needs fresh"),
        (f"{DATA}fresh = true\nlevels_dbfs = [-20, -40]\n{MODEL}", "[data] levels_dbfs must be [lowest, highest]"),
        (f"[data]\ntrain = '$NOT_SET_ANYWHERE/a'\n{MODEL}", "[data] train = '$NOT_SET_ANYWHERE/a' names"),
        (f"[data]\ntrain = 'a\\u0000b'\n{MODEL}".replace("'", '"'), "[data] train"),
    ],
)
def test_a_mistake_is_one_line(content, message, tmp_path):
    assert message in mistake(tmp_path, content)


def test_a_setting_is_checked_wherever_it_is_made():
    with pytest.raises(InputError, match=r"^\[training\] learning_rate must be a number, got 'fast'$"):
        TrainingSettings(learning_rate="fast")
    with pytest.raises(InputError, match=r"^\[training\] max_epochs must be 1 or more, got 0$"):
        TrainingSettings().replace(max_epochs=0)
    with pytest.raises(ValueError, match="frozen"):
        TrainingSettings().max_epochs = 3


@pytest.mark.parametrize(("name", "reason"), [("none.toml", "No such file"), (".", "not a plain file")])
def test_a_recipe_that_cannot_be_read(name, reason, tmp_path):
    with pytest.raises(InputError, match=rf"{tmp_path / name}: cannot be read \({reason}"):
        Recipe.read(tmp_path / name)


def test_two_folders_are_trained_on_by_the_best_known_recipe(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("DRNMF_CORPUS", "/corpus")
    caplog.set_level("INFO")
    recipe = folders_recipe(tmp_path / "voices", tmp_path / "noises")
    best = Recipe.read(RECIPES / "default-first.toml")
    assert (recipe.model, recipe.dictionary) == (best.model, best.dictionary)
    assert recipe.training == best.training.replace(max_epochs=recipe.training.max_epochs)
    assert recipe.training.max_epochs <= best.training.max_epochs
    assert recipe.data.endless == best.data.endless is not None
    assert recipe.data.speech == str(tmp_path / "voices")
    assert "training by the recipe drnmf/training/default.toml" in caplog.text


def test_a_model_learns_further_from_two_folders(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("DRNMF_CORPUS", "/corpus")
    caplog.set_level("INFO")
    recipe = folders_recipe(tmp_path / "voices", tmp_path / "noises", tmp_path / "rooms", start="default")
    assert recipe.model == ModelSettings(start="default")
    assert recipe.training.loss == Recipe.read(RECIPES / "default.toml").training.loss.replace(objective=0.0)
    assert (recipe.training.learning_rate, recipe.training.gradient_clip) == (5e-4, 1)
    assert recipe.data.rooms == str(tmp_path / "rooms")
    assert "training by the recipe drnmf/training/continue.toml" in caplog.text
    assert Recipe.from_tables(tomllib.loads(recipe.to_toml()), "copy") == recipe

import pytest

from drnmf import InputError
from drnmf.training.recipe import DataSettings, ModelSettings, Recipe, TrainingSettings, folders_recipe


def test_defaults_are_the_papers():
    recipe = Recipe(data=DataSettings(train="train.csv"))
    assert recipe.dictionary.rank_per_source == 100
    assert recipe.dictionary.sparsity == 1
    assert recipe.training.loss == "signal_approximation"
    assert (recipe.training.batch_size, recipe.training.patience) == (32, 50)
    assert recipe.data.max_frames == 500
    assert not recipe.data.fresh


def test_round_trip_through_toml(tmp_path):
    recipe = Recipe(
        data=DataSettings(train="/sets/train.csv", subset=10),
        model=ModelSettings(kind="LSTMMask", options={"n_layers": 2, "n_units": 54}),
        training=TrainingSettings(learning_rate=1e-3, loss="si_sdr"),
    )
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.to_toml())
    assert Recipe.read(path) == recipe


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"varied": True}, "needs fresh"),
        ({"levels_dbfs": [-40.0, -20.0]}, "needs fresh"),
        ({"levels_dbfs": [-40.0], "fresh": True}, "lowest, highest"),
    ],
)
def test_only_fresh_mixtures_can_be_changed(settings, message):
    with pytest.raises(InputError, match=message):
        DataSettings(train="train.csv", **settings)


def test_a_model_to_start_from_is_a_name_or_lies_beside_the_recipe(tmp_path):
    (tmp_path / "before").mkdir()
    for start, expected in (("before", str(tmp_path / "before")), ("default", "default")):
        path = tmp_path / "recipe.toml"
        path.write_text(f'[data]\ntrain = "a.csv"\n[model]\nstart = "{start}"\n')
        recipe = Recipe.read(path)
        assert recipe.model.start == expected
        path.write_text(recipe.to_toml())
        assert Recipe.read(path) == recipe


def test_an_unknown_schedule_is_refused():
    with pytest.raises(InputError, match="schedule must be one of constant, cosine"):
        TrainingSettings(schedule="linear")


def test_paths_start_from_the_recipe_and_know_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("CORPUS_OF_TEST", "/somewhere")
    path = tmp_path / "recipe.toml"
    path.write_text('[data]\ntrain = "sets/train.csv"\nvalidation = "$CORPUS_OF_TEST/dev.csv"\n')
    data = Recipe.read(path).data
    assert data.train == str(tmp_path / "sets" / "train.csv")
    assert data.validation == "/somewhere/dev.csv"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\ntrain = 3 3", "not a TOML file"),
        ("[date]\n", r"unknown section \[date\]"),
        ('[data]\ntrain = "a"\nsubsets = 10', "no setting 'subsets'"),
        ("[data]\n", "exactly one of"),
        ('[data]\ntrain = "a"\nspeech = "b"\nnoise = "c"', "train and speech"),
        ('[data]\nspeech = "b"', "speech and noise go together"),
        ('[data]\nchime2 = "b"\nfresh = true', "fresh mixtures need"),
        ('[data]\ntrain = "a"\nsubset = 0', "subset must be"),
        ('[data]\ntrain = "a"\n[training]\nloss = "mse"', "loss must be one of"),
        ('[data]\ntrain = "a"\n[training]\nbeta2 = 1.0', "beta2 must lie between 0 and 1"),
        ('[data]\ntrain = "$NOT_SET_ANYWHERE/a"', "variable that is not set"),
    ],
)
def test_mistakes_are_named_with_the_file(tmp_path, text, message):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        Recipe.read(path)
    assert str(path) in str(error.value)


def test_missing_recipe(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Recipe.read(tmp_path / "none.toml")


def test_two_folders_make_a_recipe(tmp_path):
    recipe = folders_recipe(tmp_path / "voices", tmp_path / "noises")
    assert recipe.data.fresh
    assert recipe.data.speech == str(tmp_path / "voices")

"""The sounds of the documentation are those of the bundled model."""

import json

import numpy as np
import pytest
from benchmarks import sounds

from drnmf.signal import audio


@pytest.mark.parametrize("name", sounds.EXAMPLES)
def test_sounds_are_the_default_model_s(name):
    made, scores = sounds.made(sounds.EXAMPLES[name])
    stored = json.loads((sounds.SOUNDS / "scores.json").read_text())[name]
    assert stored == {
        "title": sounds.EXAMPLES[name].title,
        **{key: pytest.approx(s, abs=0.02) for key, s in scores.items()},
    }
    for kind, expected in made.items():
        sound = audio.read_array(sounds.SOUNDS / f"{name}-{kind}.mp3")[0][0]
        lost = sound[: len(expected)] - expected
        assert np.linalg.norm(lost) < 0.3 * np.linalg.norm(expected), "python -m benchmarks.sounds makes them anew"


def test_sounds_are_small():
    files = list(sounds.SOUNDS.glob("*.mp3"))
    assert len(files) == sum(3 + example.learned for example in sounds.EXAMPLES.values())
    assert sum(path.stat().st_size for path in files) < 1_000_000

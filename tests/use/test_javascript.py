"""The engine as WebAssembly and its npm package, in Node: the same sound, and the same looks inside."""

import functools
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from drnmf import adapt
from drnmf.signal import BINS
from native import ROOT, Enhancer, model_file, needs, run
from small import streamed
from use.test_c_library import looks, mixture, noise

JS = ROOT / "js"


@functools.cache
def package() -> Path:
    """The package's folder, with the engine and the model in it; compiled if a source is newer."""
    needs("node", "clang", "wasm-ld", "/usr/lib/wasm32-wasi/libc.a")
    sources = [*(ROOT / "libdrnmf").glob("*.[ch]"), *(ROOT / "src/drnmf/engines/csrc").glob("*.h"), JS / "build.sh"]
    built, beside, model = JS / "drnmf.wasm", JS / "default.drnmf", model_file()
    fresh = (
        built.is_file() and beside.is_file() and built.stat().st_mtime > max(path.stat().st_mtime for path in sources)
    )
    if not fresh or beside.read_bytes() != model.read_bytes():
        run("sh", JS / "build.sh", model)
    return JS


def in_node(x: np.ndarray, folder: Path | None = None, **options) -> tuple[np.ndarray, str]:
    """What Node makes of (channels, n), in the same form, flat, and what it says; by the package, or a folder's."""
    script = (folder or package()) / "drnmf.js"
    settings = {"script": script.as_uri(), "rate": 16000, "channels": len(x), "block": 777, **options}
    done = run("node", ROOT / "tests/use/enhance.mjs", json.dumps(settings), input=x.tobytes())
    return np.frombuffer(done.stdout, np.float32), done.stderr.decode()


@pytest.mark.parametrize(("rate", "channels"), [(16000, 1), (48000, 2), (44100, 1)])
def test_the_same_sound_as_in_python(rate, channels):
    x = mixture(rate, channels)
    y = in_node(x, rate=rate, strength=0.9, maxAttenuation=20)[0].reshape(x.shape)
    late, end = Enhancer(rate).latency(), x.shape[1] - rate // 20
    expected = streamed(x, rate, strength=0.9, max_attenuation=20)[:, : end - late]
    np.testing.assert_allclose(y[:, late:end], expected, rtol=0, atol=1e-4)
    assert np.abs(expected - x[:, : end - late]).max() > 0.05


def test_the_same_looks_inside_as_in_c():
    x = mixture()[:, :12800]
    keep = [[3, False], [150, True]]
    output, said = in_node(x, block=128, look=True, keep=keep)
    enhancer = Enhancer()
    for atom, kept in keep:
        enhancer.keep_atom(atom, kept)
    expected = looks(x[0], enhancer)
    sizes = json.loads(said)
    assert sizes == {"atoms": enhancer.atoms(), "speech": enhancer.speech_atoms(), "latency": enhancer.latency()}
    frames = output[x.size :].reshape(100, BINS + 2 * sizes["atoms"])
    for name, found in zip(expected, np.split(frames, [BINS, BINS + sizes["atoms"]], 1), strict=True):
        np.testing.assert_allclose(found, expected[name], rtol=2e-3, atol=2e-3, err_msg=name)


@pytest.mark.parametrize("channels", [1, 2])
def test_it_learns_a_noise_as_python_does(channels):
    x, v = mixture(channels=channels), noise("percussion", 3, 4, channels=channels)
    y = in_node(np.concatenate([v, x], 1), learn=v.shape[1])[0].reshape(x.shape)
    late = Enhancer().latency()
    expected = streamed(x, 16000, adapt("default", v, 16000))[:, :-late]
    np.testing.assert_allclose(y[:, late:], expected, rtol=0, atol=1e-5)
    assert np.abs(expected - streamed(x)[:, :-late]).max() > 0.01


def test_mistakes_are_errors_with_a_text(tmp_path):
    package()
    script = tmp_path / "mistakes.mjs"
    script.write_text(f"""
        import {{ Drnmf }} from {json.dumps((JS / "drnmf.js").as_uri())};
        const told = (run) => Promise.resolve().then(run).then(() => "nothing", (error) => error.message);
        const drnmf = await Drnmf.load();
        console.log(JSON.stringify([
            await told(() => Drnmf.load({{ rate: 7 }})),
            await told(() => Drnmf.load({{ model: new Uint8Array(100) }})),
            await told(() => (drnmf.strength = 2)),
            await told(() => drnmf.keep(5000, true)),
            await told(() => drnmf.spectrum(-1)),
            await told(() => drnmf.process([new Float32Array(3), new Float32Array(3)])),
            await told(() => drnmf.learn(new Float32Array(4799))),
            await told(() => drnmf.learn(new Float32Array(16000))),
        ]));
    """)
    told = json.loads(run("node", script).stdout)
    parts = ["sample rate", "not a model", "strength is from 0 to 1", "an atom", "atoms", "made for 1 channels"]
    parts += ["at least 0.3 s", "is silent"]
    for text, part in zip(told, parts, strict=True):
        assert part in text


def test_what_npm_packs_is_complete_and_small(tmp_path):
    needs("npm")
    run("npm", "pack", "--pack-destination", tmp_path, cwd=package())
    with tarfile.open(next(tmp_path.glob("drnmf-*.tgz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "package"
    names = {path.name for path in folder.iterdir()}
    assert names == {"LICENSE", "package.json", *json.loads((JS / "package.json").read_text())["files"]}
    assert (folder / "drnmf.wasm").stat().st_size < 200e3
    assert (folder / "default.drnmf").stat().st_size < 4e6
    x = mixture()[:, :3200]
    np.testing.assert_array_equal(in_node(x, folder)[0], in_node(x)[0])


def test_typescript_takes_the_types_and_they_are_those_of_the_code(tmp_path):
    """Without the browser's types, as in projects for Node."""
    needs("tsc")
    for folder, names in {
        "node_modules/drnmf": ("package.json", "drnmf.d.ts"),
        "code": ("drnmf.js", "engine.js"),
    }.items():
        (tmp_path / folder).mkdir(parents=True)
        for name in names:
            shutil.copy(JS / name, tmp_path / folder)
    shutil.copy(ROOT / "tests/use/types.ts", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    modules = "--module", "node16", "--moduleResolution", "node16"
    options = "--noEmit", "--strict", "--allowJs", "--skipDefaultLibCheck", "--target", "es2022", "--lib", "es2022"
    run(shutil.which("tsc"), *options, *modules, "types.ts", cwd=tmp_path)

"""Commands that look into a model and hand it on: `show`, `export` and `app`."""

from pathlib import Path
from typing import Annotated

import typer

from drnmf.cli import terminal
from drnmf.cli.base import ModelName, Quiet, app


@app.command(epilog="Examples: `drnmf show model`  ·  `drnmf show model noisy.wav -o heard.png`")
def show(
    model: ModelName,
    file: Annotated[Path | None, typer.Argument(help="Sound file, to draw what the model hears in it.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Picture: .png, .pdf or .svg.")] = Path("show.png"),
    start: Annotated[float, typer.Option(help="Second of the file at which to begin.")] = 0.0,
    seconds: Annotated[float, typer.Option(help="Draw at most this many seconds.")] = 60.0,
    size: Annotated[
        tuple[int, int] | None, typer.Option(help="Width and height in pixels, such as --size 1920 1080.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Draw the dictionaries of a model, layer by layer, or what it hears in a sound file."""
    from drnmf.models.folders import load_ready
    from drnmf.pictures import show as pictures

    loaded, name = load_ready(model), Path(model).name
    if file is None:
        figure = pictures.draw_model(loaded, name=name)
    else:
        figure = pictures.draw_file(loaded, file, name=name, start=start, seconds=seconds)
    pictures.save(figure, output, size=size)
    terminal.say(f"the picture is {output}")


@app.command(epilog="Examples: `drnmf export model -o model.onnx`  ·  `drnmf export --c default -o default.drnmf`")
def export(
    model: ModelName,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write. [default: model.onnx or model.drnmf]")
    ] = None,
    c: Annotated[bool, typer.Option("--c", help="One flat file for the C library, plugin and browser.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as an ONNX network that takes one frame: magnitude and state in, mask and next state out."""
    from drnmf.models.folders import load_model, load_ready

    output = output or Path("model.drnmf" if c else "model.onnx")
    if c:
        from drnmf.use.flat import export_flat

        export_flat(load_ready(model), output)
    else:
        from drnmf.use.export import export as run

        run(load_model(model), output)
    terminal.say(f"{output}: {output.stat().st_size / 1e6:.1f} MB")


@app.command("app", epilog="Examples: `drnmf app`  ·  `drnmf app my_model --save site/`")
def page(
    model: ModelName = "default",
    port: Annotated[int, typer.Option(help="Where to serve it on this machine.", min=0, max=65535)] = 8000,
    save: Annotated[
        Path | None, typer.Option(help="Write the page into this folder, for any web server, instead of serving it.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open it in the browser.")] = True,
    quiet: Quiet = False,
) -> None:
    """Enhance files and the microphone in the browser, see which atoms are heard, and silence any of them."""
    import webbrowser

    from drnmf.models.folders import load_ready
    from drnmf.use import page as pages

    loaded = load_ready(model)
    if save is not None:
        pages.write_page(loaded, save)
        terminal.say(f"the page is {save}/index.html; a web server must serve it")
        return
    with pages.server(pages.page(loaded), port) as server:
        address = f"http://localhost:{server.server_port}"
        terminal.say(f"{address}  (Ctrl-C ends it; nothing leaves this machine)")
        if browser:
            webbrowser.open(address)
        server.serve_forever()

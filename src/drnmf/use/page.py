"""The page in the browser: `bundled/page` with a model in it, as a folder for any web server, or served from here."""

import functools
import http.server
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from drnmf.errors import InputError
from drnmf.files import make_folder, write_atomically
from drnmf.use.flat import flat_model

if TYPE_CHECKING:
    from drnmf.models.base import Separator
    from drnmf.models.packed import PackedModel

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".wasm": "application/wasm"}


def page(model: "Separator | PackedModel") -> dict[str, bytes]:
    """All files of the page by their names, the model among them."""
    return {**_files(resources.files("drnmf") / "bundled" / "page"), "drnmf/default.drnmf": flat_model(model)}


def _files(folder: Traversable) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= {f"{entry.name}/{name}": content for name, content in _files(entry).items()}
        else:
            found[entry.name] = entry.read_bytes()
    return found


def write_page(model: "Separator | PackedModel", folder: Path) -> None:
    """Write the page into a new or empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there and not empty; name a new folder")
    for name, content in page(model).items():
        make_folder((folder / name).parent)
        write_atomically(folder / name, content)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers with files from memory."""

    def __init__(self, *arguments: object, files: dict[str, bytes]) -> None:
        self._files = files
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """One file, or none."""
        name = self.path.partition("?")[0].lstrip("/") or "index.html"
        content = self._files.get(name)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", _TYPES.get(Path(name).suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def server(files: dict[str, bytes], port: int) -> http.server.ThreadingHTTPServer:
    """A server of these files for this machine alone; port 0 is any that is free."""
    try:
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(_Handler, files=files))
    except OSError as error:
        raise InputError(f"port {port} cannot be used ({error.strerror}); try another --port") from None

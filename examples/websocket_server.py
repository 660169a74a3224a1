"""Enhance sound for clients that send it as it comes: websocket_server.py [PORT]; needs websockets.

A client connects to ws://HOST:PORT/?rate=48000 and gets {"rate": ..., "latency": ...}, the latency in samples. Then it
sends blocks of mono float32 (little-endian, full scale 1) of any size as binary messages, and for each gets what is
done. To the text "end" it gets the rest, and "end"; the next block starts a new stream. websocket_client.py is one.
"""

import asyncio
import json
import sys
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import numpy as np
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from drnmf import InputError, Streamer, load_model

MODEL = load_model("default")  # all clients share it; each has a Streamer
LARGEST = 2**20  # bytes of a message


def rate_of(path: str) -> int:
    """The sample rate that a client asks for."""
    rate = parse_qs(urlsplit(path).query).get("rate", ["16000"])[0]
    if not rate.isdecimal():
        raise InputError(f"rate must be a number of Hz, got {rate!r}")
    return int(rate)


async def enhance(client: ServerConnection) -> None:
    """Serve one client until it goes. What it does wrong is the reason for which the connection is closed."""
    try:
        stream = Streamer(MODEL, rate_of(client.request.path))
        await client.send(json.dumps({"rate": stream.sample_rate, "latency": stream.latency}))
        async for message in client:
            if message == "end":
                await client.send(np.asarray(stream.flush(), "<f4").tobytes())
                await client.send("end")
            elif isinstance(message, bytes) and len(message) % 4 == 0:
                # In a thread: the network runs outside Python's lock, so that many clients use many cores.
                done = await asyncio.to_thread(stream.feed, np.frombuffer(message, "<f4").astype(np.float32))
                await client.send(done.astype("<f4").tobytes())
            else:
                raise InputError("send float32 samples as binary messages, or the text 'end'")
    except InputError as error:
        await client.close(1007, str(error)[:100])
    except ConnectionClosed:
        pass


def health(connection: ServerConnection, request: object) -> object:
    """Answer a load balancer that asks over HTTP whether the server is there."""
    return connection.respond(HTTPStatus.OK, "ok\n") if request.path == "/health" else None


async def main(port: int) -> None:
    """Serve for ever."""
    async with serve(enhance, "127.0.0.1", port, max_size=LARGEST, process_request=health) as server:
        print(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8765))

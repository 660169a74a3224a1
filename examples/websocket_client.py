"""Send a sound file to websocket_server.py as if it were spoken now: websocket_client.py URL IN OUT [SPEED]."""

import asyncio
import json
import sys

import numpy as np
import soundfile
from websockets.asyncio.client import connect

BLOCK = 0.01  # seconds


async def main(url: str, source: str, target: str, speed: float = 1.0) -> None:
    """Send and receive at once: nobody waits for an answer before speaking on."""
    samples, rate = soundfile.read(source, dtype="float32", always_2d=True)
    size, enhanced = round(BLOCK * rate), []
    async with connect(f"{url}/?rate={rate}", max_size=None) as server:
        about = json.loads(await server.recv())
        print(f"{1000 * about['latency'] / rate:.0f} ms late")

        async def speak() -> None:
            for start in range(0, len(samples), size):
                await server.send(samples[start : start + size, 0].astype("<f4").tobytes())
                await asyncio.sleep(BLOCK / speed)
            await server.send("end")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(speak())
            while (message := await server.recv()) != "end":
                enhanced.append(np.frombuffer(message, "<f4"))
    soundfile.write(target, np.concatenate(enhanced), rate)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], *map(float, sys.argv[4:])))

"""Microphone to speakers until Ctrl-C, enhanced; needs sounddevice: pip install 'drnmf[live]'."""

from contextlib import suppress

import numpy as np
import sounddevice

from drnmf import Streamer

RATE, BLOCK = 48000, 480  # 10 ms

stream = Streamer(sample_rate=RATE)
print(f"{1000 * (stream.latency + 2 * BLOCK) / RATE:.0f} ms late, and what the sound card adds; Ctrl-C ends")
waiting = np.zeros(stream.latency, np.float32)  # silence to play until the first samples are done
card = sounddevice.Stream(RATE, BLOCK, channels=1, dtype="float32", latency="low")
with suppress(KeyboardInterrupt), card:
    while True:
        heard, _ = card.read(BLOCK)
        waiting = np.concatenate([waiting, stream.feed(heard[:, 0])])
        card.write(np.ascontiguousarray(waiting[:BLOCK, None]))
        waiting = waiting[BLOCK:]

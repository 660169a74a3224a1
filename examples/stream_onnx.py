"""Enhance a wav file (16 kHz, mono, 16 bit) hop by hop with numpy and onnxruntime: stream_onnx.py MODEL.onnx IN OUT."""

import sys
import wave

import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1  # one frame is too little work to share
network = onnxruntime.InferenceSession(sys.argv[1], options)
about = network.get_modelmeta().custom_metadata_map
WINDOW, HOP = int(about["window"]), int(about["hop"])
window = np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
state = {i.name: np.zeros(i.shape, np.float32) for i in network.get_inputs()[1:]}
heard = made = np.zeros(WINDOW, np.float32)

with wave.open(sys.argv[2], "rb") as source, wave.open(sys.argv[3], "wb") as target:
    assert source.getparams()[:3] == (1, 2, int(about["sample_rate"])), f"{sys.argv[2]}: not 16 kHz, mono, 16 bit"
    target.setparams(source.getparams())
    length = source.getnframes()
    for t in range(-4, -(-length // HOP)):  # the hop read at t is complete at t + 3; before the first one, silence
        hop = np.frombuffer(source.readframes(HOP if t > -4 else 0), np.int16).astype(np.float32) / 2**15
        heard = np.concatenate([heard[HOP:], hop, np.zeros(HOP - len(hop), np.float32)])
        spectrum = np.fft.rfft(heard * window)
        mask, *after = network.run(None, {"magnitude": np.abs(spectrum)[None].astype(np.float32), **state})
        state = dict(zip(state, after, strict=True))
        made = np.concatenate([made[HOP:], np.zeros(HOP, np.float32)]) + np.fft.irfft(mask[0] * spectrum) * window / 2
        if t >= 0:
            ready = made[: min(HOP, length - t * HOP)]
            target.writeframes((ready * 2**15).round().clip(-(2**15), 2**15 - 1).astype(np.int16).tobytes())

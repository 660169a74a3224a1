/**
 * Speech from noise.
 *
 *     import { Drnmf } from "drnmf";
 *     const denoise = await Drnmf.load({ rate: 48000 });
 *     const clean = denoise.process(block);              // a Float32Array of any length, `denoise.latency` late
 *
 *     const node = await Drnmf.node(audioContext);       // an AudioWorkletNode
 *     microphone.connect(node).connect(audioContext.destination);
 */

import { Drnmf as Engine } from "./engine.js";

const ENGINE = new URL("./drnmf.wasm", import.meta.url);
const MODEL = new URL("./default.drnmf", import.meta.url);
const WORKLET = new URL("./worklet.js", import.meta.url);
const fetched = new Map();

async function read(url) {
  if (new URL(url, import.meta.url).protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return readFile(new URL(url, import.meta.url));
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`drnmf: ${url} cannot be loaded (${response.status})`);
  return new Uint8Array(await response.arrayBuffer());
}

/** A file's bytes, loaded once; what failed is tried again. */
function bytes(source) {
  if (typeof source !== "string" && !(source instanceof URL)) return source;
  const key = String(source);
  if (!fetched.has(key)) {
    fetched.set(key, read(source).catch((error) => (fetched.delete(key), Promise.reject(error))));
  }
  return fetched.get(key);
}

export class Drnmf extends Engine {
  /** Load engine and model, from this package's folder unless told otherwise, and make an instance. */
  static async load({ engine = ENGINE, model = MODEL, ...options } = {}) {
    const [code, weights] = await Promise.all([bytes(engine), bytes(model)]);
    return new Drnmf(await WebAssembly.compile(code), weights, options);
  }

  /** An AudioWorkletNode with the parameters `strength` and `maxAttenuation`. */
  static async node(context, { engine = ENGINE, model = MODEL, worklet = WORKLET, channels = 1, look = false } = {}) {
    const [code, weights] = await Promise.all([bytes(engine), bytes(model), context.audioWorklet.addModule(worklet)]);
    return new AudioWorkletNode(context, "drnmf", {
      numberOfInputs: 1,
      numberOfOutputs: 1,
      outputChannelCount: [channels],
      channelCount: channels,
      channelCountMode: "explicit",
      processorOptions: { engine: code, model: weights, channels, look },
    });
  }
}

/** A whole file through the engine, with what can be seen of every frame; the page stays free to answer. */

import { Drnmf } from "./drnmf/engine.js";

const ROWS = 128; // of a picture, from 0 to 8 kHz
const AHEAD = 30; // seconds that are heard before a file begins: the network then knows its voices and its noise
const BACK = 0.75; // how far back that goes, so that it leads to the first sample without a step
const MOST = 2 ** 22; // samples of all channels that are heard so
let newest = 0; // only this is finished
let compiled = null;

onmessage = async ({ data }) => {
  const { id, engine, model } = data;
  compiled ??= new WebAssembly.Module(engine);
  if (data.noise) return learn(data);
  newest = id;
  if (data.channels) await enhance(data);
  else await warmUp(model);
};

/** Browsers compile quickly first and well later, where much is done: one second of noise before it matters. */
async function warmUp(model) {
  const drnmf = new Drnmf(compiled, model);
  for (let i = 0; i < 125 && newest === 0; i++) {
    drnmf.process(Float32Array.from({ length: 128 }, () => Math.random() - 0.5));
    if (i % 16 === 0) await new Promise((resolve) => setTimeout(resolve));
  }
}

/** A model that knows a noise, or why there is none. */
function learn({ id, model, noise, rate }) {
  try {
    const learned = new Drnmf(compiled, model, { rate, channels: noise.length }).learn(noise);
    postMessage({ id, learned }, [learned.buffer]);
  } catch (error) {
    postMessage({ id, refusal: error.message.replace("drnmf: ", "") });
  }
}

async function enhance({ id, model, channels, rate, strength, maxAttenuation, changed }) {
  const drnmf = new Drnmf(compiled, model, { rate, channels: channels.length, strength, maxAttenuation });
  for (const [atom, kept] of changed) drnmf.keep(atom, kept);
  const n = channels[0].length;
  const most = Math.floor((MOST / channels.length) * Math.min(1, rate / 16000));
  const ahead = Math.min(n, Math.round(AHEAD * rate), most);
  const back = Math.min(ahead, Math.round(BACK * rate));
  drnmf.process(channels.map((channel) => channel.slice(0, ahead)));
  drnmf.process(channels.map((channel) => channel.slice(0, back).reverse()));
  const late = drnmf.latency;
  const hop = Math.floor((128 * rate) / 16000); // so that a block completes one frame at most
  const outputs = channels.map(() => new Float32Array(n));
  const frames = Math.ceil((n + late) / hop) + 1;
  const N = drnmf.atoms;
  const mask = new Uint8ClampedArray(ROWS * frames); // frame after frame, as all that follows: many small arrays are slow
  const activations = new Float32Array(N * frames);
  const expected = new Float32Array(N * frames);
  const started = performance.now();
  let told = started;
  const unseen = drnmf.frames;
  let seen = 0;
  let count = 0;
  const block = channels.map(() => new Float32Array(hop));
  for (let at = 0; at < n + late; at += hop) {
    block.forEach((part, c) => {
      part.fill(0);
      if (at < n) part.set(channels[c].subarray(at, Math.min(n, at + hop)));
    });
    drnmf.processInto(block, block);
    block.forEach((part, c) => {
      const skip = Math.max(0, late - at);
      if (skip < hop) outputs[c].set(part.subarray(skip, Math.min(hop, n + late - at)), at + skip - late);
    });
    if (drnmf.frames - unseen > seen) {
      shade(drnmf.mask, mask, ROWS * seen, (x) => 255 * x);
      activations.set(drnmf.activations, N * seen);
      expected.set(drnmf.expected, N * seen);
      seen = drnmf.frames - unseen;
    }
    if (++count % 64 === 0 && performance.now() - told > 50) {
      told = performance.now();
      postMessage({ progress: at / frames / hop });
      await new Promise((resolve) => setTimeout(resolve)); // a newer message may be there
      if (newest !== id) return;
    }
  }
  const seconds = (performance.now() - started) / 1000;
  const before = spectrogram(channels, rate);
  const after = spectrogram(outputs, rate);
  const pictures = { before, mask: mask.slice(0, ROWS * seen), after };
  const looks = { frames: seen, activations, expected };
  const all = [...outputs, before, pictures.mask, after, activations, expected].map((array) => array.buffer);
  postMessage({ id, outputs, pictures, ...looks, speed: n / rate / seconds }, all);
}

/** A column of a picture: the loudest of the bins that a row stands for. */
function shade(bins, picture, at, shadeOf) {
  for (let row = 0; row < ROWS; row++) picture[at + row] = shadeOf(Math.max(bins[2 * row], bins[2 * row + 1]));
}

/** Columns of a picture, in dB, of all channels together; bins are those of 512 points at 16 kHz, as near as a power of 2 comes. */
function spectrogram(channels, rate) {
  const size = 2 ** Math.round(Math.log2((512 * rate) / 16000));
  const hop = (128 * rate) / 16000;
  const window = Float32Array.from({ length: size }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / size));
  const turns = Float32Array.from({ length: size }, (_, i) => Math.cos((2 * Math.PI * i) / size));
  const count = Math.ceil(channels[0].length / hop);
  const picture = new Uint8ClampedArray(ROWS * count);
  const re = new Float32Array(size);
  const im = new Float32Array(size);
  const bins = new Float32Array(257);
  for (let column = 0; column < count; column++) {
    const start = Math.round(column * hop) - size / 2;
    bins.fill(0);
    for (const x of channels) {
      im.fill(0);
      for (let i = 0; i < size; i++) re[i] = window[i] * (x[start + i] ?? 0);
      fourier(re, im, turns);
      for (let k = 0; k < 257; k++) {
        const bin = Math.min(size / 2, Math.round((k * 8000 * size) / rate / 256));
        bins[k] += (re[bin] ** 2 + im[bin] ** 2) / channels.length;
      }
    }
    shade(bins, picture, ROWS * column, (power) => 255 * (1 + (Math.log10(Math.sqrt(power) / size + 1e-9) + 1.4) / 3));
  }
  return picture;
}

function fourier(re, im, turns) {
  const n = re.length;
  for (let i = 1, j = 0; i < n; i++) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) [re[i], re[j], im[i], im[j]] = [re[j], re[i], im[j], im[i]];
  }
  for (let length = 2; length <= n; length *= 2) {
    for (let k = 0; k < length / 2; k++) {
      const turn = (k * n) / length;
      const c = turns[turn];
      const s = turns[turn + n / 4]; // minus the sine
      for (let i = k; i < n; i += length) {
        const j = i + length / 2;
        const a = re[j] * c - im[j] * s;
        const b = re[j] * s + im[j] * c;
        (re[j] = re[i] - a), (im[j] = im[i] - b), (re[i] += a), (im[i] += b);
      }
    }
  }
}

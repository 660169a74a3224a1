// Enhance a wav file (16 kHz, mono, 16 bit) hop by hop in Node: node stream_onnx.js MODEL.onnx IN OUT.
// `npm install onnxruntime-node` beside it first; `drnmf export MODEL -o MODEL.onnx` makes the network.

const fs = require("node:fs");
const ort = require("onnxruntime-node");

const WINDOW = 512;
const HOP = 128;
const BINS = WINDOW / 2 + 1;
const root_hann = Float32Array.from({ length: WINDOW }, (_, n) => Math.sqrt(0.5 - 0.5 * Math.cos((2 * Math.PI * n) / WINDOW)));

// The discrete Fourier transform of re + i im, in place; its length is a power of 2.
function fft(re, im) {
  const N = re.length;
  for (let i = 1, j = 0; i < N; i++) {
    let bit = N >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      [re[i], re[j]] = [re[j], re[i]];
      [im[i], im[j]] = [im[j], im[i]];
    }
  }
  for (let size = 2; size <= N; size *= 2) {
    for (let k = 0; k < size / 2; k++) {
      const c = Math.cos((-2 * Math.PI * k) / size);
      const s = Math.sin((-2 * Math.PI * k) / size);
      for (let a = k; a < N; a += size) {
        const b = a + size / 2;
        const x = re[b] * c - im[b] * s;
        const y = re[b] * s + im[b] * c;
        [re[b], im[b]] = [re[a] - x, im[a] - y];
        re[a] += x;
        im[a] += y;
      }
    }
  }
}

// The samples of a plain wav file, full scale 1.
function readWav(path) {
  const file = fs.readFileSync(path);
  const [channels, rate, bits] = [file.readUInt16LE(22), file.readUInt32LE(24), file.readUInt16LE(34)];
  if (file.toString("latin1", 0, 4) !== "RIFF" || channels !== 1 || rate !== 16000 || bits !== 16) {
    throw new Error(`${path}: not 16 kHz, mono, 16 bit`);
  }
  const start = file.indexOf("data", 12, "latin1") + 8;
  const count = Math.floor(Math.min(file.readUInt32LE(start - 4), file.length - start) / 2);
  return Float32Array.from({ length: count }, (_, n) => file.readInt16LE(start + 2 * n) / 2 ** 15);
}

function writeWav(path, samples) {
  const file = Buffer.alloc(44 + 2 * samples.length);
  file.write("RIFF", 0, "latin1");
  file.writeUInt32LE(36 + 2 * samples.length, 4);
  file.write("WAVEfmt ", 8, "latin1");
  [16, 16000, 32000].forEach((value, i) => file.writeUInt32LE(value, [16, 24, 28][i]));
  [1, 1, 2, 16].forEach((value, i) => file.writeUInt16LE(value, [20, 22, 32, 34][i]));
  file.write("data", 36, "latin1");
  file.writeUInt32LE(2 * samples.length, 40);
  samples.forEach((x, n) => file.writeInt16LE(Math.max(-(2 ** 15), Math.min(2 ** 15 - 1, Math.round(x * 2 ** 15))), 44 + 2 * n));
  fs.writeFileSync(path, file);
}

async function main([model, source, target]) {
  const network = await ort.InferenceSession.create(model, { intraOpNumThreads: 1 }); // one frame is too little to share
  const feeds = {};
  for (const { name, shape } of network.inputMetadata) {
    feeds[name] = new ort.Tensor("float32", new Float32Array(shape.reduce((a, b) => a * b, 1)), shape);
  }
  const states = network.inputNames.slice(1); // in the order of the outputs after the mask
  const samples = readWav(source);
  const enhanced = new Float32Array(samples.length);
  const heard = new Float32Array(WINDOW);
  const made = new Float32Array(WINDOW);
  for (let t = -4; t * HOP < samples.length; t++) { // the hop read at t is complete at t + 3; before the first, silence
    heard.copyWithin(0, HOP);
    for (let n = 0; n < HOP; n++) heard[WINDOW - HOP + n] = (t > -4 && samples[(t + 3) * HOP + n]) || 0;
    const re = Float64Array.from(heard, (x, n) => x * root_hann[n]);
    const im = new Float64Array(WINDOW);
    fft(re, im);
    const magnitude = Float32Array.from({ length: BINS }, (_, f) => Math.hypot(re[f], im[f]));
    feeds[network.inputNames[0]] = new ort.Tensor("float32", magnitude, [1, BINS]);
    const results = await network.run(feeds);
    const [mask, ...next] = network.outputNames.map((name) => results[name]);
    states.forEach((name, i) => (feeds[name] = next[i]));
    for (let f = 0; f < WINDOW; f++) {
      const gain = mask.data[Math.min(f, WINDOW - f)];
      re[f] *= gain;
      im[f] *= -gain; // conjugate: the transform forwards is then the one backwards
    }
    fft(re, im);
    made.copyWithin(0, HOP);
    made.fill(0, WINDOW - HOP);
    for (let n = 0; n < WINDOW; n++) made[n] += (re[n] / WINDOW) * root_hann[n] / 2;
    if (t >= 0) enhanced.set(made.subarray(0, Math.min(HOP, samples.length - t * HOP)), t * HOP);
  }
  writeWav(target, enhanced);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});

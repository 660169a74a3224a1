// Node's side of test_javascript.py: raw float samples of the channels, one after the other, in; the same out.
import { readFileSync, writeFileSync } from "node:fs";

const { script, rate, channels, block, strength, maxAttenuation, keep = [], look, learn = 0 } = JSON.parse(process.argv[2]);
const { Drnmf } = await import(script);
const raw = readFileSync(0);
const samples = new Float32Array(raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.length));
const length = samples.length / channels;
const all = Array.from({ length: channels }, (_, c) => samples.subarray(c * length, (c + 1) * length));
const sound = all.map((x) => x.subarray(learn)); // what is learned comes before it
const n = length - learn;

const options = { rate, channels, strength, maxAttenuation: maxAttenuation ?? Infinity };
let drnmf = await Drnmf.load(options);
if (learn) drnmf = await Drnmf.load({ ...options, model: drnmf.learn(all.map((x) => x.subarray(0, learn))) });
for (const [atom, kept] of keep) drnmf.keep(atom, kept);
const output = sound.map(() => []);
const looks = [];
for (let start = 0; start < n; start += block) {
  const part = sound.map((x) => x.subarray(start, start + block));
  const done = channels === 1 ? [drnmf.process(part[0])] : drnmf.process(part);
  done.forEach((y, c) => output[c].push(...y));
  if (look) looks.push(...drnmf.mask, ...drnmf.activations, ...drnmf.expected);
}
console.error(JSON.stringify({ atoms: drnmf.atoms, speech: drnmf.speechAtoms, latency: drnmf.latency }));
writeFileSync(1, new Uint8Array(new Float32Array([...output.flat(), ...looks]).buffer));

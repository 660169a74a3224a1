// What TypeScript says of the package's types: all of this is allowed, but for what stands under @ts-expect-error.
import { Drnmf, type Look, type Options, type Sources } from "drnmf";
import { Drnmf as Code } from "./code/drnmf.js"; // not typed: what TypeScript itself finds there

const settings: Options & Sources = { rate: 48000, channels: 1, maxAttenuation: 18 };
const denoise: Drnmf = await Drnmf.load(settings);
const clean: Float32Array = denoise.process(new Float32Array(480));
const both: Float32Array[] = denoise.process([clean, clean]);
denoise.processInto(both, both);
denoise.strength = 0.5;
denoise.keep(3, false);
denoise.reset();
const knowing: Drnmf = await Drnmf.load({ ...settings, model: denoise.learn(clean) });
const stereo: Uint8Array = knowing.learn(both);
const loudest: number = Math.max(...denoise.activations, ...denoise.expected, ...denoise.mask, ...denoise.spectrum(0));
console.log(loudest, denoise.atoms - denoise.speechAtoms, denoise.latency / denoise.rate, denoise.frames);

const context = new AudioContext();
const node: AudioWorkletNode = await Drnmf.node(context, { channels: 2, look: true });
node.port.onmessage = ({ data }: MessageEvent<Look | { latency: number }>) => {
  if ("mask" in data) console.log(data.frame, data.mask.length);
};
node.port.postMessage({ keep: [3, false] });
node.connect(context.destination);

// @ts-expect-error: it is read only
denoise.latency = 3;
// @ts-expect-error: sound is Float32Array
denoise.process([0.1, 0.2]);
// @ts-expect-error: what is learned is a model
denoise.learn(clean).process(clean);
// @ts-expect-error: `rate`
await Drnmf.load({ sampleRate: 48000 });

// The types have all names that the code has, and the code is what they say; `process` has two forms, seen above.
const names: keyof Drnmf = {} as keyof Code;
const instance: Omit<Drnmf, "process"> = {} as Omit<Code, "process">;
const statics: keyof typeof Drnmf = {} as keyof typeof Code;

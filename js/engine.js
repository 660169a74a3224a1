/** The engine in WebAssembly, with everything at hand: no files, no network, so that an AudioWorklet can use it, too. */

const BINS = 257;
const BLOCK = 4096; // samples of each channel that are processed at a time

export class Drnmf {
  #c; // what the engine exports
  #self; // its instance
  #block; // room for interleaved samples
  #rate;
  #channels;
  #strength = 1;
  #maxAttenuation = Infinity;

  /**
   * @param {BufferSource | WebAssembly.Module} engine drnmf.wasm
   * @param {ArrayBuffer | Uint8Array} model by `drnmf export --c`
   */
  constructor(engine, model, { rate = 16000, channels = 1, strength = 1, maxAttenuation = Infinity } = {}) {
    const module = engine instanceof WebAssembly.Module ? engine : new WebAssembly.Module(engine);
    this.#c = new WebAssembly.Instance(module).exports;
    this.#rate = rate;
    this.#channels = channels;
    const bytes = model instanceof Uint8Array ? model : new Uint8Array(model);
    const at = this.#room(bytes.length);
    new Uint8Array(this.#c.memory.buffer).set(bytes, at);
    const result = this.#room(4);
    this.#check(this.#c.drnmf_open_memory(result, at, bytes.length, rate, channels));
    this.#self = new Uint32Array(this.#c.memory.buffer)[result / 4];
    this.#block = this.#room(4 * BLOCK * channels);
    this.strength = strength;
    this.maxAttenuation = maxAttenuation;
  }

  #room(bytes) {
    const at = this.#c.malloc(bytes);
    if (!at) throw new Error("drnmf: there is not enough memory");
    return at;
  }

  #check(code) {
    if (!code) return;
    const text = new Uint8Array(this.#c.memory.buffer, this.#c.drnmf_error(code));
    throw new RangeError("drnmf: " + String.fromCharCode(...text.subarray(0, text.indexOf(0))));
  }

  #numbers(at, n) {
    return new Float32Array(this.#c.memory.buffer, at, n);
  }

  get rate() {
    return this.#rate;
  }

  get channels() {
    return this.#channels;
  }

  get latency() {
    return this.#c.drnmf_latency(this.#self);
  }

  get strength() {
    return this.#strength;
  }

  set strength(value) {
    this.#check(this.#c.drnmf_set_strength(this.#self, value));
    this.#strength = value;
  }

  get maxAttenuation() {
    return this.#maxAttenuation;
  }

  set maxAttenuation(decibels) {
    this.#check(this.#c.drnmf_set_max_attenuation(this.#self, decibels));
    this.#maxAttenuation = decibels;
  }

  #inputs(sound) {
    const inputs = Array.isArray(sound) ? sound : [sound];
    if (inputs.length !== this.#channels) {
      throw new RangeError(`drnmf: made for ${this.#channels} channels, got ${inputs.length}`);
    }
    return inputs;
  }

  #interleave(inputs, start, n, at) {
    const C = this.#channels;
    const samples = this.#numbers(at, n * C);
    for (let c = 0; c < C; c++) for (let i = 0; i < n; i++) samples[i * C + c] = inputs[c][start + i];
  }

  /** As many samples as go in, `latency` late: an array of one channel, or an array for each. */
  process(block) {
    const mono = !Array.isArray(block);
    const inputs = this.#inputs(block);
    const outputs = inputs.map((input) => new Float32Array(input.length));
    this.processInto(inputs, outputs);
    return mono ? outputs[0] : outputs;
  }

  /** The same without new arrays: one of each channel in, one of each out, which may be the same. */
  processInto(inputs, outputs) {
    const C = this.#channels;
    const n = inputs[0].length;
    for (let start = 0; start < n; start += BLOCK) {
      const some = Math.min(BLOCK, n - start);
      this.#interleave(inputs, start, some, this.#block);
      this.#c.drnmf_process(this.#self, this.#block, this.#block, some);
      const samples = this.#numbers(this.#block, some * C);
      for (let c = 0; c < C; c++) for (let i = 0; i < some; i++) outputs[c][start + i] = samples[i * C + c];
    }
  }

  reset() {
    this.#c.drnmf_reset(this.#self);
  }

  /** A model that knows a noise, from a sample of it without speech: as `process` takes sound, 0.3 s to a minute of it. */
  learn(noise) {
    const inputs = this.#inputs(noise);
    const n = inputs[0].length;
    const bytes = this.#c.drnmf_model_bytes(this.#self);
    const samples = this.#room(4 * n * this.#channels);
    const model = this.#room(bytes);
    this.#interleave(inputs, 0, n, samples);
    try {
      this.#check(this.#c.drnmf_learn(this.#self, samples, n, model));
      return new Uint8Array(this.#c.memory.buffer, model, bytes).slice();
    } finally {
      this.#c.free(samples);
      this.#c.free(model);
    }
  }

  get atoms() {
    return this.#c.drnmf_atoms(this.#self);
  }

  get speechAtoms() {
    return this.#c.drnmf_speech_atoms(this.#self);
  }

  /** An atom's magnitudes from 0 to 8 kHz. */
  spectrum(atom) {
    const at = this.#c.drnmf_spectrum(this.#self, atom);
    if (!at) throw new RangeError(`drnmf: there are ${this.atoms} atoms, got ${atom}`);
    const power = this.#c.drnmf_power(this.#self);
    return this.#numbers(at, BINS).map((x) => x ** (1 / power));
  }

  /** Whether an atom belongs to what is kept, or to what is removed. */
  keep(atom, kept) {
    this.#check(this.#c.drnmf_keep_atom(this.#self, atom, kept ? 1 : 0));
  }

  /** How many frames, of 8 ms, were done since the start. */
  get frames() {
    return Number(this.#c.drnmf_frames(this.#self));
  }

  get mask() {
    return this.#numbers(this.#c.drnmf_mask(this.#self), BINS).slice();
  }

  get activations() {
    return this.#numbers(this.#c.drnmf_activations(this.#self), this.atoms).slice();
  }

  get expected() {
    return this.#numbers(this.#c.drnmf_expected(this.#self), this.atoms).slice();
  }
}

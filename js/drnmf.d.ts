/// <reference lib="dom" />

/** What an instance is made with. */
export interface Options {
  /** Samples per second, from 8000 to 192000; default 16000. */
  rate?: number;
  /** Channels, which share one mask; default 1. */
  channels?: number;
  /** How much of the noise to remove, from 0 to 1; default 1. */
  strength?: number;
  /** By how many dB a part of the spectrum is lowered at most; default Infinity. */
  maxAttenuation?: number;
}

export interface Sources {
  /** drnmf.wasm: its address, or its bytes. */
  engine?: string | URL | Uint8Array;
  /** A model by `drnmf export --c`: its address, or its bytes. */
  model?: string | URL | Uint8Array;
}

/** What a node with `look` posts for each frame, of 8 ms. */
export interface Look {
  frame: number;
  mask: Float32Array;
  activations: Float32Array;
  expected: Float32Array;
}

export declare class Drnmf {
  constructor(engine: BufferSource | WebAssembly.Module, model: ArrayBuffer | Uint8Array, options?: Options);

  /** Load engine and model, from this package's folder unless told otherwise, and make an instance. */
  static load(options?: Options & Sources): Promise<Drnmf>;

  /**
   * An AudioWorkletNode with the parameters `strength` and `maxAttenuation` (100 and more: no limit). It takes the
   * messages {keep: [atom, kept]} and {reset: true}, and posts {latency}, and a Look for each frame if wanted.
   */
  static node(
    context: BaseAudioContext,
    options?: Sources & { worklet?: string | URL; channels?: number; look?: boolean },
  ): Promise<AudioWorkletNode>;

  readonly rate: number;
  readonly channels: number;
  /** By how many samples the output lies behind the input, always. */
  readonly latency: number;
  strength: number;
  maxAttenuation: number;

  /** As many samples as go in, `latency` late: of one channel, or an array for each. */
  process(block: Float32Array): Float32Array;
  process(block: Float32Array[]): Float32Array[];
  /** The same without new arrays: one of each channel in, one of each out, which may be the same. */
  processInto(inputs: Float32Array[], outputs: Float32Array[]): void;
  /** Forget all sound. */
  reset(): void;

  /**
   * A model that knows a noise, for `Drnmf.load({ model })`, from a sample of it in which nobody speaks: as `process`
   * takes sound, 0.3 s or more, better 3 s. This instance stays as it is.
   */
  learn(noise: Float32Array | Float32Array[]): Uint8Array;

  /** How many spectra the network explains sound by; the first `speechAtoms` are speech, the others noise. */
  readonly atoms: number;
  readonly speechAtoms: number;
  /** An atom's 257 magnitudes, from 0 to 8 kHz. */
  spectrum(atom: number): Float32Array;
  /** Whether an atom belongs to what is kept, or to what is removed. */
  keep(atom: number, kept: boolean): void;

  /** How many frames, of 8 ms, were done since the start; and of the last one: */
  readonly frames: number;
  /** its mask, 257 numbers, */
  readonly mask: Float32Array;
  /** how much of each atom is in it, */
  readonly activations: Float32Array;
  /** and the threshold under which each atom had to prove itself: low where it was expected. */
  readonly expected: Float32Array;
}

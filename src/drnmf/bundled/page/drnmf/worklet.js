/** The engine in an AudioWorklet; `Drnmf.node` makes it. Messages: {keep: [atom, kept]}, {reset: true}. */

import { Drnmf } from "./engine.js";

class Processor extends AudioWorkletProcessor {
  static get parameterDescriptors() {
    return [
      { name: "strength", defaultValue: 1, minValue: 0, maxValue: 1, automationRate: "k-rate" },
      { name: "maxAttenuation", defaultValue: 100, minValue: 0, maxValue: 100, automationRate: "k-rate" },
    ];
  }

  constructor({ processorOptions: { engine, model, channels, look } }) {
    super();
    this.drnmf = new Drnmf(engine, model, { rate: sampleRate, channels });
    this.silence = Array.from({ length: channels }, () => new Float32Array(128));
    this.look = look;
    this.seen = 0;
    this.port.onmessage = ({ data }) => {
      if (data.keep) this.drnmf.keep(...data.keep);
      if (data.reset) this.drnmf.reset();
    };
    this.port.postMessage({ latency: this.drnmf.latency });
  }

  process([inputs], [outputs], { strength, maxAttenuation }) {
    const { drnmf } = this;
    if (drnmf.strength !== strength[0]) drnmf.strength = strength[0];
    const limit = maxAttenuation[0] >= 100 ? Infinity : maxAttenuation[0];
    if (drnmf.maxAttenuation !== limit) drnmf.maxAttenuation = limit;
    drnmf.processInto(inputs.length === drnmf.channels ? inputs : this.silence, outputs);
    if (this.look && drnmf.frames > this.seen) {
      this.seen = drnmf.frames;
      const { mask, activations, expected } = drnmf;
      this.port.postMessage({ frame: this.seen, mask, activations, expected });
    }
    return true;
  }
}

registerProcessor("drnmf", Processor);

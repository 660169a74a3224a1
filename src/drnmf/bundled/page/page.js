/** The page: files and the microphone through the engine, what it does, and atoms to be silenced or kept. */

import { Drnmf } from "./drnmf/drnmf.js";

const $ = (id) => document.getElementById(id);
const NO_LIMIT = 60; // dB, where the slider ends
const LONGEST = 60; // seconds of noise that are learned
const FAR = 0.25; // of its length: an atom that has moved so far is marked

const [engine, original] = await Promise.all(
  ["drnmf/drnmf.wasm", "drnmf/default.drnmf"].map(async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer())),
);
const compiled = await WebAssembly.compile(engine);
const trained = new Drnmf(compiled, original);
const N = trained.atoms;
let model = original; // or what has learned a noise
let drnmf = trained;
const changed = new Map(); // atoms that are not as trained: whether they are kept
let fileName = "";
let sound = null; // {channels, rate}, the file
let result = null; // what the worker made of it
let graph = null; // what plays: {context, node, dry, wet, source, started}
let asked = 0; // how often the worker was
let waiting = null; // a timer, while settings move
let pointed = null; // where in the sound a person looks, from 0 to 1
let marked = null; // the stretch that may be learned, first and last, likewise
let anchor = null; // where that began, until a person looks elsewhere
let learning = 0; // the number of the lesson, while the worker learns
let lessons = 0;
let note = ""; // of what was learned, or why not

// Settings

const kept = (atom) => changed.get(atom) ?? atom < drnmf.speechAtoms;
const live = () => Boolean(graph?.source.mediaStream);
const strength = () => Number($("strength").value);
const maxAttenuation = () => (Number($("attenuation").value) >= NO_LIMIT ? Infinity : Number($("attenuation").value));

function say(text) {
  $("status").textContent = text;
}

/** What the sliders say, where it is read and where it plays. */
function setControls() {
  $("strength").nextElementSibling.value = strength();
  $("attenuation").nextElementSibling.value = maxAttenuation() === Infinity ? "no limit" : `${maxAttenuation()} dB`;
  if (graph) {
    graph.node.parameters.get("strength").value = strength();
    graph.node.parameters.get("maxAttenuation").value = Math.min(100, maxAttenuation());
  }
}

function settingsChanged() {
  setControls();
  if (!sound || live()) return;
  document.body.dataset.state = "busy";
  clearTimeout(waiting);
  waiting = setTimeout(enhance, 150);
}

// A file: all of it in a worker, for the pictures and the download

const worker = new Worker("worker.js", { type: "module" });
worker.onmessage = ({ data }) => {
  if (data.progress !== undefined) progress(data.progress);
  else if (data.outputs) finished(data);
  else hasLearned(data);
};
worker.onerror = (error) => say(`The engine failed: ${error.message}`);
worker.postMessage({ id: 0, engine, model });

async function open(file) {
  stop();
  say(`Reading ${file.name} …`);
  try {
    const bytes = await file.arrayBuffer();
    const rate = rateOf(bytes) ?? 48000; // browsers resample to the context's rate, so it is the file's where we know it
    const buffer = await new OfflineAudioContext(1, 1, rate).decodeAudioData(bytes);
    const channels = Array.from({ length: buffer.numberOfChannels }, (_, c) => buffer.getChannelData(c));
    sound = { channels, rate, buffer };
    fileName = file.name;
  } catch (error) {
    return say(`${file.name}: this browser cannot decode it (${error.message})`);
  }
  $("play").disabled = false;
  setMarked(null);
  setModel(original, ""); // what was learned belongs to another recording
}

/** The rate in the head of a WAV or FLAC file, if the engine takes it. */
function rateOf(bytes) {
  if (bytes.byteLength < 44) return null;
  const view = new DataView(bytes);
  const isWave = view.getUint32(0) === 0x52494646 && view.getUint32(8) === 0x57415645 && view.getUint32(12) === 0x666d7420;
  const isFlac = view.getUint32(0) === 0x664c6143;
  const rate = isWave ? view.getUint32(24, true) : isFlac ? view.getUint32(18) >>> 12 : null;
  return [8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000, 96000].includes(rate) ? rate : null;
}

function enhance() {
  if (!sound) return;
  clearTimeout(waiting);
  waiting = null;
  document.body.dataset.state = "busy";
  progress(0);
  const { channels, rate } = sound;
  const settings = { strength: strength(), maxAttenuation: maxAttenuation(), changed: [...changed] };
  worker.postMessage({ id: ++asked, engine, model, channels, rate, ...settings });
}

function progress(part) {
  $("progress").hidden = false;
  $("progress").value = part;
}

function finished(data) {
  if (data.id !== asked || waiting || live()) return; // a newer one is on its way, or will be
  result = data;
  $("progress").hidden = !learning;
  $("download").disabled = false;
  for (const name of ["before", "mask", "after"]) draw($(name), data.pictures[name]);
  sayResult();
  document.body.dataset.state = learning ? "busy" : "done";
  document.body.dataset.speed = data.speed;
}

function sayResult() {
  const seconds = sound.channels[0].length / sound.rate;
  say(`${fileName}: ${seconds.toFixed(1)} s at ${sound.rate / 1000} kHz, ${result.speed.toFixed(0)} times faster than real time. ${note}`.trim());
}

// A noise of one's own: it is marked in the pictures and learned in the worker; what comes back is a model

/** A stretch in which nobody speaks, or null. */
function setMarked(stretch) {
  marked = stretch && stretch.sort((a, b) => a - b);
  $("marked").hidden = $("learn").disabled = !marked;
  $("learn").textContent = marked ? `Learn the noise from ${between(marked)}` : "Learn this noise";
  if (!marked) return;
  $("marked").style.left = `${100 * marked[0]}%`;
  $("marked").style.width = `${100 * (marked[1] - marked[0])}%`;
  say(`Marked from ${between(marked)}.`);
}

function between(stretch) {
  const seconds = sound.channels[0].length / sound.rate;
  return stretch.map((part) => (part * seconds).toFixed(2)).join(" to ") + " s";
}

function learn() {
  if (!marked || learning) return;
  const { channels, rate } = sound;
  const first = Math.round(marked[0] * channels[0].length);
  const last = Math.min(Math.round(marked[1] * channels[0].length), first + LONGEST * rate);
  learning = ++lessons;
  note = `It knows the noise from ${between(marked)}.`;
  document.body.dataset.state = "busy";
  $("learn").setAttribute("aria-busy", "true");
  $("progress").hidden = false;
  $("progress").removeAttribute("value"); // it moves, and does not say how far
  say(`Learning the noise from ${between(marked)} …`);
  worker.postMessage({ id: learning, engine, model: original, noise: channels.map((x) => x.slice(first, last)), rate });
}

function hasLearned({ id, learned, refusal }) {
  if (id !== learning) return; // another file was opened
  if (learned) return setModel(learned, note);
  stopLearning(`Not learned: ${refusal}.`);
  if (result && result.id === asked && !waiting) finished(result); // else that is on its way
}

function stopLearning(why) {
  learning = 0;
  note = why;
  $("learn").removeAttribute("aria-busy");
}

/** Go on with a model, and say why. */
function setModel(next, why) {
  stopLearning(why);
  model = next;
  drnmf = model === original ? trained : new Drnmf(compiled, model);
  $("forget").disabled = model === original;
  for (let atom = 0; atom < N; atom++) drawAtom(atom);
  sort();
  if (live()) return;
  stop(); // what plays has the other one
  enhance();
}

function download() {
  const { rate } = sound;
  const C = result.outputs.length;
  const n = result.outputs[0].length;
  const view = new DataView(new ArrayBuffer(44 + 4 * n * C));
  const text = (at, letters) => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF"), view.setUint32(4, 36 + 4 * n * C, true), text(8, "WAVEfmt "), view.setUint32(16, 16, true);
  view.setUint16(20, 3, true), view.setUint16(22, C, true), view.setUint32(24, rate, true); // 3: float
  view.setUint32(28, 4 * rate * C, true), view.setUint16(32, 4 * C, true), view.setUint16(34, 32, true);
  text(36, "data"), view.setUint32(40, 4 * n * C, true);
  for (let c = 0; c < C; c++) for (let i = 0; i < n; i++) view.setFloat32(44 + 4 * (i * C + c), result.outputs[c][i], true);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([view], { type: "audio/wav" }));
  link.download = fileName.replace(/\.[^.]*$/, "") + ".enhanced.wav";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Playing and the microphone: before and after run side by side, and one of them is heard

async function start(makeSource, rate, channels) {
  stop();
  const context = new AudioContext(rate ? { sampleRate: rate } : {});
  const source = await makeSource(context);
  const node = await Drnmf.node(context, { engine, model, channels, look: true });
  const latency = new Promise((resolve) => (node.port.onmessage = ({ data }) => (data.latency ? resolve(data.latency) : seen(data))));
  const delay = new DelayNode(context, { delayTime: (await latency) / context.sampleRate });
  const dry = new GainNode(context);
  const wet = new GainNode(context);
  const analysers = [0, 1].map(() => new AnalyserNode(context, { fftSize: 1024, smoothingTimeConstant: 0 }));
  source.connect(node).connect(wet).connect(context.destination);
  source.connect(delay).connect(dry).connect(context.destination);
  delay.connect(analysers[0]);
  node.connect(analysers[1]);
  for (const [atom, keep] of changed) node.port.postMessage({ keep: [atom, keep] });
  graph = { context, node, dry, wet, source, analysers, started: context.currentTime, latest: null, columns: [] };
  listen($("toggle").getAttribute("aria-pressed") === "true");
  setControls();
}

function stop() {
  if (!graph) return;
  const wasLive = live();
  graph.source.mediaStream?.getTracks().forEach((track) => track.stop());
  graph.context.close();
  graph = null;
  $("cursor").hidden = true;
  $("play").textContent = "Play";
  $("microphone").setAttribute("aria-pressed", "false");
  if (wasLive) say("The microphone is off.");
  if (wasLive && sound) enhance(); // the file's pictures again, with what was set meanwhile
}

async function play() {
  if (graph) return stop();
  await start((context) => new AudioBufferSourceNode(context, { buffer: sound.buffer }), sound.rate, sound.channels.length);
  const { source } = graph;
  source.onended = () => graph?.source === source && stop();
  source.start();
  pointed = null;
  $("play").textContent = "Stop";
}

async function microphone() {
  if (graph) return stop();
  try {
    const plain = { echoCancellation: true, noiseSuppression: false, autoGainControl: false };
    const stream = await navigator.mediaDevices.getUserMedia({ audio: plain });
    await start((context) => new MediaStreamAudioSourceNode(context, { mediaStream: stream }), 48000, 1);
    $("microphone").setAttribute("aria-pressed", "true");
    result = pointed = null;
    setMarked(null);
    $("download").disabled = true;
    say("Listening. Use headphones, or it will hear itself.");
  } catch (error) {
    say(`No microphone: ${error.message}`);
  }
}

function listen(after) {
  $("toggle").setAttribute("aria-pressed", String(after));
  $("toggle").textContent = after ? "After" : "Before";
  if (!graph) return;
  const { currentTime } = graph.context;
  graph.wet.gain.setTargetAtTime(after ? 1 : 0, currentTime, 0.005);
  graph.dry.gain.setTargetAtTime(after ? 0 : 1, currentTime, 0.005);
}

/** A frame of what plays; it is drawn when the screen is. */
function seen(frame) {
  if (!graph) return;
  document.body.dataset.frames = frame.frame;
  graph.latest = frame;
  if (live()) graph.columns = [...graph.columns.slice(-20), column(frame.mask)];
}

/** What the microphone hears now: before, the mask, after. */
function column(mask) {
  const [before, after] = graph.analysers.map((analyser) => {
    const levels = new Float32Array(analyser.frequencyBinCount);
    analyser.getFloatFrequencyData(levels);
    const bins = (8000 / graph.context.sampleRate) * 1024;
    return Uint8ClampedArray.from({ length: 128 }, (_, row) => 255 + 2.5 * (levels[Math.floor((row * bins) / 128)] + 20));
  });
  return { before, mask: Uint8ClampedArray.from({ length: 128 }, (_, row) => 255 * mask[2 * row]), after };
}

// Pictures

const COLOURS = Array.from({ length: 256 }, (_, i) => {
  const x = i / 255; // black, violet, orange, white
  return [255 * Math.min(1, 1.6 * x), 255 * Math.max(0, 1.5 * x * x - 0.25 * x), 255 * (x < 0.5 ? 1.1 * x : 0.55 - 0.9 * (x - 0.5) + (x > 0.8 ? 3 * (x - 0.8) : 0))];
});

function paint(image, x, column) {
  for (let row = 0; row < 128; row++) {
    const at = 4 * ((127 - row) * image.width + x);
    const [red, green, blue] = COLOURS[column[row]];
    image.data[at] = red;
    image.data[at + 1] = green;
    image.data[at + 2] = blue;
    image.data[at + 3] = 255;
  }
}

/** A picture, given column after column, as wide as the screen can show. */
function draw(canvas, picture) {
  const count = picture.length / 128;
  canvas.width = Math.min(2000, count) || 1;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, 128);
  for (let x = 0; x < canvas.width && count; x++) {
    const at = 128 * Math.floor((x * count) / canvas.width);
    paint(image, x, picture.subarray(at, at + 128));
  }
  context.putImageData(image, 0, 0);
}

/** Move a picture to the left, and draw new columns on its right. */
function roll(canvas, columns) {
  if (canvas.width !== 500) canvas.width = 500;
  const context = canvas.getContext("2d");
  context.drawImage(canvas, -columns.length, 0);
  const image = context.createImageData(columns.length, 128);
  columns.forEach((one, x) => paint(image, x, one));
  context.putImageData(image, 500 - columns.length, 0);
}

// Atoms

const pitch = [];
let now = { activations: new Float32Array(N), expected: new Float32Array(N) };
const buttons = Array.from({ length: N }, (_, atom) => makeAtom(atom));

function makeAtom(atom) {
  const button = document.createElement("button");
  button.className = atom < drnmf.speechAtoms ? "atom" : "atom of-noise";
  button.dataset.atom = atom;
  button.append(document.createElement("i"), document.createElement("b"), document.createElement("canvas"));
  button.onclick = () => setAtom(atom, !kept(atom));
  return button;
}

function drawAtom(atom) {
  const button = buttons[atom];
  const speech = atom < drnmf.speechAtoms;
  const spectrum = drnmf.spectrum(atom);
  const moved = distance(spectrum, trained.spectrum(atom)) > FAR;
  pitch[atom] = spectrum.reduce((sum, x, k) => sum + k * x, 0) / spectrum.reduce((sum, x) => sum + x, 1e-9);
  button.classList.toggle("moved", moved);
  button.title = `${speech ? "Speech" : "Noise"} atom ${atom}, around ${Math.round(pitch[atom] * 31.25)} Hz${moved ? ", has learned" : ""}`;
  button.setAttribute("aria-label", button.title);
  const canvas = button.lastChild;
  canvas.width = 1;
  canvas.height = 128;
  const context = canvas.getContext("2d");
  const most = Math.max(...spectrum);
  context.fillStyle = speech ? "#1fa3ad" : "#e0701f";
  for (let row = 0; row < 128; row++) {
    context.globalAlpha = Math.sqrt(Math.max(spectrum[2 * row], spectrum[2 * row + 1]) / most);
    context.fillRect(0, 127 - row, 1, 1);
  }
}

/** Of two spectra, as long as 1 each. */
function distance(first, second) {
  const [a, b] = [first, second].map((spectrum) => Math.hypot(...spectrum) || 1);
  return Math.hypot(...first.map((x, k) => x / a - second[k] / b));
}

function setAtom(atom, keep) {
  if (keep === atom < drnmf.speechAtoms) changed.delete(atom);
  else changed.set(atom, keep);
  graph?.node.port.postMessage({ keep: [atom, keep] });
  mark(atom);
  settingsChanged();
}

function mark(atom) {
  buttons[atom].setAttribute("aria-pressed", String(kept(atom)));
  buttons[atom].classList.toggle("changed", changed.has(atom));
}

const shown = [];

/** What is heard and expected of each atom in a frame. */
function show(activations, expected) {
  now = { activations, expected };
  const most = Math.max(0.02, ...activations);
  for (let atom = 0; atom < N; atom++) {
    const [bar, dot] = buttons[atom].children;
    const height = Math.sqrt(activations[atom] / most).toFixed(2);
    const likely = Math.min(1, Math.max(0, 0.5 - Math.log10(expected[atom] + 1e-6) / 4)); // a low threshold: expected
    const place = Math.round(-15 * likely);
    if (shown[atom] === height + place) continue; // touching 200 styles takes long
    shown[atom] = height + place;
    bar.style.transform = `scaleY(${height})`;
    dot.style.transform = `translateY(${place}px)`;
  }
}

function sort() {
  const order = [...buttons.keys()];
  const by = $("sort").value;
  const side = (atom) => (atom < drnmf.speechAtoms ? 0 : 1);
  if (by === "active") order.sort((a, b) => now.activations[b] - now.activations[a]);
  else order.sort((a, b) => (by === "kind" ? side(a) - side(b) : 0) || pitch[a] - pitch[b]);
  $("atoms").replaceChildren(...order.map((atom) => buttons[atom]));
}

// What moves

function partAt({ clientX }) {
  const box = $("before").getBoundingClientRect();
  return (clientX - box.left) / box.width;
}

function lookWhere(event) {
  anchor = null;
  lookAt(partAt(event));
}

function lookAt(part) {
  if (!result) return;
  pointed = Math.min(1, Math.max(0, part));
  const seconds = (pointed * sound.channels[0].length) / sound.rate;
  const frame = Math.min(result.frames - 1, Math.floor(seconds * 125) + 2);
  const atoms = (numbers) => numbers.subarray(N * frame, N * (frame + 1));
  show(atoms(result.activations), atoms(result.expected));
  say(`At ${seconds.toFixed(2)} s: ${explained(atoms(result.activations))}.`);
  moveCursor(pointed);
}

function lookAway() {
  pointed = anchor = null;
  if (result) sayResult();
}

/** The atoms that a frame is mostly made of, in words. */
function explained(activations) {
  const loudest = [...activations.keys()].filter((atom) => activations[atom] > 0).sort((a, b) => activations[b] - activations[a]);
  const named = loudest.slice(0, 4).map((atom) => `${atom < drnmf.speechAtoms ? "speech" : "noise"} around ${Math.round(pitch[atom] * 31.25)} Hz (${atom})`);
  return named.length ? `mostly ${named.join(", ")}` : "silence";
}

/** Look at a time, and mark what lies between it and where that began. */
function markTo(part) {
  if (!result) return;
  anchor ??= pointed ?? 0;
  lookAt(part);
  setMarked([anchor, pointed]);
}

function moveCursor(part) {
  $("cursor").hidden = false;
  $("cursor").style.left = `${100 * part}%`;
}

function tick() {
  if (graph?.latest && pointed === null) show(graph.latest.activations, graph.latest.expected);
  if (graph?.columns.length) {
    for (const name of ["before", "mask", "after"]) roll($(name), graph.columns.map((one) => one[name]));
    graph.columns = [];
  }
  if (graph && sound && !live() && pointed === null) {
    moveCursor(Math.min(1, (graph.context.currentTime - graph.started) / (sound.channels[0].length / sound.rate)));
  }
  requestAnimationFrame(tick);
}

$("file").onchange = ({ target }) => target.files[0] && open(target.files[0]);
$("play").onclick = play;
$("microphone").onclick = microphone;
$("toggle").onclick = () => listen($("toggle").getAttribute("aria-pressed") !== "true");
$("download").onclick = download;
$("strength").oninput = $("attenuation").oninput = settingsChanged;
$("sort").onchange = sort;
$("learn").onclick = learn;
$("forget").onclick = () => setModel(original, "");
$("restore").onclick = () => [...changed.keys()].forEach((atom) => setAtom(atom, atom < drnmf.speechAtoms));
const pictures = document.querySelector(".pictures");
let pressed = null; // where a pointer went down
pictures.onpointerdown = (event) => {
  lookWhere(event);
  anchor = pointed;
  pressed = event.clientX;
  pictures.setPointerCapture(event.pointerId);
};
pictures.onpointermove = (event) => {
  if (pressed === null || !(event.buttons & 1)) lookWhere(event);
  else if (Math.abs(event.clientX - pressed) >= 4) markTo(partAt(event)); // less is a click
};
pictures.onpointerup = pictures.onpointercancel = () => (pressed = null);
pictures.onpointerleave = ({ pointerType }) => pointerType === "mouse" && lookAway(); // a finger leaves when it is lifted
document.ondragover = (event) => (event.preventDefault(), document.body.classList.add("over"));
document.ondragleave = () => document.body.classList.remove("over");
document.ondrop = (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
};
document.onkeydown = (event) => {
  if (event.target.matches("input, select, button") && event.key === " ") return;
  if (event.key === " " && sound) event.preventDefault(), play();
  if (event.key.toLowerCase() === "b" && !event.ctrlKey && !event.metaKey) $("toggle").click();
  if (event.target.matches("input, select")) return; // arrows are theirs
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") step(event.key === "ArrowLeft" ? -1 : 1, event.shiftKey);
  if (event.key === "Escape") setMarked(null), lookAway();
};

/** By a hundredth of the sound; marking, by a tenth of a second. */
function step(direction, marks) {
  if (!sound) return;
  if (marks) return markTo((pointed ?? 0) + (direction * 0.1 * sound.rate) / sound.channels[0].length);
  anchor = null;
  lookAt((pointed ?? 0) + 0.01 * direction);
}

buttons.forEach((_, atom) => (drawAtom(atom), mark(atom)));
sort();
tick();
document.body.dataset.state = "ready";

// Chromium's side of test_page.py: node browse.mjs ADDRESS SOUND.wav FOLDER; what it saw goes to FOLDER/seen.json.
import { createRequire } from "node:module";
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const [address, sound, folder, modules] = process.argv.slice(2);
const { chromium } = createRequire(modules + "/")("playwright-core");
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: [
    ...["--no-sandbox", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"],
    ...["--autoplay-policy=no-user-gesture-required", `--use-file-for-fake-audio-capture=${sound}`],
  ],
});
const page = await browser.newPage({ viewport: { width: 1200, height: 1000 }, colorScheme: "dark", hasTouch: true });
const errors = [];
page.on("pageerror", (error) => errors.push(String(error)));
page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
page.setDefaultTimeout(90000);
const state = (wanted) => page.waitForFunction((name) => document.body.dataset.state === name, wanted);
const save = async (name) => {
  const [file] = await Promise.all([page.waitForEvent("download"), page.click("#download")]);
  await file.saveAs(`${folder}/${name}.wav`);
};

const began = Date.now();
await page.goto(address);
await state("ready");
const seen = { loaded: (Date.now() - began) / 1000 };

// drop a file
const bytes = readFileSync(sound).toString("base64");
const transfer = await page.evaluateHandle((content) => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], "noisy.wav", { type: "audio/wav" }));
  return data;
}, bytes);
await page.dispatchEvent("body", "drop", { dataTransfer: transfer });
await state("done");
seen.speed = Number(await page.evaluate(() => document.body.dataset.speed));
seen.status = await page.textContent("#status");
await save("as-ever");

// point at a time: atoms that explain it
const box = await page.locator("#before").boundingBox();
await page.mouse.move(box.x + box.width * 0.4, box.y + 20);
seen.active = await page.evaluate(() => [...document.querySelectorAll(".atom i")].filter((bar) => parseFloat(bar.style.transform.slice(7)) > 0).length);
seen.explained = await page.textContent("#status");
await page.screenshot({ path: `${folder}/page.png` });

// the same, play, switch, by keyboard
await page.locator("h1").click();
await page.keyboard.press("ArrowRight");
await page.keyboard.press("ArrowRight");
seen.stepped = await page.textContent("#status");
await page.keyboard.press("Space");
await page.waitForFunction(() => Number(document.body.dataset.frames) > 20);
seen.playing = await page.textContent("#play");
await page.keyboard.press("b");
seen.toggled = await page.textContent("#toggle");
await page.keyboard.press("Space");
seen.stopped = await page.textContent("#play");

// silence an atom of speech, and keep one of noise
await page.click('.atom[data-atom="10"]');
await page.click('.atom[data-atom="150"]');
seen.pressed = await page.getAttribute('.atom[data-atom="10"]', "aria-pressed");
await state("done");
await save("changed");
await page.click("#restore");
await page.locator("#strength").fill("0.5");
await state("done");
await save("half");

// the microphone
await page.evaluate(() => delete document.body.dataset.frames);
await page.click("#microphone");
await page.waitForFunction(() => Number(document.body.dataset.frames) > 20);
seen.microphone = await page.getAttribute("#microphone", "aria-pressed");
await page.locator("#strength").fill("1"); // with a file that waits
seen.saved = await page.isEnabled("#download");
await page.click("#microphone");
await state("done");
await save("after-microphone");

// a noise is marked and learned: with the mouse, and forgotten; and by keyboard, at another rate
const moved = () => page.locator(".atom.moved").count();
const drag = async (first, last) => {
  const { x, y, width } = await page.locator("#mask").boundingBox();
  const at = [first, last].map((part) => Math.round(x + part * width));
  await page.mouse.move(at[0], y + 20);
  await page.mouse.down();
  await page.mouse.move((at[0] + at[1]) / 2, y + 200);
  await page.mouse.move(at[1], y + 20);
  await page.mouse.up();
  return at.map((place) => (place - x) / width);
};
const learn = async (press) => {
  await press();
  const busy = await page.getAttribute("body", "data-state");
  await state("done");
  return { busy, status: await page.textContent("#status"), moved: await moved(), enabled: await page.isEnabled("#forget") };
};
if (existsSync(`${folder}/talk.wav`)) {
  seen.learning = {};
  await page.setInputFiles("#file", `${folder}/talk.wav`);
  await page.waitForFunction(() => document.getElementById("status").textContent.startsWith("talk.wav"));
  seen.unmarked = await page.isEnabled("#learn");
  for (const [name, first, last] of JSON.parse(readFileSync(`${folder}/stretches.json`))) {
    const stretch = await drag(first, last);
    const label = await page.textContent("#learn");
    seen.learning[name] = { stretch, label, ...(await learn(() => page.click("#learn"))) };
  }
  await page.screenshot({ path: `${folder}/learned.png` });
  await save("learned");
  await page.keyboard.press("Escape");
  seen.unmarkedAgain = await page.isEnabled("#learn");
  seen.learning.forgotten = await learn(() => page.click("#forget"));
  await save("forgotten");

  await page.setInputFiles("#file", `${folder}/fast.wav`);
  await page.waitForFunction(() => document.getElementById("status").textContent.startsWith("fast.wav"));
  await page.keyboard.press("Escape");
  for (let i = 0; i < 8; i++) await page.keyboard.press("Shift+ArrowRight");
  await page.keyboard.press("Shift+ArrowLeft");
  await page.focus("#learn");
  seen.learning.keyboard = await learn(() => page.keyboard.press("Enter"));
  await save("fast-learned");
  await page.setInputFiles("#file", `${folder}/talk.wav`);
  await page.waitForFunction(() => document.getElementById("status").textContent.startsWith("talk.wav"));
  seen.learning.opened = { moved: await moved(), enabled: await page.isEnabled("#forget") };
}

// a file with more channels than loudspeakers, where there is one
if (existsSync(`${folder}/three.wav`)) {
  await page.setInputFiles("#file", `${folder}/three.wav`);
  await page.waitForFunction(() => document.getElementById("status").textContent.startsWith("three.wav"));
  await save("three");
}

// on a phone, in the light
await page.emulateMedia({ colorScheme: "light" });
await page.setViewportSize({ width: 390, height: 800 });
await page.screenshot({ path: `${folder}/phone.png` });
const phone = await page.locator("#mask").boundingBox();
await page.touchscreen.tap(phone.x + phone.width / 2, phone.y + 20);
seen.tapped = await page.textContent("#status");
seen.overflow = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
writeFileSync(`${folder}/seen.json`, JSON.stringify({ ...seen, errors }));
await browser.close();

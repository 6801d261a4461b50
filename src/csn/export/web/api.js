/* The interface of the service's api.js without a server: the browser keeps the tasks, and Learner answers. */

import { Learner } from "./learner.js";
import { readTask, writeTask } from "./taskfile.js";

const KEY = "csn-tasks";
const UNDOS = 100;
const model = JSON.parse(document.getElementById("model").textContent);
const learner = new Learner(model);
const tasks = new Map(load().map((task) => [task.id, task]));
let stored = true;

export class ApiError extends Error {
  constructor(status, code, message, remedy) {
    super(message);
    Object.assign(this, { status, code, remedy });
  }
}

export const takeTokenFromAddress = () => {};
export const setToken = () => {};

export const api = {
  about: async () => ({ version: model.version, model: model.name, way: model.way, unknown_threshold: learner.threshold([]) }),
  tasks: async () => [...tasks.values()].sort((a, b) => b.changed - a.changed).map(summary),
  create: async (name) => summary(created(name)),
  read: async (id) => summary(find(id)),
  remove: async (id) => {
    for (const { id: example } of find(id).examples) learner.forget(example);
    tasks.delete(id);
    save();
  },
  examples: async (id) => find(id).examples.map(view),
  add: async (id, png, label) => {
    const task = find(id);
    const example = newExample(await inkOf(png), label.trim());
    return { example: view(example), task: added(task, [example]) };
  },
  removeExample: async (id, example) => removed(find(id), (other) => other.id === example),
  removeClass: async (id, label) => removed(find(id), (other) => other.label === label),
  undo: async (id) => {
    const task = find(id);
    const before = task.history.pop();
    if (before === undefined) throw new ApiError(409, "nothing_to_undo", "There is nothing to undo.", "");
    task.examples = before;
    return changed(task);
  },
  explain: async (id, png, signal) => {
    const ink = await inkOf(png);
    signal?.throwIfAborted();
    return learner.explain(ink, find(id).examples);
  },
  shifts: async (id, png) => learner.shifts(await inkOf(png), find(id).examples),
  alphabets: async () =>
    model.samples.map(({ name, drawings }) => ({
      name,
      labels: drawings.map(({ label }) => label),
      pictures: drawings.filter(({ label }, i) => drawings[i - 1]?.label !== label).map(({ ink }) => pictureOf(bytes(ink))),
    })),
  addAlphabet: async (id, name) => {
    const { drawings } = model.samples.find((sample) => sample.name === name);
    return added(find(id), drawings.map(({ label, ink }) => newExample(bytes(ink), label)));
  },
  download: async (id) => new Blob([await writeTask(find(id).examples, model, learner.threshold(find(id).examples))]),
  upload: async (file) => {
    let read;
    try {
      read = await readTask(await file.arrayBuffer(), model);
    } catch (error) {
      throw new ApiError(422, "bad_task_file", `${file.name}: ${error.message}.`, "Choose a file that csn wrote for drawings.");
    }
    const task = created(file.name.replace(/\.csn$/, ""));
    added(task, read.map(({ ink, label }) => newExample(ink, label)));
    return summary(task);
  },
};

function created(name) {
  const now = Date.now();
  const task = { id: newId(), name, created: now, changed: now, examples: [], history: [] };
  tasks.set(task.id, task);
  return task;
}

function find(id) {
  if (!tasks.has(id)) throw new ApiError(404, "no_such_task", "There is no such task.", "");
  return tasks.get(id);
}

function summary({ id, name, created: made, changed: last, examples, history }) {
  const classes = new Set(examples.map(({ label }) => label)).size;
  return { id, name, created: made, changed: last, examples: examples.length, classes, can_undo: history.length > 0 };
}

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36)).join("");
const newExample = (ink, label) => ({ id: newId(), label, ink });
const view = ({ id, label, ink }) => ({ id, label, picture: pictureOf(ink) });

function added(task, examples) {
  remember(task);
  task.examples = [...task.examples, ...examples];
  return changed(task);
}

function removed(task, gone) {
  remember(task);
  task.examples = task.examples.filter((example) => !gone(example));
  return changed(task);
}

function remember(task) {
  task.history = [...task.history, task.examples].slice(-UNDOS);
}

function changed(task) {
  task.changed = Date.now();
  save();
  return summary(task);
}

/** The stored tasks, with ink as text. A browser without storage keeps tasks only while the page is open. */
function load() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return kept.map((task) => ({ ...task, history: [], examples: task.examples.map((e) => ({ ...e, ink: bytes(e.ink) })) }));
  } catch {
    return [];
  }
}

function save() {
  const kept = [...tasks.values()].map(({ history, examples, ...task }) => ({
    ...task,
    examples: examples.map((example) => ({ ...example, ink: text(example.ink) })),
  }));
  try {
    localStorage.setItem(KEY, JSON.stringify(kept));
    stored = true;
  } catch (error) {
    if (stored) console.warn("tasks are kept only while this page is open:", error.message);
    stored = false;
  }
}

function bytes(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

function text(ink) {
  return btoa(String.fromCharCode(...ink));
}

/** A picture as the network sees it: black on white, averaged over squares as in csn.classifier.inputs. */
async function inkOf(png) {
  const image = await createImageBitmap(png);
  const [, side] = model.input;
  const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.drawImage(image, 0, 0);
  const { data, width } = pen.getImageData(0, 0, image.width, image.height);
  const part = width / side;
  const ink = new Uint8Array(side * side);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      let sum = 0;
      for (let dy = 0; dy < part; dy++) {
        for (let dx = 0; dx < part; dx++) sum += 255 - data[4 * ((y * part + dy) * width + x * part + dx)];
      }
      ink[y * side + x] = Math.round(sum / part ** 2);
    }
  }
  if (ink.every((byte) => byte === 0)) throw new ApiError(422, "unusable_image", "The drawing is empty.", "Draw something.");
  return ink;
}

/** Black ink on transparent paper, as a data URL. */
function pictureOf(ink) {
  const side = Math.sqrt(ink.length);
  const canvas = Object.assign(document.createElement("canvas"), { width: side, height: side });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(side, side);
  ink.forEach((byte, i) => (image.data[4 * i + 3] = byte));
  pen.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

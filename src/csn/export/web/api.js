/* The interface of the service's api.js without a server: the browser keeps the tasks, and Learner answers. */

import { kept, toast } from "./dom.js";
import { Learner } from "./learner.js";
import { cleanLabel, MOST_BYTES, MOST_EXAMPLES, readTask, TaskFileError, writeTask } from "./taskfile.js";

const PREFIX = "csn-memory-"; // of a task's name in the browser's storage
const ALL = "csn-tasks"; // where earlier versions kept all of them
const UNDOS = 100;
const model = JSON.parse(document.getElementById("model").textContent);
const learner = new Learner(model);
const size = model.input.reduce((product, side) => product * side, 1);
const tasks = new Map(); // id -> task, with `raw`, its text in the storage, or null
let warned = false;

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
  tasks: async () => every().sort((a, b) => b.changed - a.changed).map(summary),
  create: async (name) => summary(created(name)),
  read: async (id) => summary(find(id)),
  remove: async (id) => {
    for (const { id: example } of find(id).examples) learner.forget(example);
    tasks.delete(id);
    kept.remove(PREFIX + id);
  },
  examples: async (id) => find(id).examples.map(view),
  add: async (id, png, label) => {
    const task = find(id);
    const example = newExample(await inkOf(png), label);
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
      if (file.size > MOST_BYTES) throw new TaskFileError("it is too large");
      read = await readTask(await file.arrayBuffer(), model);
    } catch (error) {
      if (!(error instanceof TaskFileError)) console.error(error);
      const name = file.name.slice(0, 100);
      throw new ApiError(422, "bad_task_file", `${name}: ${error.message}.`, "Choose a file that csn wrote for drawings.");
    }
    const task = created(file.name.replace(/\.csn$/, ""));
    added(task, read.map(({ ink, label }) => newExample(ink, label)));
    return summary(task);
  },
};

function created(name) {
  const now = Date.now();
  const task = { id: newId(), name: name.slice(0, 100), created: now, changed: now, examples: [], history: [], raw: null };
  tasks.set(task.id, task);
  return task;
}

function find(id) {
  const task = latest(id);
  if (!task) throw new ApiError(404, "no_such_task", "There is no such task.", "");
  return task;
}

/** A task as it is now: another tab of this page may have changed or removed it. */
function latest(id) {
  const known = tasks.get(id);
  const raw = kept.get(PREFIX + id);
  if (raw === (known?.raw ?? null)) return known;
  const found = raw === null ? undefined : parsed(id, raw);
  if (raw !== null && !found) return known; // damaged
  if (found) tasks.set(id, found);
  else tasks.delete(id);
  return found;
}

function every() {
  const stored = kept.names().filter((name) => name.startsWith(PREFIX)).map((name) => name.slice(PREFIX.length));
  return [...new Set([...tasks.keys(), ...stored])].map(latest).filter(Boolean);
}

function summary({ id, name, created: made, changed: last, examples, history }) {
  const classes = new Set(examples.map(({ label }) => label)).size;
  return { id, name, created: made, changed: last, examples: examples.length, classes, can_undo: history.length > 0 };
}

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36)).join("");
const newExample = (ink, label) => ({ id: newId(), label: labelOf(label), ink });
const view = ({ id, label, ink }) => ({ id, label, picture: pictureOf(ink) });

function labelOf(text) {
  try {
    return cleanLabel(text);
  } catch (error) {
    throw new ApiError(422, "bad_label", `${error.message}.`.replace(/^./, (letter) => letter.toUpperCase()), "");
  }
}

function added(task, examples) {
  if (task.examples.length + examples.length > MOST_EXAMPLES) {
    throw new ApiError(409, "too_many_examples", `A task holds ${MOST_EXAMPLES} drawings.`, "Forget some, or begin another task.");
  }
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
  save(task);
  return summary(task);
}

/** A stored task, or null if its text is damaged. */
function parsed(id, raw) {
  try {
    return whole(JSON.parse(raw), id, raw);
  } catch {
    return null;
  }
}

/** A task of the storage with ink as bytes. Anything else that runs on this origin may have written it. */
function whole({ name, created: made, changed: last, examples }, id, raw) {
  const read = examples.map(({ id: example, label, ink }) => ({ id: String(example), label: cleanLabel(label), ink: bytes(ink) }));
  const found = { id, name: String(name), created: Number(made), changed: Number(last), examples: read, history: [], raw };
  return read.every(({ ink }) => ink.length === size) && found.changed ? found : null;
}

/** Keep a task, with ink as text. A browser without storage keeps it only while the page is open. */
function save(task) {
  const { history, raw, examples, ...rest } = task;
  const content = JSON.stringify({ ...rest, examples: examples.map((example) => ({ ...example, ink: text(example.ink) })) });
  kept.set(PREFIX + task.id, content);
  task.raw = kept.get(PREFIX + task.id);
  if (task.raw !== content && !warned) {
    warned = true;
    toast("This browser cannot store more: what you teach now is kept only while this page is open. Save it as a file.", { seconds: 8 });
  }
}

/** Give each task of an earlier version a place of its own. What is damaged stays where it is. */
function adopt() {
  const raw = kept.get(ALL);
  if (raw === null) return;
  try {
    const found = JSON.parse(raw).map((task) => whole(task, String(task.id), null));
    if (!found.every(Boolean)) return;
    found.forEach(save);
    if (found.every((task) => task.raw !== null)) kept.remove(ALL);
    for (const task of found) tasks.set(task.id, task);
  } catch (error) {
    console.warn("the tasks of an earlier version cannot be read:", error.message);
  }
}

adopt();

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

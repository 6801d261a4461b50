/* The page: what a person does -> the server -> what the person sees. */

import { showAnswer, showGuide } from "./answer.js";
import { api, takeTokenFromAddress } from "./api.js";
import { askForToken, setUpDialogs, showAbout, showSamples } from "./dialogs.js";
import { $, calm, plural, toast } from "./dom.js";
import { Ink } from "./ink.js";
import { markSources, showMemory, thumbOf } from "./memory.js";
import { hideThreads, showThreads } from "./threads.js";

const KEY = "csn-task";
const SETTLE = 1800; // ms after the pen was lifted, the next stroke begins a new drawing
const ink = new Ink($("paper"), $("nib"));
let task = null; // as the server describes it
let classes = new Map(); // label -> examples
let answer = null;
let asking = null; // aborts the question that is on its way
let settling = 0;

/** Do something that may fail; say so if it does. */
async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    if (error.status === 401) {
      await askForToken();
      return attempt(work);
    }
    if (error.code === "no_such_task") {
      localStorage.removeItem(KEY);
      await refresh(null);
      toast("This task is no longer on the server. A new one begins with the next drawing.");
      return undefined;
    }
    if (!error.status && error.code !== "offline") console.error(error);
    toast([error.message, error.remedy].filter(Boolean).join(" "), 6);
    return undefined;
  }
}

/** Show a task (null: none yet) with everything in it; `fresh` is the id of an example that is new. */
async function refresh(seen, fresh = null) {
  const examples = seen ? await api.examples(seen.id) : [];
  task = seen;
  if (task) localStorage.setItem(KEY, task.id);
  classes = showMemory(examples, { add: teach, forget, forgetClass }, fresh);
  update();
}

/** The task to change: made when it is first needed. */
async function current() {
  if (!task) {
    const names = new Date().toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    task = await api.create(names);
    localStorage.setItem(KEY, task.id);
  }
  return task.id;
}

/** Buttons and hints follow what is drawn and remembered. */
function update() {
  $("invitation").classList.toggle("gone", !ink.empty);
  $("clear").hidden = ink.empty;
  $("teach").disabled = ink.empty || !$("name").value.trim();
  $("undo").disabled = !ink.canUndo && !task?.can_undo;
  for (const button of document.querySelectorAll(".add")) button.disabled = ink.empty;
  if (!answer) showGuide(classes.size, !ink.empty);
}

function withdraw() {
  asking?.abort();
  clearTimeout(settling);
  answer = null;
  hideThreads();
  markSources(null, []);
}

/** The pen was lifted: what is it? */
async function recognise() {
  withdraw();
  update();
  if (ink.empty || !classes.size) return;
  settling = setTimeout(() => ink.settle(), SETTLE);
  const { signal } = (asking = new AbortController());
  await attempt(async () => {
    const found = await api.explain(task.id, await ink.picture(), signal);
    if (signal.aborted || ink.drawing) return;
    answer = found;
    showAnswer(found, teach);
    markSources(found.label, found.examples);
    showThreads(found.examples, found.label !== null);
    update();
  });
}

/** Remember the drawing under a name. */
async function teach(label) {
  if (ink.empty || !label.trim()) return;
  await attempt(async () => {
    const picture = await ink.picture();
    const start = $("paper-box").getBoundingClientRect();
    const { example, task: seen } = await api.add(await current(), picture, label);
    $("name").value = "";
    withdraw();
    ink.reset();
    await refresh(seen, example.id);
    fly(example, start);
    if (document.activeElement === $("name") && matchMedia("(hover: hover)").matches) $("paper").focus({ focusVisible: false });
  });
}

/** The drawing moves to its place in memory. */
function fly({ id, picture }, start) {
  const target = thumbOf(id);
  if (!target || calm()) return;
  const end = target.getBoundingClientRect();
  const image = Object.assign(new Image(), { src: picture, className: "flying" });
  if (matchMedia("(prefers-color-scheme: dark)").matches) image.style.filter = "invert(1)";
  Object.assign(image.style, { left: `${end.left}px`, top: `${end.top}px`, width: `${end.width}px`, height: `${end.height}px` });
  document.body.append(image);
  const from = `translate(${start.left - end.left}px, ${start.top - end.top}px) scale(${start.width / end.width})`;
  image.style.transformOrigin = "0 0";
  image
    .animate([{ transform: from }, { transform: "none" }], { duration: 520, easing: "cubic-bezier(.3,.7,.2,1)" })
    .finished.finally(() => image.remove());
}

const change = (work) => attempt(async () => {
  await refresh(await work());
  await recognise();
});
const forget = (id) => change(() => api.removeExample(task.id, id));

function forgetClass(label) {
  const count = classes.get(label)?.length ?? 0;
  return change(async () => {
    const seen = await api.removeClass(task.id, label);
    toast(`Forgot ${label} (${plural(count, "drawing")}). Undo brings it back.`);
    return seen;
  });
}

function undo() {
  if (ink.canUndo) ink.undo();
  else if (task?.can_undo) change(() => api.undo(task.id));
}

async function openTask(id) {
  await attempt(async () => {
    const seen = await api.read(id);
    withdraw();
    ink.reset();
    await refresh(seen);
  });
}

async function newTask() {
  withdraw();
  ink.reset();
  localStorage.removeItem(KEY);
  await refresh(null);
}

const useSample = (name) => attempt(async () => {
  const seen = await api.addAlphabet(await current(), name);
  await refresh(seen);
  toast(`${name} is learned. Copy one of its characters.`);
  await recognise();
});

/** Keys that work wherever no text is being written. */
function shortcut(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !event.shiftKey) {
    if (event.target.matches("input") && event.target.value) return;
    event.preventDefault();
    undo();
    return;
  }
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    $("name").value = "";
    ink.clear();
    $("paper").focus({ focusVisible: false });
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input") || document.querySelector("dialog[open]")) {
    return;
  }
  const label = [...classes.keys()][Number(event.key) - 1];
  const actions = {
    "?": () => $("help-dialog").showModal(),
    n: () => $("name").focus(),
    d: () => $("paper").focus({ focusVisible: true }),
    y: () => answer?.label != null && teach(answer.label),
  };
  let action = actions[event.key.toLowerCase()];
  if (event.key === "Enter" && event.target === $("paper")) action = actions.n;
  if (label !== undefined && !ink.empty) action = () => teach(label);
  if (!action) return;
  event.preventDefault();
  action();
}

ink.addEventListener("touch", () => {
  withdraw();
  update();
});
ink.addEventListener("lift", recognise);
document.addEventListener("keydown", shortcut);
$("clear").onclick = () => ink.clear();
$("undo").onclick = undo;
$("name").oninput = update;
$("name-form").onsubmit = (event) => {
  event.preventDefault();
  teach($("name").value);
};

takeTokenFromAddress();
setUpDialogs(() => task?.id ?? null, { attempt, openTask, newTask });
await attempt(async () => {
  const id = localStorage.getItem(KEY);
  await refresh(id ? await api.read(id) : null);
});
await attempt(() => showSamples(useSample));
await attempt(showAbout);
document.documentElement.dataset.ready = "yes";

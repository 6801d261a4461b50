/* The page: it sends what the user does to the server, and shows the answer. */

import { showAnswer, showGuide } from "./answer.js";
import { api, takeTokenFromAddress } from "./api.js";
import { watchClass } from "./classroom.js";
import { askForToken, setUpDialogs, showAbout, showSamples } from "./dialogs.js";
import { $, calm, dropActions, kept, plural, toast } from "./dom.js";
import { History } from "./history.js";
import { Ink } from "./ink.js";
import { KINDS, kindOf } from "./kinds.js";
import { playIntro } from "./intro.js";
import { fly, markSources, showMemory } from "./memory.js";
import { hideNeurons, showNeurons } from "./neurons.js";
import { onPicture, Photo } from "./photo.js";
import { Sentence } from "./sentence.js";
import { hideThreads, showThreads } from "./threads.js";

const KEY = "csn-task";
const SEEN = "csn-seen"; // the introduction
const KIND = "csn-kind";
const SETTLE = 1800; // ms after the pen was lifted, the next stroke begins a new drawing
const LIVE = 100; // ms between answers while the pen draws, at least
const failed = (message) => toast(message, { seconds: 6 });
const sheets = {
  drawings: new Ink($("paper"), $("nib")),
  photos: new Photo(failed),
  text: new Sentence($("sentence"), failed),
};
let kind = "drawings";
let sheet = sheets[kind]; // what is drawn, shown or written
const history = new History();
let task = null; // as the server describes it
let role = null; // in a class: "teacher" or "phone"
let classes = new Map(); // label -> examples
let answer = null;
let asking = null; // aborts the pending question
let settling = 0;
let glancing = false; // whether an answer for an unfinished drawing is pending
let nextGlance = 0; // time when the next one may be requested

/** Do something that may fail, and show a message if it does. */
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
      kept.remove(key());
      await refresh(null);
      toast("This task is no longer on the server. A new one begins with the next example.");
      return undefined;
    }
    if (!error.status && error.code !== "offline") console.error(error);
    toast([error.message, error.remedy].filter(Boolean).join(" "), { seconds: 6 });
    return undefined;
  }
}

const key = () => (kind === "drawings" ? KEY : `${KEY}-${kind}`); // the last task of this kind

/** Switch to another kind of input. */
function turnTo(wanted) {
  sheets.photos.stop();
  [kind, sheet] = [wanted, sheets[wanted]];
  document.body.dataset.kind = kind;
  kept.set(KIND, kind);
  document.querySelector(`#kinds [value="${kind}"]`).checked = true;
}

/** Continue with the last task of a kind. */
async function choose(wanted) {
  leave();
  turnTo(wanted);
  await attempt(async () => {
    const id = kept.get(key());
    await refresh(id ? await api.read(id) : null);
  });
}

/** Show a task (null: none yet) with its examples. `fresh` holds the ids of new examples. */
async function refresh(seen, fresh = []) {
  const examples = seen ? await api.examples(seen.id) : [];
  task = seen;
  if (task) kept.set(key(), task.id);
  dropActions();
  classes = showMemory(examples, kind, { add: teach, forget, forgetClass }, fresh);
  update();
}

/** The task to change. It is created when it is first needed. */
async function current() {
  if (!task) {
    const names = new Date().toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    task = await api.create(names, kind);
    kept.set(key(), task.id);
  }
  return task.id;
}

/** Update buttons and hints to match the input and the memory. */
function update() {
  $("invitation").classList.toggle("gone", !sheet.empty);
  $("clear").hidden = sheet.empty;
  $("teach").disabled = sheet.empty || !$("name").value.trim();
  $("undo").disabled = !history.last && (role || !task?.can_undo);
  for (const button of document.querySelectorAll(".add")) button.disabled = sheet.empty;
  if (!answer) showGuide(classes.size, !sheet.empty, kind);
}

function withdraw() {
  asking?.abort();
  clearTimeout(settling);
  answer = null;
  hideThreads();
  hideNeurons();
  markSources(null, []);
}

/** Show the network's neurons before and after their shifts. */
const look = () => attempt(async () => {
  const found = await api.shifts(task.id, await sheet.picture());
  if (answer) showNeurons(found, answer, classes);
});

function show(found, live) {
  answer = found;
  showAnswer(found, { confirm: teach, look }, { live });
  hideNeurons();
  markSources(found.label, found.examples);
  showThreads(found.examples, found.label !== null, !live);
  update();
}

/** Recognise the drawing after the pen was lifted. */
async function recognise() {
  clearTimeout(settling);
  if (!sheet.empty && classes.size) settling = setTimeout(() => sheet.settle(), SETTLE);
  await ask();
}

async function ask() {
  asking?.abort();
  if (sheet.empty || !classes.size) withdraw();
  update();
  if (sheet.empty || !classes.size) return;
  const { signal } = (asking = new AbortController());
  await attempt(async () => {
    const found = await api.explain(task.id, await sheet.picture(), signal);
    if (!signal.aborted && !sheet.drawing) show(found, false);
  });
}

/** Recognise the unfinished drawing. Asks again after each answer, but never twice within LIVE. */
async function glance() {
  const started = performance.now();
  if (glancing || !classes.size || started < nextGlance) return;
  glancing = true;
  const { signal } = (asking = new AbortController());
  try {
    const found = await api.explain(task.id, await sheet.picture(), signal);
    if (!signal.aborted && sheet.drawing) show(found, true);
  } catch {
    // an error is shown when the pen lifts and the question is asked again
  } finally {
    nextGlance = started + Math.max(LIVE, 2 * (performance.now() - started));
    glancing = false;
  }
}

/** Remember the drawing under a name. */
async function teach(label) {
  if (sheet.empty || !label.trim()) return;
  await attempt(async () => {
    const [picture, content] = [await sheet.picture(), sheet.content];
    const start = $("paper-box").getBoundingClientRect();
    const { waits, example, task: seen } = await api.add(await current(), picture, label);
    $("name").value = "";
    withdraw();
    history.add({ memory: !role, ink: content });
    sheet.restore();
    if (waits) {
      toast(`Your teacher is asked about “${label.trim()}”.`);
      update();
      return;
    }
    await refresh(seen, [example.id]);
    fly(example, start, kind);
    if (document.activeElement === $("name") && matchMedia("(hover: hover)").matches) sheet.element.focus({ focusVisible: false });
  });
}

/** Change the memory, show it, and offer an undo in a message. */
const change = (work, said = null) => attempt(async () => {
  asking?.abort(); // it would be answered from a memory that changes
  await refresh(await work());
  const step = role ? null : history.add({ memory: true }); // in a class the latest change may be somebody else's
  if (said) toast(said, step ? { action: ["Undo", () => undo(step)] } : {});
  await recognise();
});
const forget = (id) => role !== "phone" && change(() => api.removeExample(task.id, id));

function forgetClass(label) {
  const count = classes.get(label)?.length ?? 0;
  if (role === "phone" || (role && !confirm(`Forget “${label}” (${plural(count, KINDS[kind].one)})? This cannot be undone.`))) return undefined;
  return change(() => api.removeClass(task.id, label), `Forgot ${label} (${plural(count, KINDS[kind].one)}).`);
}

/** Undo a step. Without any on this page, the server may still have changes from before the page was opened. */
function undo(step = history.last) {
  if (!step && (role || !task?.can_undo)) return;
  history.remove(step);
  if (step && !step.memory) {
    sheet.restore(step.ink);
    return;
  }
  attempt(async () => {
    asking?.abort();
    await refresh(await api.undo(task.id));
    if (step?.ink) sheet.restore(step.ink);
    await recognise();
  });
}

/** Clear the paper and the history before another task is shown. */
function leave() {
  withdraw();
  sheet.restore();
  history.clear();
}

async function openTask(id) {
  await attempt(async () => {
    const seen = await api.read(id);
    leave();
    turnTo(kindOf(seen));
    await refresh(seen);
  });
}

async function newTask() {
  leave();
  kept.remove(key());
  await refresh(null);
}

const useSample = (name) => change(
  async () => api.addAlphabet(await current(), name),
  `${name} is learned. Copy one of its drawings.`,
);

/** Others taught the class something: show it, and ask again about what is on the paper. */
async function grow(id) {
  const known = new Set([...classes.values()].flat().map((example) => example.id));
  const seen = await api.read(id);
  await refresh(seen, seen.labels.flatMap(({ examples }) => examples).filter((example) => !known.has(example)));
  if (!sheet.drawing) await ask();
}

/** Keyboard shortcuts. They work except while the user types text. */
function shortcut(event) {
  if (event.isComposing) return; // Enter and Escape end a word of Chinese or Japanese
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !event.shiftKey) {
    if (event.target.matches("input, textarea") && event.target.value) return;
    event.preventDefault();
    undo();
    return;
  }
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    $("name").value = "";
    sheet.clear();
    sheet.element.focus({ focusVisible: false });
    return;
  }
  if (event.key === "Enter" && !event.shiftKey && event.target === $("sentence")) {
    event.preventDefault();
    $("name").focus();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea") || document.querySelector("dialog[open]")) {
    return;
  }
  const label = [...classes.keys()][Number(event.key) - 1];
  const actions = {
    "?": () => $("help-dialog").showModal(),
    n: () => $("name").focus(),
    d: () => sheet.element.focus({ focusVisible: true }),
    s: () => answer && kind === "drawings" && role !== "phone" && look(),
    y: () => answer?.label != null && teach(answer.label),
  };
  let action = actions[event.key.toLowerCase()];
  if (event.key === "Enter" && event.target === $("paper")) action = actions.n;
  if (label !== undefined && !sheet.empty) action = () => teach(label);
  if (!action) return;
  event.preventDefault();
  action();
}

/** Treat a picture that is dropped or pasted anywhere as a photograph. */
onPicture(async (event, file) => {
  event.preventDefault(); // the browser would leave the page to show the picture
  if ($("kinds").hidden || !document.querySelector('#kinds [value="photos"]:enabled')) {
    toast("This page does not take photographs. Draw the symbol with the pen.", { seconds: 6 });
    return;
  }
  if (kind !== "photos") await choose("photos");
  await sheets.photos.take(file);
});

for (const one of Object.values(sheets)) {
  one.addEventListener("change", ({ detail }) => history.add({ ink: detail }));
  one.addEventListener("touch", () => {
    asking?.abort();
    clearTimeout(settling);
    if (kind === "drawings" && one.strokes.length === 1) withdraw();
    update();
  });
  one.addEventListener("move", glance);
  one.addEventListener("lift", () => one === sheet && recognise());
}
$("kinds").onchange = ({ target }) => choose(target.value);
document.addEventListener("keydown", shortcut);
$("clear").onclick = () => sheet.clear();
$("undo").onclick = () => undo();
$("name").oninput = update;
$("name-form").onsubmit = (event) => {
  event.preventDefault();
  teach($("name").value);
};

$("replay").onclick = () => {
  $("help-dialog").close();
  playIntro();
};

takeTokenFromAddress();
setUpDialogs(() => task?.id ?? null, { attempt, openTask, newTask });
await attempt(async () => {
  const about = await api.about();
  const kinds = about.role ? ["drawings"] : (about.kinds ?? ["drawings"]);
  role = about.role ?? null;
  $("kinds").hidden = kinds.length < 2;
  for (const radio of document.querySelectorAll("#kinds input")) {
    radio.disabled = radio.parentElement.hidden = !kinds.includes(radio.value);
  }
  const last = kept.get(KIND);
  turnTo(kinds.includes(last) ? last : "drawings");
});
if (role) await watchClass(role, { attempt, grow });
else await choose(kind);
if (role !== "phone") await attempt(() => showSamples(useSample));
await attempt(showAbout);
if (!classes.size && !calm() && !kept.get(SEEN)) playIntro();
kept.set(SEEN, "yes");
document.documentElement.dataset.ready = "yes";

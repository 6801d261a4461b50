/* The dialogs: samples, tasks, help and the token. */

import { api, setToken } from "./api.js";
import { $, make, plural, toast } from "./dom.js";
import { counted, KINDS, kindOf } from "./kinds.js";

/** `task` gives the current task's id; `on` holds openTask(id), useSample(name), newTask(), attempt(work). */
export function setUpDialogs(task, on) {
  $("open-help").onclick = () => $("help-dialog").showModal();
  $("open-samples").onclick = () => $("samples-dialog").showModal();
  $("open-tasks").onclick = () => on.attempt(async () => {
    await listTasks(task, on);
    if (!$("tasks-dialog").open) $("tasks-dialog").showModal();
  });
  $("new-task").onclick = () => close(on.newTask);
  $("download").onclick = () => on.attempt(() => download(task()));
  $("load").onclick = () => $("file").click();
  $("file").onchange = () => on.attempt(async () => {
    const [file] = $("file").files;
    $("file").value = "";
    if (!file) return;
    const loaded = await api.upload(file);
    await close(() => on.openTask(loaded.id));
    toast(`Loaded ${counted(loaded.classes, kindOf(loaded))}.`);
  });
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog && dialog.id !== "token-dialog") dialog.close(); // the backdrop
    });
  }
}

async function close(work) {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  await work();
}

export async function showSamples(use) {
  const alphabets = await api.alphabets();
  for (const place of ["empty-samples", "dialog-samples"]) {
    $(place).replaceChildren(
      ...alphabets.map(({ name, pictures }) =>
        make(
          "button",
          { type: "button", class: "sample", onclick: () => close(() => use(name)), dataset: { name } },
          make("b", {}, name),
          make("div", {}, ...pictures.map((src) => make("img", { src, alt: "" }))),
        ),
      ),
    );
  }
}

export async function showAbout() {
  const { version, model, way } = await api.about();
  $("about").textContent = `csn ${version}, model ${model}, ${way} classes in one match.`;
}

async function listTasks(task, on) {
  const tasks = await api.tasks();
  $("download").disabled = !tasks.some(({ id, examples }) => id === task() && examples > 0);
  $("tasks").replaceChildren(
    ...tasks.map((seen) => {
      const { id, name, classes, examples } = seen;
      const about = `${counted(classes, kindOf(seen))}, ${plural(examples, KINDS[kindOf(seen)].one)}`;
      const open = make(
        "button",
        { type: "button", class: "quiet open-task", onclick: () => close(() => on.openTask(id)) },
        make("bdi", {}, name),
        make("span", {}, about),
      );
      const remove = make("button", {
        type: "button",
        class: "quiet",
        textContent: "Delete",
        ariaLabel: `Delete ${name}`,
        onclick: () => on.attempt(async () => {
          if (!confirm(`Delete “${name}” (${about})? This cannot be undone.`)) return;
          await api.remove(id);
          if (id === task()) await on.newTask();
          await listTasks(task, on);
        }),
      });
      return make("li", { class: id === task() ? "current" : "" }, open, remove);
    }),
  );
}

async function download(task) {
  const link = make("a", { href: URL.createObjectURL(await api.download(task)), download: "task.csn" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Ask until a token is given. */
export function askForToken() {
  return new Promise((resolve) => {
    const dialog = $("token-dialog");
    $("token-form").onsubmit = (event) => {
      event.preventDefault();
      setToken($("token").value);
      dialog.close();
      resolve();
    };
    dialog.oncancel = (event) => event.preventDefault();
    if (!dialog.open) dialog.showModal();
  });
}

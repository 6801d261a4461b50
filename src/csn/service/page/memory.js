/* The memory: a card for every class with its drawings. */

import { $, calm, make, plural } from "./dom.js";
import { counted, KINDS } from "./kinds.js";

/** Show examples {id, label, picture, text} of a kind. `on` holds the actions add(label), forget(id), forgetClass(label). */
export function showMemory(examples, kind, on, fresh = []) {
  const { one } = KINDS[kind];
  const classes = new Map();
  for (const example of examples) {
    if (!classes.has(example.label)) classes.set(example.label, []);
    classes.get(example.label).push(example);
  }
  $("classes").replaceChildren(...[...classes].map(([label, some], i) => card(label, some, i, one, on, fresh)));
  $("empty").hidden = classes.size > 0;
  $("count").textContent = classes.size
    ? `${counted(classes.size, kind)}, ${plural(examples.length, one)}`
    : "nothing yet";
  $("known-names").replaceChildren(...[...classes.keys()].map((label) => make("option", { value: label })));
  return classes;
}

function card(label, examples, place, one, on, fresh) {
  const add = make("button", {
    type: "button",
    class: "quiet add",
    textContent: "+",
    title: place < 9 ? `Add the ${one} to this class (${place + 1})` : `Add the ${one} to this class`,
    ariaLabel: `Add the ${one} to ${label}`,
    onclick: () => on.add(label),
  });
  const forget = make("button", {
    type: "button",
    class: "quiet forget",
    textContent: "×",
    title: "Forget this class",
    ariaLabel: `Forget ${label}`,
    onclick: () => on.forgetClass(label),
  });
  const name = make("bdi", { textContent: label, title: label });
  const thumbs = examples.map((example, i) => thumb(example, i, one, on, fresh.includes(example.id)));
  const item = make(
    "li",
    { class: "class", dataset: { label } },
    make("div", { class: "class-head" }, name, add, forget),
    make("div", { class: "thumbs" }, ...thumbs),
  );
  item.addEventListener("keydown", (event) => {
    if (event.key !== "Delete") return;
    const of = event.target.closest(".thumb");
    if (of) on.forget(of.dataset.id);
    else on.forgetClass(label);
  });
  return item;
}

function thumb(example, i, one, on, fresh) {
  const shown = example.picture
    ? make("img", { src: example.picture, alt: "", draggable: false })
    : make("p", { textContent: example.text || `${one} ${i + 1}`, dir: "auto", title: example.text ?? "" });
  const forget = make("button", {
    type: "button",
    textContent: "×",
    title: `Forget this ${one}`,
    ariaLabel: `Forget ${one} ${i + 1} of ${example.label}`,
    onclick: () => on.forget(example.id),
  });
  const look = !example.picture ? "words" : example.picture.startsWith("data:image/jpeg") ? "photo" : "";
  return make("div", { class: `thumb ${look} ${fresh ? "new" : ""}`, dataset: { id: example.id } }, shown, forget);
}

/** Mark the class that was recognised and the drawings that counted: {id, weight}. */
export function markSources(label, sources) {
  const weights = new Map(sources.map(({ id, weight }) => [id, weight]));
  for (const element of document.querySelectorAll(".thumb")) {
    element.style.setProperty("--weight", weights.get(element.dataset.id) ?? 0);
  }
  for (const element of document.querySelectorAll(".class")) {
    element.classList.toggle("chosen", label !== null && element.dataset.label === label);
  }
}

/** The drawing moves from the paper, at `start`, to its place in memory. */
export function fly({ id, picture }, start, kind) {
  const target = thumbOf(id);
  if (!target || !picture || calm()) return;
  const end = target.getBoundingClientRect();
  const image = Object.assign(new Image(), { src: picture, className: "flying" });
  if (kind === "drawings" && matchMedia("(prefers-color-scheme: dark)").matches) image.style.filter = "invert(1)";
  Object.assign(image.style, { left: `${end.left}px`, top: `${end.top}px`, width: `${end.width}px`, height: `${end.height}px` });
  document.body.append(image);
  const from = `translate(${start.left - end.left}px, ${start.top - end.top}px) scale(${start.width / end.width})`;
  image.style.transformOrigin = "0 0";
  image
    .animate([{ transform: from }, { transform: "none" }], { duration: 520, easing: "cubic-bezier(.3,.7,.2,1)" })
    .finished.finally(() => image.remove());
}

export function thumbOf(id) {
  return document.querySelector(`.thumb[data-id="${CSS.escape(id)}"]`);
}

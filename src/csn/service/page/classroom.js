/* A class: many phones teach one memory. All screens follow it; the teacher's shows the way in and decides about names. */

import { api } from "./api.js";
import { $, make, plural } from "./dom.js";

const EVERY = { teacher: 1500, phone: 4000 }; // ms
const SHOWN = 3; // drawings of a name

/** `on` holds attempt(work) and grow(task), which is called whenever the memory has changed. */
export async function watchClass(role, on) {
  document.body.dataset.role = role;
  const settle = (work) => on.attempt(async () => {
    await work();
    await look();
  });
  let last = null;
  async function look() {
    const room = await api.classroom();
    if (role === "teacher") show(room, settle);
    if (room.changed !== last) await on.grow(room.task);
    last = room.changed;
  }
  const next = () => setTimeout(async () => {
    if (!document.hidden) await look().catch(() => {}); // what the person does next says what is wrong
    next();
  }, EVERY[role]);
  await on.attempt(look);
  next();
}

/** The way in, and the names that wait. */
function show({ door, waiting }, settle) {
  $("class-door").hidden = false;
  $("class").hidden = waiting.length === 0;
  if (!$("class-code").src) $("class-code").src = door.qr;
  $("class-address").textContent = door.address.replace("http://", "");
  $("class-key").textContent = door.key;
  const said = JSON.stringify(waiting.map(({ label, pictures }) => [label, pictures.length]));
  if ($("waiting").dataset.said === said) return; // a button stays where it is about to be pressed
  $("waiting").dataset.said = said;
  $("waiting-title").textContent = `${plural(waiting.length, "new name")} to decide about`;
  $("waiting").replaceChildren(...waiting.map(({ label, pictures }) => {
    const button = (text, name, work) => make("button", {
      type: "button", class: name, textContent: text, ariaLabel: `${text} ${label}`, onclick: () => settle(work),
    });
    return make("li", { dataset: { label } },
      make("div", { class: "drawings" }, ...pictures.slice(0, SHOWN).map((src) => make("img", { src, alt: "" }))),
      make("bdi", { textContent: label, title: label }),
      make("span", {}, pictures.length > 1 ? plural(pictures.length, "drawing") : ""),
      make("div", { class: "decide" },
        button("Let in", "pass", () => api.letPass(label)),
        button("Refuse", "quiet refuse", () => api.refuse(label))));
  }));
}

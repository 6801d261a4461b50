/* Small helpers. Text from users is only set as textContent or as a property, never as markup. */

export const $ = (id) => document.getElementById(id);

/** An element with properties and children; `dataset` and `class` too. */
export function make(tag, { dataset = {}, class: name, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  if (name) element.className = name;
  Object.assign(element.dataset, dataset);
  element.append(...children);
  return element;
}

/** The browser's storage. If it refuses (as a private window may), values are kept only while the page is open. */
export const kept = {
  get: (name, where = () => localStorage) => tried(() => where().getItem(name)) ?? null,
  set: (name, value, where = () => localStorage) => tried(() => where().setItem(name, value)),
  remove: (name) => tried(() => localStorage.removeItem(name)),
  names: () => tried(() => Object.keys(localStorage)) ?? [],
};

function tried(work) {
  try {
    return work();
  } catch {
    return null;
  }
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export function percent(part) {
  if (part > 0.995) return "> 99 %";
  return part < 0.01 ? "< 1 %" : `${Math.round(100 * part)} %`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

/** Show a message. `action` is a button next to it: [text, function]. */
export function toast(text, { seconds = 4, action = null } = {}) {
  const element = make("p", { class: "toast" }, text);
  if (action) {
    const [name, work] = action;
    const button = make("button", { type: "button", class: "action", textContent: name });
    button.onclick = () => {
      element.remove();
      work();
    };
    element.append(button);
  }
  $("toasts").append(element);
  setTimeout(() => element.remove(), 1000 * (action ? 2 * seconds : seconds));
}

/** Remove the messages whose buttons no longer work. */
export function dropActions() {
  for (const button of document.querySelectorAll(".toast .action")) button.parentElement.remove();
}

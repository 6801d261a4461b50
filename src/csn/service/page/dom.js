/* Small helpers. Text from people is only ever set as textContent or as a property, never as markup. */

export const $ = (id) => document.getElementById(id);

/** An element with properties and children; `dataset` and `class` too. */
export function make(tag, { dataset = {}, class: name, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  if (name) element.className = name;
  Object.assign(element.dataset, dataset);
  element.append(...children);
  return element;
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export function percent(part) {
  if (part > 0.995) return "> 99 %";
  return part < 0.01 ? "< 1 %" : `${Math.round(100 * part)} %`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

export function toast(text, seconds = 4) {
  const element = make("p", { class: "toast" }, text);
  $("toasts").append(element);
  setTimeout(() => element.remove(), 1000 * seconds);
}

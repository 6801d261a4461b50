/* Shows the neurons of the adapted layers before and after the recalled shifts. One small square is a neuron (in a
   convolution, a filter). The stronger its colour, the more active it is. */

import { $, make } from "./dom.js";

const RECALLED = 4; // examples
const CLASSES = 4;
const CHANGED = 0.04; // of a layer's strongest activation: a smaller change is not coloured
const STEP = 0.25; // seconds from layer to layer
const SVG = "http://www.w3.org/2000/svg";

export function hideNeurons() {
  $("neurons").hidden = true;
  $("neurons").replaceChildren();
}

/** {layers, classes} of the shifts; the answer with its sources; label -> examples. */
export function showNeurons({ layers, classes }, { examples: sources }, remembered) {
  const pictures = new Map([...remembered.values()].flat().map(({ id, picture }) => [id, picture]));
  const of = (label) => remembered.get(label)?.[0].picture ?? "";
  const recalled = sources.slice(0, RECALLED).map(({ id, weight }) => {
    const image = make("img", { src: pictures.get(id) ?? "", alt: "" });
    image.style.opacity = 0.25 + 0.75 * weight;
    return image;
  });
  const shown = classes.slice(0, CLASSES);
  const row = (title, left, when) => [
    make("p", { class: "row-title" }, title),
    make("div", { class: "recalled" }, ...left),
    make("div", { class: "layers" }, ...layers.map((layer, t) => grid(layer, when, t))),
    bars(shown, when, of, layers.length),
  ];
  const close = make("button", { type: "button", class: "quiet close", textContent: "×", ariaLabel: "Close the neurons", onclick: hideNeurons });
  const flow = make("div", { class: "flow" }, ...row("The network alone", [], "before"), ...row("Shifted by what it recalls", recalled, "after"));
  const note = make("p", {}, "One square is a neuron: the stronger its colour, the more active it is. Blue neurons rose, rust ones fell.");
  $("neurons").replaceChildren(close, flow, note);
  $("neurons").hidden = false;
  // The lower row begins as the upper one, and moves.
  requestAnimationFrame(() => requestAnimationFrame(() => {
    for (const element of $("neurons").querySelectorAll("[data-to]")) {
      if (element.dataset.kind) element.classList.add(element.dataset.kind);
      if (element.localName === "rect") element.style.fillOpacity = element.dataset.to;
      else element.style.setProperty("--share", element.dataset.to);
    }
  }));
}

/** A layer as a square of squares. */
function grid({ before, after }, when, t) {
  const most = Math.max(...before, ...after, 1e-9);
  const least = Math.min(0, ...before, ...after);
  const part = (value) => Math.sqrt((value - least) / (most - least)).toFixed(3); // so that small ones can be seen
  const columns = Math.ceil(Math.sqrt(before.length));
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${columns} ${Math.ceil(before.length / columns)}`);
  svg.setAttribute("aria-hidden", "true");
  before.forEach((value, i) => {
    const cell = document.createElementNS(SVG, "rect");
    for (const [name, number] of Object.entries({ x: (i % columns) + 0.08, y: Math.floor(i / columns) + 0.08, width: 0.84, height: 0.84, rx: 0.2 })) {
      cell.setAttribute(name, number);
    }
    cell.style.fillOpacity = part(value);
    if (when === "after") {
      cell.style.setProperty("--wait", `${STEP * (t + 1)}s`);
      cell.dataset.to = part(after[i]);
      const change = (after[i] - value) / (most - least);
      if (Math.abs(change) > CHANGED) cell.dataset.kind = change > 0 ? "more" : "less";
    }
    svg.append(cell);
  });
  return svg;
}

function bars(classes, when, of, layers) {
  const parts = classes.flatMap((one) => {
    const bar = make("i", { ariaHidden: "true" });
    bar.style.setProperty("--share", one.before);
    if (when === "after") {
      bar.style.setProperty("--wait", `${STEP * (layers + 1)}s`);
      bar.dataset.to = one.after;
    }
    const percent = `${Math.round(100 * one[when])} %`;
    return [make("img", { src: of(one.label), alt: one.label }), make("span", { title: percent }, bar)];
  });
  return make("div", { class: "bars" }, ...parts);
}

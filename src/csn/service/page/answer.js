/* The answer, or what to do next. */

import { $, make, percent } from "./dom.js";

const SHOWN = 4;

/** What to do next, by how much is remembered and whether something is drawn. */
export function showGuide(classes, drawn) {
  const [title, note] = guide(classes, drawn);
  put("guide", title, "", note);
}

function guide(classes, drawn) {
  if (drawn && classes === 0) return ["Now give it a name.", "It will remember this one drawing. That is enough."];
  if (drawn) return ["", ""];
  if (classes === 0) return ["Draw a symbol.", "Any symbol you like. It learns yours from a single drawing."];
  if (classes === 1) return ["Now draw another symbol.", "Name it too, and there are two to tell apart."];
  return ["Draw one of them again.", "It is recognised as your pen lifts, or unknown if it is like none of them."];
}

/** An answer of the server; confirm(label) is called when the person says that it is right. */
export function showAnswer({ label, probabilities }, confirm) {
  if (label === null) {
    put("unknown", "unknown", "", "Like nothing remembered. Give it a name, and it is.");
  } else {
    const right = make("button", { type: "button", id: "right", title: "Y", onclick: () => confirm(label) });
    right.append("Right, add this one");
    put("known", label, percent(probabilities[0].probability), right);
  }
  $("chances").replaceChildren(
    ...(probabilities.length > 1 ? probabilities.slice(0, SHOWN) : []).map(({ label: name, probability }) => {
      const bar = make("i", { ariaHidden: "true" });
      requestAnimationFrame(() => bar.style.setProperty("--share", probability));
      return make("li", {}, make("bdi", { textContent: name, title: name }), bar, make("span", {}, percent(probability)));
    }),
  );
}

function put(kind, label, share, note) {
  const element = $("answer");
  const same = element.classList.contains(kind) && $("verdict-label").textContent === label;
  element.className = kind;
  $("verdict-label").textContent = label;
  $("verdict-share").textContent = share;
  $("verdict-note").replaceChildren(note);
  $("chances").replaceChildren();
  if (!same) {
    void element.offsetWidth; // so that the animation begins anew
    element.classList.add("fresh");
  }
}

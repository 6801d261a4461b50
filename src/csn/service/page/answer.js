/* The answer, or what to do next. */

import { $, make, percent } from "./dom.js";
import { KINDS } from "./kinds.js";

const SHOWN = 4;

/** What to do next. It depends on the number of classes and on whether something is drawn (or shown, or written). */
export function showGuide(classes, drawn, kind) {
  const [title, note] = guide(classes, drawn, KINDS[kind]);
  put("guide", title, "", note);
}

function guide(classes, drawn, { one, begin, more, ask }) {
  if (drawn && classes === 0) return ["Now give it a name.", `It will remember this one ${one}. That is enough.`];
  if (drawn) return ["", ""];
  if (classes === 0) return begin;
  return classes === 1 ? more : ask;
}

/** An answer; on.confirm(label) is called when the person says that it is right, on.look() to see the neurons.
    live: the pen still draws. */
export function showAnswer({ label, probabilities }, on, { live = false } = {}) {
  const look = make("button", { type: "button", class: "quiet of-drawings", id: "look", title: "S", onclick: on.look });
  look.append("See the neurons shift");
  const several = probabilities.length > 1;
  if (label === null) {
    const [nearest] = probabilities;
    put("unknown", "unknown", "", [
      `Like nothing remembered${several ? `; nearest is ${nearest.label}` : ""}. Name it to teach it. `,
      look,
    ]);
  } else {
    const right = make("button", { type: "button", id: "right", title: "Y", onclick: () => on.confirm(label) });
    right.append("Right, add this one");
    put("known", label, percent(probabilities[0].probability), [right, look]);
  }
  $("answer").classList.toggle("live", live);
  $("answer").ariaBusy = String(live); // a screen reader waits for the final answer
  $("chances").replaceChildren(
    // For an unknown input, the probabilities of known classes mean nothing.
    ...(several && label !== null ? probabilities.slice(0, SHOWN) : []).map(({ label: name, probability }) => {
      const bar = make("i", { ariaHidden: "true" });
      if (live) bar.style.setProperty("--share", probability);
      else requestAnimationFrame(() => bar.style.setProperty("--share", probability));
      return make("li", {}, make("bdi", { textContent: name, title: name }), bar, make("span", {}, percent(probability)));
    }),
  );
}

function put(kind, label, share, note) {
  const element = $("answer");
  const same = element.classList.contains(kind) && $("verdict-label").textContent === label;
  element.className = kind;
  element.ariaBusy = "false";
  $("verdict-label").textContent = label;
  $("verdict-share").textContent = share;
  $("verdict-note").replaceChildren(...[note].flat());
  $("chances").replaceChildren();
  if (!same) {
    void element.offsetWidth; // restarts the animation
    element.classList.add("fresh");
  }
}

/* A five-second introduction: a star is drawn, named, drawn again and recognised. A key or a touch ends it. */

import { $ } from "./dom.js";

const SECONDS = 5;
const CAPTIONS = [[0, "Draw something."], [1500, "Call it “star”."], [2800, "Draw it again."], [4100, "It knows: star."]];
const EVENTS = ["keydown", "pointerdown", "visibilitychange"];
let timers = [];

export function playIntro() {
  endIntro();
  $("intro").hidden = false;
  timers = CAPTIONS.map(([when, text]) => setTimeout(() => ($("intro-caption").textContent = text), when));
  timers.push(setTimeout(endIntro, 1000 * SECONDS));
  for (const name of EVENTS) document.addEventListener(name, endIntro, { capture: true });
}

function endIntro() {
  timers.forEach(clearTimeout);
  timers = [];
  $("intro").hidden = true;
  for (const name of EVENTS) document.removeEventListener(name, endIntro, { capture: true });
}

/* Lines from the drawing to the examples it was recognised by: the more attention, the heavier. */

import { $ } from "./dom.js";
import { thumbOf } from "./memory.js";

const LEAST = 0.03; // of the attention: fainter lines say nothing
const MOST = 8; // lines
const HEAVIEST = 6; // pixels
const SVG = "http://www.w3.org/2000/svg";
let shown = null;

export function showThreads(sources, known) {
  shown = { sources: sources.filter(({ weight }) => weight >= LEAST).slice(0, MOST), known };
  draw(true);
}

export function hideThreads() {
  shown = null;
  $("threads").replaceChildren();
}

function draw(moving) {
  const svg = $("threads");
  svg.replaceChildren();
  if (!shown) return;
  svg.classList.toggle("unknown", !shown.known);
  const origin = document.body.getBoundingClientRect();
  const paper = $("paper-box").getBoundingClientRect();
  const wide = $("memory").getBoundingClientRect().left > paper.right - 1;
  for (const { id, weight } of [...shown.sources].reverse()) {
    const box = thumbOf(id)?.getBoundingClientRect();
    if (!box) continue;
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", wide ? sideways(paper, box, origin) : downwards(paper, box, origin));
    path.setAttribute("pathLength", "1");
    path.setAttribute("stroke-dasharray", "1");
    path.setAttribute("stroke-width", Math.max(1, HEAVIEST * weight).toFixed(2));
    path.setAttribute("stroke-opacity", (0.3 + 0.4 * weight).toFixed(2));
    if (!moving) path.style.animation = "none";
    svg.append(path);
  }
}

function sideways(paper, box, origin) {
  const [x, y] = [paper.right - origin.left, paper.top + paper.height / 2 - origin.top];
  const [a, b] = [box.left - origin.left - 3, box.top + box.height / 2 - origin.top];
  const bend = Math.max(40, (a - x) / 2);
  return `M${x} ${y} C${x + bend} ${y} ${a - bend} ${b} ${a} ${b}`;
}

function downwards(paper, box, origin) {
  const [x, y] = [paper.left + paper.width / 2 - origin.left, paper.bottom - origin.top];
  const [a, b] = [box.left + box.width / 2 - origin.left, box.top - origin.top - 3];
  const bend = Math.max(30, (b - y) / 2);
  return `M${x} ${y} C${x} ${y + bend} ${a} ${b - bend} ${a} ${b}`;
}

new ResizeObserver(() => draw(false)).observe(document.body);
addEventListener("scroll", () => shown && draw(false), { passive: true }); // the paper stays, the memory moves

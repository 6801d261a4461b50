/* Lines from the drawing to the examples that decided the answer. More attention makes a heavier line.

   Lines avoid the cards: they run down the gutter, along the gap below a row, and up to the example. */

import { $ } from "./dom.js";
import { thumbOf } from "./memory.js";

const LEAST = 0.03; // least attention that gets a line
const MOST = 8; // lines
const HEAVIEST = 6; // pixels
const CORNER = 12; // pixels, the radius of a bend
const LANES = [0, -3, 3, -5, 5]; // offsets from the middle of a gap in pixels, so that lines do not overlap
const SVG = "http://www.w3.org/2000/svg";
let shown = null;

export function showThreads(sources, known, moving = true) {
  shown = { sources: sources.filter(({ weight }) => weight >= LEAST).slice(0, MOST), known };
  draw(moving);
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
  const memory = $("classes").getBoundingClientRect();
  shown.sources.forEach(({ id, weight }, i) => {
    const thumb = thumbOf(id);
    if (!thumb) return;
    const points = route(paper, memory, thumb, LANES[i % LANES.length]);
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", rounded(points.map(([x, y]) => [x - origin.left, y - origin.top])));
    path.setAttribute("pathLength", "1");
    path.setAttribute("stroke-dasharray", "1");
    path.setAttribute("stroke-width", Math.max(1.5, HEAVIEST * weight).toFixed(2));
    path.setAttribute("stroke-opacity", (0.35 + 0.4 * weight).toFixed(2));
    if (!moving) path.style.animation = "none";
    svg.prepend(path); // the heaviest on top
  });
}

/** Corners of the way from the paper to an example. */
function route(paper, memory, thumb, lane) {
  const [box, card] = [thumb.getBoundingClientRect(), thumb.closest(".class").getBoundingClientRect()];
  const gap = parseFloat(getComputedStyle($("classes")).rowGap);
  const below = card.bottom + gap / 2 + lane;
  const x = box.left + box.width / 2;
  const end = [[x, below], [x, box.bottom + 2]];
  const middle = paper.top + paper.height / 2 + 2 * lane;
  if (memory.left > paper.right) {
    const gutter = (paper.right + memory.left) / 2 + 2 * lane;
    return [[paper.right, middle], [gutter, middle], [gutter, below], ...end];
  }
  const left = x < paper.left + paper.width / 2; // one column: down the margin that is nearer
  const [from, edge] = left ? [paper.left, Math.min(paper.left, memory.left)] : [paper.right, Math.max(paper.right, memory.right)];
  const margin = edge + (left ? -1 : 1) * (8 + lane / 2);
  return [[from, middle], [margin, middle], [margin, below], ...end];
}

/** A path through points, with round corners. */
function rounded(points) {
  const parts = [`M${points[0]}`];
  for (let i = 1; i < points.length - 1; i++) {
    const [before, at, after] = [points[i - 1], points[i], points[i + 1]];
    const radius = Math.min(CORNER, distance(before, at) / 2, distance(at, after) / 2);
    parts.push(`L${towards(at, before, radius)}Q${at} ${towards(at, after, radius)}`);
  }
  parts.push(`L${points.at(-1)}`);
  return parts.join("");
}

const distance = ([a, b], [c, d]) => Math.hypot(a - c, b - d);

function towards(from, to, length) {
  const part = length / (distance(from, to) || 1);
  return from.map((place, axis) => place + part * (to[axis] - place));
}

new ResizeObserver(() => draw(false)).observe(document.body);
addEventListener("scroll", () => shown && draw(false), { passive: true }); // the paper stays, the memory moves

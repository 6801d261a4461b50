/* The paper: strokes by mouse, finger, pen or keyboard, and the picture of them that the server sees.

   A stroke is a list of points [x, y] in parts of the paper's side. Events: "change" before the strokes change, with
   the strokes there were; "touch" and "lift" of the pen; "move" while it draws. */

const PICTURE = 112; // pixels on a side of the picture that is sent
const PEN = 4; // of these pixels: about one of the 28 that the network sees
const FILL = 0.7; // share of the picture's side that a drawing fills
const ZOOM = [0.6, 2.2]; // a dot stays a dot

export class Ink extends EventTarget {
  strokes = [];
  settled = false;
  #pen = null; // the pointer that draws
  #nib = [0.5, 0.5]; // position of the keyboard's pen
  #nibDown = false;

  constructor(canvas, nib) {
    super();
    this.element = this.canvas = canvas;
    this.nib = nib;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.#up(event));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => this.#hideNib());
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  get empty() {
    return this.strokes.length === 0;
  }

  get content() {
    return this.strokes;
  }

  get drawing() {
    return this.#pen !== null || this.#nibDown;
  }

  /** The drawing is finished: the next stroke begins a new one. */
  settle() {
    if (this.empty || this.drawing) return;
    this.settled = true;
    this.canvas.classList.add("settled");
  }

  clear() {
    if (!this.empty) this.#change([]);
    this.#nibDown = false;
    this.#say("lift");
  }

  /** Show other strokes, without an event that they changed. */
  restore(strokes = []) {
    this.#unsettle();
    this.strokes = strokes;
    this.#nibDown = false;
    this.draw();
    this.#say("lift");
  }

  draw() {
    const side = Math.round(this.canvas.clientWidth * devicePixelRatio);
    if (!side) return;
    if (this.canvas.width !== side) this.canvas.width = this.canvas.height = side;
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, side, side);
    trace(pen, this.strokes, side, 0, 0, Math.max(side / 56, 4), getComputedStyle(this.canvas).color);
  }

  /** The drawing, centred on white paper. Its size and pen width do not depend on the screen. */
  picture() {
    const canvas = Object.assign(document.createElement("canvas"), { width: PICTURE, height: PICTURE });
    const pen = canvas.getContext("2d");
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, PICTURE, PICTURE);
    const [left, top, right, bottom] = this.box();
    const zoom = Math.min(Math.max(FILL / Math.max(right - left, bottom - top, 1e-3), ZOOM[0]), ZOOM[1]);
    const scale = zoom * PICTURE;
    const [x, y] = [(left + right) / 2, (top + bottom) / 2].map((middle) => PICTURE / 2 - middle * scale);
    trace(pen, this.strokes, scale, x, y, PEN, "#000");
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  }

  /** Left, top, right and bottom of the ink. */
  box() {
    const points = this.strokes.flat();
    const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
    return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
  }

  #say(name) {
    this.dispatchEvent(new Event(name));
  }

  #change(strokes) {
    this.dispatchEvent(new CustomEvent("change", { detail: this.strokes }));
    this.#unsettle();
    this.strokes = strokes;
    this.draw();
  }

  #unsettle() {
    this.settled = false;
    this.canvas.classList.remove("settled");
  }

  #begin(point) {
    this.#change([...(this.settled ? [] : this.strokes), [point]]);
    this.#say("touch");
  }

  #extend(point) {
    this.strokes.at(-1).push(point);
    this.draw();
    this.#say("move");
  }

  #place(event) {
    const { left, top, width } = this.canvas.getBoundingClientRect();
    return width ? [(event.clientX - left) / width, (event.clientY - top) / width] : null; // paper of no size has no places
  }

  #down(event) {
    if (this.#pen !== null || (event.pointerType === "mouse" && event.button !== 0)) return;
    const point = this.#place(event);
    if (!point) return;
    event.preventDefault(); // avoid selecting text; the focus is set below
    this.canvas.focus({ preventScroll: true, focusVisible: false });
    this.#hideNib();
    this.#pen = event.pointerId;
    this.canvas.setPointerCapture(event.pointerId);
    this.#begin(point);
  }

  #move(event) {
    if (event.pointerId !== this.#pen) return;
    const events = event.getCoalescedEvents?.() ?? [];
    const points = (events.length ? events : [event]).map((part) => this.#place(part));
    this.strokes.at(-1).push(...points.filter(Boolean));
    this.draw();
    this.#say("move");
  }

  #up(event) {
    if (event.pointerId !== this.#pen) return;
    this.#pen = null;
    this.#say("lift");
  }

  #key(event) {
    const step = event.shiftKey ? 0.01 : 0.04;
    const [dx, dy] =
      { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (dx || dy) {
      const [x, y] = this.#nib;
      this.#nib = [x + dx * step, y + dy * step].map((part) => Math.min(Math.max(part, 0.02), 0.98));
      if (this.#nibDown) this.#extend(this.#nib);
    } else if (event.key === " ") {
      this.#nibDown = !this.#nibDown;
      if (this.#nibDown) this.#begin(this.#nib);
      else this.#say("lift");
    } else return;
    event.preventDefault();
    this.nib.hidden = false;
    this.nib.classList.toggle("down", this.#nibDown);
    [this.nib.style.left, this.nib.style.top] = this.#nib.map((part) => `${100 * part}%`);
  }

  #hideNib() {
    this.nib.hidden = true;
    if (this.#nibDown) {
      this.#nibDown = false;
      this.#say("lift");
    }
  }
}

/** Smooth strokes: curves between the midpoints of neighbouring points, with the points as control points. */
function trace(pen, strokes, scale, x, y, width, colour) {
  Object.assign(pen, { lineWidth: width, lineCap: "round", lineJoin: "round", strokeStyle: colour });
  for (const stroke of strokes) {
    const points = stroke.map(([a, b]) => [x + a * scale, y + b * scale]);
    pen.beginPath();
    pen.moveTo(...points[0]);
    for (let i = 1; i < points.length - 1; i++) {
      const [[a, b], [c, d]] = [points[i], points[i + 1]];
      pen.quadraticCurveTo(a, b, (a + c) / 2, (b + d) / 2);
    }
    const [endX, endY] = points.at(-1);
    pen.lineTo(endX + (points.length === 1 ? 0.01 : 0), endY); // a dot needs some length to be drawn
    pen.stroke();
  }
}

/* A photograph that was dropped, pasted, chosen or taken. It has the interface of Ink; its content is a JPEG or null. */

import { $ } from "./dom.js";

const SIDE = 448; // pixels on the shorter side of the picture that is sent: twice the network's input
const LONGEST = 8192; // on the longer side: browsers silently draw nothing on much longer canvases
const QUALITY = 0.92;
const UNREADABLE = "The browser cannot read this file as a photograph. Give a JPEG or PNG file. If it is one, it may be "
  + "too large: scale it down to less than 10,000 pixels on a side.";
const NO_PICTURE = "The browser could not take the picture. Choose a file instead.";

export class Photo extends EventTarget {
  content = null;
  drawing = false;
  element = $("photo-choose");
  #url = null;
  #stream = null;
  #turn = 0; // filming that was asked for in an earlier turn no longer counts

  constructor(failed) {
    super();
    this.failed = failed; // called with a message
    $("photo-choose").onclick = () => $("photo-file").click();
    $("photo-file").onchange = ({ target }) => {
      const [file] = target.files;
      target.value = "";
      if (file) this.take(file);
    };
    $("camera").hidden = !navigator.mediaDevices?.getUserMedia;
    $("camera").onclick = () => (this.#stream ? this.#shoot() : this.#film());
  }

  get empty() {
    return this.content === null;
  }

  settle() {}

  /** Show the file of a picture, if it is one. */
  async take(file) {
    try {
      const image = await createImageBitmap(file, { imageOrientation: "from-image" });
      await this.#show(image, image.width, image.height);
      image.close();
    } catch {
      this.failed(UNREADABLE);
    }
  }

  clear() {
    if (!this.empty) this.#change(null);
    this.#say("lift");
  }

  /** Show another photograph, without an event that it changed. */
  restore(content = null) {
    this.stop();
    this.#put(content);
    this.#say("lift");
  }

  async picture() {
    return this.content;
  }

  /** Release the camera. */
  stop() {
    this.#turn += 1;
    release(this.#stream);
    this.#stream = null;
    $("camera-view").srcObject = null;
    $("camera-view").hidden = true;
    $("camera").textContent = "Camera";
  }

  async #film() {
    const [view, turn] = [$("camera-view"), (this.#turn += 1)];
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch {
      this.failed("This page cannot use a camera. Choose a file instead.");
      return;
    }
    if (turn !== this.#turn) {
      release(stream); // the user went on before the camera was ready
      return;
    }
    this.#stream = stream;
    this.#put(null);
    view.hidden = false;
    view.srcObject = stream;
    $("camera").textContent = "Take it";
    await view.play().catch(() => {}); // stopped before the first picture
  }

  async #shoot() {
    const view = $("camera-view");
    if (!view.videoWidth) return;
    await this.#show(view, view.videoWidth, view.videoHeight).catch(() => this.failed(NO_PICTURE));
  }

  /** Store a picture at the size that is sent. */
  async #show(image, width, height) {
    const scale = Math.min(1, SIDE / Math.min(width, height), LONGEST / Math.max(width, height));
    const size = { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) };
    const canvas = Object.assign(document.createElement("canvas"), size);
    const pen = canvas.getContext("2d");
    pen.fillStyle = "#fff"; // shown through transparent pixels
    pen.fillRect(0, 0, size.width, size.height);
    pen.drawImage(image, 0, 0, size.width, size.height);
    const content = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", QUALITY));
    if (!content) throw new Error("the browser made no picture"); // it had no memory for the canvas
    this.stop();
    this.#say("touch");
    this.#change(content);
    this.#say("lift");
  }

  #change(content) {
    this.dispatchEvent(new CustomEvent("change", { detail: this.content }));
    this.#put(content);
  }

  #put(content) {
    if (this.#url) URL.revokeObjectURL(this.#url);
    this.content = content;
    this.#url = content && URL.createObjectURL(content);
    $("photo-shown").hidden = content === null;
    if (content) $("photo-shown").src = this.#url;
    else $("photo-shown").removeAttribute("src");
  }

  #say(name) {
    this.dispatchEvent(new Event(name));
  }
}

function release(stream) {
  for (const track of stream?.getTracks() ?? []) track.stop();
}

/** Call work(event, file) with every picture that is dropped or pasted anywhere. */
export function onPicture(work) {
  const take = (event, data) => {
    const file = [...(data?.files ?? [])].find(({ type }) => type.startsWith("image/"));
    if (file) work(event, file);
  };
  document.addEventListener("paste", (event) => take(event, event.clipboardData));
  for (const name of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      $("paper-box").classList.toggle("over", name === "dragover");
      if (name === "dragover") event.preventDefault();
      if (name === "drop") take(event, event.dataTransfer);
    });
  }
}

/* A sentence that is written or pasted. It has the interface of Ink; its content is a text. */

const PAUSE = 250; // ms between the last letter and the request for an answer

export class Sentence extends EventTarget {
  drawing = false;
  #waiting = 0;

  constructor(area, failed) {
    super();
    this.element = area;
    area.addEventListener("paste", ({ clipboardData }) => {
      const most = area.maxLength;
      if ((clipboardData?.getData("text/plain").length ?? 0) + area.value.length - selected(area) <= most) return;
      failed(`A sentence has at most ${most.toLocaleString("en")} characters. The rest was cut off.`);
    });
    area.addEventListener("input", () => {
      this.#say("touch");
      clearTimeout(this.#waiting);
      this.#waiting = setTimeout(() => this.#say("lift"), PAUSE);
    });
  }

  get content() {
    return this.element.value;
  }

  get empty() {
    return this.content.trim() === "";
  }

  settle() {}

  clear() {
    this.restore();
  }

  /** Show another sentence. */
  restore(content = "") {
    clearTimeout(this.#waiting);
    this.element.value = content;
    this.#say("lift");
  }

  async picture() {
    return new Blob([this.content], { type: "text/plain" });
  }

  #say(name) {
    this.dispatchEvent(new Event(name));
  }
}

const selected = (area) => area.selectionEnd - area.selectionStart; // these characters are replaced

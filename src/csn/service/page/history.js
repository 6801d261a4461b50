/* What can be undone: changes of the ink and of the memory in one list, the latest last.

   A step is {ink} for the paper: the strokes before it. It is {memory: true} for the memory; teaching changes both. */

const MOST = 200; // steps

export class History {
  #steps = [];

  get last() {
    return this.#steps.at(-1);
  }

  add(step) {
    this.#steps = [...this.#steps, step].slice(-MOST);
    return step;
  }

  remove(step) {
    this.#steps = this.#steps.filter((other) => other !== step);
  }

  clear() {
    this.#steps = [];
  }
}

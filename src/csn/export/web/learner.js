/* FewShotClassifier in the browser: rows of memory, attention, and matches between classes. */

import { readWeights, run, softmax } from "./engine.js";
import { describe, similarity, thresholdFor } from "./familiar.js";

/** A model written by csn.export.page: programs, weights, way, scale of the cosines, thresholds. */
export class Learner {
  #keys = new Map(); // example -> key
  #rows = new Map(); // example and output -> values
  #described = new WeakMap(); // list of examples -> what tells known drawings from unknown ones

  constructor(model) {
    const bytes = Uint8Array.from(atob(model.weights), (letter) => letter.charCodeAt(0)).buffer;
    Object.assign(this, model, { weights: readWeights(bytes, model.described) });
  }

  /** Recognise a drawing. Examples are {id, label, ink}, where ink is 28 x 28 bytes. */
  explain(ink, examples) {
    const order = [...new Set(examples.map(({ label }) => label))];
    const numbers = examples.map(({ label }) => order.indexOf(label));
    const x = this.#input(ink);
    const key = unit(this.#run("key", [x])[0].data);
    const cosines = examples.map((example) => dot(key, this.#key(example)));
    const { scores, members, attention } = this.#tournament(x, cosines, examples, numbers, order.length);
    const probabilities = Array.from(softmax(scores), (probability, c) => ({ label: order[c], probability }));
    probabilities.sort((a, b) => b.probability - a.probability);
    const fit = similarity(cosines, numbers, this.#familiar(examples, numbers, order.length), this.similarity);
    const threshold = this.threshold(examples);
    const known = threshold === null || fit >= threshold;
    const sources = members.map((i, place) => ({ id: examples[i].id, label: examples[i].label, weight: attention[place] }));
    sources.sort((a, b) => b.weight - a.weight);
    return { label: known ? probabilities[0].label : null, similarity: fit, probabilities, examples: sources };
  }

  /** The similarity below which a drawing is unknown, or null. */
  threshold(examples) {
    const counts = new Map();
    for (const { label } of examples) counts.set(label, (counts.get(label) ?? 0) + 1);
    return thresholdFor(this.thresholds, counts.values());
  }

  /** Logits of a drawing in one match of up to `way` classes, each at its own output. */
  logits(query, examples, outputs) {
    const key = this.#key(query);
    return this.#match(this.#input(query.ink), examples.map((example) => dot(key, this.#key(example))), examples, outputs).logits;
  }

  /** Activations of the adapted layers before and after the recalled shifts, in one match (neurons.js). */
  shifts(ink, examples) {
    const { probabilities } = this.explain(ink, examples);
    const order = probabilities.slice(0, this.way).map(({ label }) => label);
    const some = examples.filter(({ label }) => order.includes(label));
    const x = this.#input(ink);
    const key = unit(this.#run("key", [x])[0].data);
    const { shifts } = this.#match(x, some.map((one) => dot(key, this.#key(one))), some, some.map(({ label }) => order.indexOf(label)));
    const none = shifts.map(({ shape, data }) => ({ shape, data: new Float32Array(data.length) }));
    const [[plain, ...before], [shifted, ...after]] = [none, shifts].map((betas) => this.#run("neurons", [x, ...betas]));
    const [from, to] = [plain, shifted].map(({ data }) => softmax(data.subarray(0, order.length)));
    return {
      layers: before.map(({ data }, t) => ({ before: [...data], after: [...after[t].data] })),
      classes: order.map((label, c) => ({ label, before: from[c], after: to[c] })),
    };
  }

  forget(id) {
    this.#keys.delete(id);
    for (let output = 0; output < this.way; output++) this.#rows.delete(`${output} ${id}`);
  }

  #run(name, inputs) {
    return run(this.programs[name], this.weights, inputs);
  }

  #input(ink) {
    return { shape: [1, ...this.input], data: Float32Array.from(ink, (byte) => byte / 255) };
  }

  #key(example) {
    if (!this.#keys.has(example.id)) {
      this.#keys.set(example.id, unit(this.#run("key", [this.#input(example.ink)])[0].data));
    }
    return this.#keys.get(example.id);
  }

  #familiar(examples, numbers, count) {
    if (!this.#described.has(examples)) {
      const keys = examples.map((example) => this.#key(example));
      this.#described.set(examples, describe(keys, numbers, count, this.similarity));
    }
    return this.#described.get(examples);
  }

  /** The description phase of one example at an output: the values of each layer. */
  #values(example, output) {
    const name = `${output} ${example.id}`;
    if (!this.#rows.has(name)) {
      const slot = { shape: [1, this.way], data: new Float32Array(this.way) };
      slot.data[output] = 1;
      this.#rows.set(name, this.#run("values", [this.#input(example.ink), slot]));
    }
    return this.#rows.get(name);
  }

  /** The prediction phase: attention (eq. 3), shifts (eq. 4), and the answer of the shifted base learner. */
  #match(x, cosines, examples, outputs) {
    const attention = softmax(cosines.map((cosine) => this.scale * cosine));
    let shifts = null;
    examples.forEach((example, row) => {
      const values = this.#values(example, outputs[row]);
      shifts ??= values.map(({ shape, data }) => ({ shape, data: new Float32Array(data.length) }));
      values.forEach(({ data }, layer) => {
        const sum = shifts[layer].data;
        for (let neuron = 0; neuron < sum.length; neuron++) sum[neuron] += attention[row] * data[neuron];
      });
    });
    return { logits: this.#run("answer", [x, ...shifts])[0].data, attention, shifts };
  }

  /** The tournament: winners of groups of up to `way` classes meet until one group is left (csn.classifier.remembered). */
  #tournament(x, cosines, examples, numbers, count) {
    const scores = new Float64Array(count);
    let entrants = [...Array(count).keys()];
    for (let level = 0; ; level++) {
      const below = this.way ** level;
      const champions = [];
      for (let start = 0; start < entrants.length; start += this.way) {
        const group = entrants.slice(start, start + this.way);
        const members = examples.flatMap((_, i) => (group.includes(numbers[i]) ? [i] : []));
        const output = (c) => Math.floor(c / below) % this.way;
        const last = entrants.length <= this.way;
        let found = { logits: new Float32Array(this.way), attention: members.map(() => 1 / members.length) };
        if (group.length > 1 || last) {
          const some = members.map((i) => examples[i]);
          found = this.#match(x, members.map((i) => cosines[i]), some, members.map((i) => output(numbers[i])));
        }
        const logs = group.map((c) => found.logits[output(c)]);
        const best = Math.max(...logs);
        champions.push(group[logs.indexOf(best)]);
        group.forEach((_, place) => {
          const from = (start + place) * below;
          for (let c = from; c < Math.min(from + below, count); c++) scores[c] += logs[place] - best;
        });
        if (last) return { scores, members, attention: found.attention };
      }
      entrants = champions;
    }
  }
}

function unit(vector) {
  const length = Math.hypot(...vector) || 1e-12;
  return vector.map((value) => value / length);
}

const dot = (one, other) => one.reduce((sum, value, i) => sum + value * other[i], 0);

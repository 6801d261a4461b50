/* A CSN outside Python: learns three symbols from one drawing each and recognises others.

   npm install --ignore-scripts onnxruntime-node
   csn export characters --to onnx --out characters-onnx
   node learn.mjs characters-onnx */

import { join } from "node:path";
import ort from "onnxruntime-node";

const SIDE = 28;
const folder = process.argv[2] ?? "characters-onnx";
const [describe, predict] = await Promise.all(
  ["describe", "predict"].map((name) => ort.InferenceSession.create(join(folder, `${name}.onnx`))),
);

/** A drawing of lines between points in parts of the side: white ink (1) on black (0), as csn.preparation says. */
function drawing(...strokes) {
  const ink = new Float32Array(SIDE * SIDE);
  for (const points of strokes) {
    for (let i = 1; i < points.length; i++) {
      const [[a, b], [c, d]] = [points[i - 1], points[i]];
      for (let step = 0; step <= 40; step++) {
        const [x, y] = [SIDE * (a + ((c - a) * step) / 40), SIDE * (b + ((d - b) * step) / 40)];
        for (const [u, v] of [[x, y], [x - 0.5, y], [x, y - 0.5]]) ink[Math.floor(v) * SIDE + Math.floor(u)] = 1;
      }
    }
  }
  return ink;
}

const circle = (r) => [Array.from({ length: 25 }, (_, i) => [0.5 + r * Math.sin((i / 12) * Math.PI), 0.5 + r * Math.cos((i / 12) * Math.PI)])];
const cross = (s) => [[[0.2 + s, 0.2], [0.8, 0.8]], [[0.8, 0.2 + s], [0.2, 0.8]]];
const zigzag = (s) => [[[0.15, 0.6], [0.32, 0.35 + s], [0.5, 0.6], [0.68, 0.35], [0.85, 0.6 - s]]];

/** Drawings as the tensor that the graphs take. */
const images = (some) => new ort.Tensor("float32", Float32Array.from(some.flatMap((one) => [...one])), [some.length, 1, SIDE, SIDE]);

/** Learn: one row of memory for each example. Labels are 0, 1, ... without a gap. */
async function learn(examples, labels) {
  const numbers = new ort.Tensor("int64", BigInt64Array.from(labels, BigInt), [labels.length]);
  return { labels: numbers, ...(await describe.run({ support: images(examples), labels: numbers })) };
}

/** Recognise: the best label of each query and how sure it is. */
async function recognise(queries, memory) {
  const { logits } = await predict.run({ queries: images(queries), ...memory });
  const [count, ways] = logits.dims;
  return Array.from({ length: count }, (_, q) => {
    const row = Array.from(logits.data.subarray(q * ways, (q + 1) * ways));
    const powers = row.map((logit) => Math.exp(logit - Math.max(...row)));
    const best = powers.indexOf(Math.max(...powers));
    return { label: best, probability: powers[best] / powers.reduce((a, b) => a + b) };
  });
}

const names = ["circle", "cross", "zigzag"];
const memory = await learn([drawing(...circle(0.3)), drawing(...cross(0)), drawing(...zigzag(0))], [0, 1, 2]);
const found = await recognise([drawing(...zigzag(0.05)), drawing(...circle(0.26)), drawing(...cross(0.05))], memory);
for (const { label, probability } of found) console.log(`${names[label]} ${(100 * probability).toFixed(1)} %`);

/* Task files (docs/task_format.md), read and written as in Python. Only drawings and labels are read from a file. */

export const MOST_BYTES = 64_000_000; // of a file
export const MOST_EXAMPLES = 1000; // a page computes and shows each of them
const LONGEST = 60; // characters of a label
const HIDDEN = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u202a-\u202e]/u; // control characters, halves of characters, marks that reverse
const AROUND = "[\\s\\u00ad\\u061c\\u180e\\u200b-\\u200f\\u2060-\\u206f\\ufeff]+"; // nobody sees these at the ends of a label
const ENDS = new RegExp(`^${AROUND}|${AROUND}$`, "gu");
const SEEN = /[^\p{Cf}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/u;
const encoder = new TextEncoder();

/** What is wrong with a task file. */
export class TaskFileError extends Error {}

/** The drawings in a file: [{label, ink}]. Throws a TaskFileError, for anybody may have written the file. */
export async function readTask(buffer, model) {
  const { header, tensors } = readSafetensors(buffer);
  const about = header.metadata;
  if (about?.kind !== "csn-task") throw new TaskFileError("it is not a task file of csn");
  if (![1, 2].includes(about.task_version)) throw new TaskFileError("its task version is not 1 or 2, which this page reads");
  if ((await digest(tensors, header.rawMetadata)) !== header.sha256) throw new TaskFileError("it was altered after it was written");
  const inputs = tensors.get("inputs");
  const { labels } = about;
  if (!Array.isArray(labels) || !labels.length || !labels.every(isLabel)) throw new TaskFileError("its labels are damaged");
  if (labels.length > MOST_EXAMPLES) throw new TaskFileError(`it has ${labels.length} drawings, this page opens up to ${MOST_EXAMPLES}`);
  const shape = [labels.length, ...model.input];
  if (inputs?.dtype !== "U8" || inputs.shape.length !== shape.length || inputs.shape.some((side, i) => side !== shape[i])) {
    throw new TaskFileError("its drawings do not have this page's size");
  }
  const size = inputs.bytes.length / labels.length;
  return labels.map((label, i) => ({ label: cleanLabel(String(label)), ink: inputs.bytes.slice(i * size, (i + 1) * size) }));
}

const isLabel = (label) => ["string", "boolean"].includes(typeof label) || Number.isFinite(label);

/** A label with nothing unseen around it, as csn.service.names has it. Throws a TaskFileError if it cannot be shown. */
export function cleanLabel(text) {
  const trimmed = text.trim();
  const label = trimmed.length <= 4 * LONGEST ? trimmed.normalize("NFC").replace(ENDS, "") : trimmed;
  const { length } = label.length <= 2 * LONGEST ? [...label] : label;
  if (length > LONGEST || HIDDEN.test(label) || !SEEN.test(label)) {
    throw new TaskFileError(`a label has 1 to ${LONGEST} characters and no hidden ones`);
  }
  return label;
}

/** Drawings as a file for Python, which computes the rows again. */
export async function writeTask(examples, model, threshold) {
  const bytes = new Uint8Array(examples.flatMap(({ ink }) => [...ink]));
  const shape = [examples.length, ...model.input];
  const tensors = new Map([["inputs", { dtype: "U8", shape, bytes }]]);
  const about = { ...model.about, labels: list(examples.map(({ label }) => quoted(label))) };
  about.unknown_threshold = JSON.stringify(threshold);
  const metadata = object(Object.entries(about).map(([name, raw]) => [quoted(name), raw]));
  const csn = `{"format": 1, "sha256": ${quoted(await digest(tensors, metadata))}, "metadata": ${metadata}}`;
  const described = { inputs: { dtype: "U8", shape, data_offsets: [0, bytes.length] } };
  let head = JSON.stringify({ __metadata__: { csn }, ...described });
  head += " ".repeat((8 - (encoder.encode(head).length % 8)) % 8);
  const encoded = encoder.encode(head);
  const size = new DataView(new ArrayBuffer(8));
  size.setBigUint64(0, BigInt(encoded.length), true);
  return new Blob([size.buffer, encoded, bytes]).arrayBuffer();
}

function readSafetensors(buffer) {
  const broken = new TaskFileError("it is damaged, or not a task file of csn");
  if (buffer.byteLength < 8) throw broken;
  const size = Number(new DataView(buffer).getBigUint64(0, true));
  if (8 + size > buffer.byteLength) throw broken;
  try {
    const { __metadata__: extra, ...described } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
    const tensors = new Map(); // no object: a name may be __proto__
    for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(described)) {
      const bytes = [...shape, DTYPES.get(dtype)[1]].reduce((product, side) => product * side, 1);
      const whole = Array.isArray(shape) && [from, to, ...shape].every((number) => Number.isSafeInteger(number) && number >= 0);
      if (!whole || to - from !== bytes || 8 + size + to > buffer.byteLength) throw broken;
      tensors.set(name, { dtype, shape, bytes: new Uint8Array(buffer, 8 + size + from, bytes) });
    }
    const header = JSON.parse(extra.csn);
    return { header: { ...header, rawMetadata: canonical(extra.csn, "metadata") }, tensors };
  } catch {
    throw broken;
  }
}

// Names of types in a file -> their names in torch, and bytes of a number.
const DTYPES = new Map([
  ["U8", ["uint8", 1]], ["I8", ["int8", 1]], ["BOOL", ["bool", 1]], ["I32", ["int32", 4]], ["I64", ["int64", 8]],
  ["F16", ["float16", 2]], ["BF16", ["bfloat16", 2]], ["F32", ["float32", 4]], ["F64", ["float64", 8]],
]);

/** sha256 of the metadata, and of name, type, shape and bytes of every tensor (csn.engine.checkpoint). */
async function digest(tensors, metadata) {
  const parts = [encoder.encode(metadata)];
  for (const name of [...tensors.keys()].sort()) {
    const { dtype, shape, bytes } = tensors.get(name);
    parts.push(encoder.encode(`${name} torch.${DTYPES.get(dtype)[0]} (${shape.join(", ")}${shape.length === 1 ? "," : ""})`), bytes);
  }
  const all = await new Blob(parts).arrayBuffer();
  const sum = await crypto.subtle.digest("SHA-256", all);
  return Array.from(new Uint8Array(sum), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A string as Python's json writes it: all characters beyond ASCII are escaped. */
function quoted(string) {
  return JSON.stringify(string).replace(/[^\x20-\x7e]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const list = (items) => `[${items.join(", ")}]`;
const object = (entries) => `{${entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, raw]) => `${name}: ${raw}`).join(", ")}}`;

/** One member of a JSON object as Python writes it with sorted keys. Numbers and strings keep their spelling. */
function canonical(text, member) {
  let at = 0;
  const space = () => {
    while (/\s/.test(text[at])) at++;
  };
  const primitive = () => {
    const [found] = text.slice(at).match(/^("(?:[^"\\]|\\.)*"|[^\s,\]}]+)/);
    at += found.length;
    return found;
  };
  const items = (close, item) => {
    const found = [];
    at++;
    for (space(); text[at] !== close; space()) {
      if (text[at] === ",") at++;
      space();
      found.push(item());
    }
    at++;
    return found;
  };
  const entry = () => {
    const name = primitive();
    space();
    at++; // the colon
    return [name, value()];
  };
  const value = () => {
    space();
    if (text[at] === "{") return object(items("}", entry));
    return text[at] === "[" ? list(items("]", value)) : primitive();
  };
  space();
  return new Map(items("}", entry)).get(quoted(member));
}

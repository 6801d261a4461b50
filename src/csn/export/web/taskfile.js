/* Task files (docs/task_format.md), read and written as in Python. Only drawings and labels are read from a file. */

const encoder = new TextEncoder();

/** The drawings in a file: [{label, ink}]. Throws an Error that says what is wrong with the file. */
export async function readTask(buffer, model) {
  const { header, tensors } = readSafetensors(buffer);
  const about = header.metadata;
  if (about?.kind !== "csn-task") throw new Error("it is not a task file of csn");
  if (![1, 2].includes(about.task_version)) throw new Error(`its task version is ${about.task_version}, this page reads 1 and 2`);
  if ((await digest(tensors, header.rawMetadata)) !== header.sha256) throw new Error("it was altered after it was written");
  const { inputs } = tensors;
  const labels = about.labels;
  const shape = [labels?.length, ...model.input];
  if (!Array.isArray(labels) || !labels.length || inputs?.dtype !== "U8" || String(inputs.shape) !== String(shape)) {
    throw new Error("its drawings do not have this page's size");
  }
  const size = inputs.bytes.length / labels.length;
  return labels.map((label, i) => ({ label: String(label), ink: inputs.bytes.slice(i * size, (i + 1) * size) }));
}

/** Drawings as a file for Python, which computes the rows again. */
export async function writeTask(examples, model, threshold) {
  const bytes = new Uint8Array(examples.flatMap(({ ink }) => [...ink]));
  const shape = [examples.length, ...model.input];
  const tensors = { inputs: { dtype: "U8", shape, bytes } };
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
  const broken = new Error("it is damaged, or not a task file of csn");
  if (buffer.byteLength < 8) throw broken;
  const size = Number(new DataView(buffer).getBigUint64(0, true));
  if (8 + size > buffer.byteLength) throw broken;
  try {
    const { __metadata__: extra, ...described } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
    const tensors = {};
    for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(described)) {
      if (!(from >= 0 && from <= to && 8 + size + to <= buffer.byteLength)) throw broken;
      tensors[name] = { dtype, shape, bytes: new Uint8Array(buffer, 8 + size + from, to - from) };
    }
    const header = JSON.parse(extra.csn);
    return { header: { ...header, rawMetadata: canonical(extra.csn, "metadata") }, tensors };
  } catch {
    throw broken;
  }
}

const DTYPES = { U8: "uint8", I8: "int8", I64: "int64", I32: "int32", F16: "float16", F32: "float32", F64: "float64", BOOL: "bool" };

/** sha256 of the metadata, and of name, type, shape and bytes of every tensor (csn.engine.checkpoint). */
async function digest(tensors, metadata) {
  const parts = [encoder.encode(metadata)];
  for (const name of Object.keys(tensors).sort()) {
    const { dtype, shape, bytes } = tensors[name];
    parts.push(encoder.encode(`${name} torch.${DTYPES[dtype]} (${shape.join(", ")}${shape.length === 1 ? "," : ""})`), bytes);
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

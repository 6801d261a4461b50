/* Reads task files as the exported page does: node page_reader.mjs TASKFILE.MJS < frames > lines of JSON.

   A frame is the length of a file (4 bytes, little endian) and the file. The answer says whether it was read or
   refused, or what else came of it, and how much of the processor this process has used. */

import { pathToFileURL } from "node:url";

const { readTask, TaskFileError, writeTask } = await import(pathToFileURL(process.argv[2]));
const SIDE = 28;
const text = (value) => JSON.stringify(value);
const about = { kind: text("csn-task"), task_version: text(1), way: text(5), input: "[1, 28, 28]" };
const model = { input: [1, SIDE, SIDE], about };

function fail(what) {
  throw new Error(`the reader gave ${what}`);
}

function check(found) {
  if (!Array.isArray(found) || !found.length || found.length > 1000) fail("no list of up to 1000 drawings");
  for (const { label, ink } of found) {
    if (typeof label !== "string" || !label.trim() || [...label].length > 60) fail(`the label ${text(label)}`);
    if (!(ink instanceof Uint8Array) || ink.length !== SIDE * SIDE) fail(`ink of ${ink?.length} bytes`);
  }
}

async function read(content) {
  let found;
  try {
    found = await readTask(content, model);
  } catch (error) {
    if (error instanceof TaskFileError) return "refused";
    throw error;
  }
  check(found);
  const again = await readTask(await writeTask(found, model, null), model);
  if (text(again) !== text(found)) fail("something else when it was written and read again");
  if (Object.keys(Object.prototype).length) fail("every object another property");
  return "read";
}

let waiting = Buffer.alloc(0);
for await (const chunk of process.stdin) {
  waiting = Buffer.concat([waiting, chunk]);
  while (waiting.length >= 4 && waiting.length >= 4 + waiting.readUInt32LE()) {
    const end = 4 + waiting.readUInt32LE();
    const content = new Uint8Array(waiting.subarray(4, end)).buffer;
    waiting = waiting.subarray(end);
    const said = await read(content).catch((error) => error?.stack ?? String(error));
    const { user, system } = process.cpuUsage();
    process.stdout.write(`${JSON.stringify({ said, microseconds: user + system })}\n`);
  }
}

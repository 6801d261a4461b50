/* The HTTP API of the server, as /docs describes it. */

import { kept } from "./dom.js";

const KEY = "csn-token";
let given = null; // while the page is open

export class ApiError extends Error {
  constructor(status, code, message, remedy) {
    super(message);
    Object.assign(this, { status, code, remedy });
  }
}

/** The address may contain a token (#token=...). It is removed from there, so nobody copies it with the address. */
export function takeTokenFromAddress() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found) {
    setToken(found);
    history.replaceState(null, "", location.pathname);
  }
}

export function setToken(token) {
  given = token;
  kept.set(KEY, token, () => sessionStorage);
}

async function request(method, path, { json, body, type, signal } = {}) {
  const headers = {};
  const token = given ?? kept.get(KEY, () => sessionStorage);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (json !== undefined) {
    body = JSON.stringify(json);
    type = "application/json";
  }
  if (type) headers["Content-Type"] = type;
  let response;
  try {
    response = await fetch(`/api${path}`, { method, headers, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "offline", "The server does not answer.", "Start csn demo again; nothing is lost.");
  }
  if (response.ok) return response;
  const { error = {} } = await response.json().catch(() => ({}));
  throw new ApiError(response.status, error.code, error.message ?? `Status ${response.status}`, error.remedy ?? "");
}

const json = async (...args) => (await request(...args)).json();
const half = /[\ud800-\udfff]/gu; // halves of characters, which an address cannot hold
const at = (task, rest = "") => `/tasks/${encodeURIComponent(task)}${rest}`;

export const api = {
  classroom: () => json("GET", "/classroom"),
  letPass: (label) => json("POST", `/classroom/pass?label=${encodeURIComponent(label)}`),
  refuse: (label) => request("POST", `/classroom/refuse?label=${encodeURIComponent(label)}`),
  about: () => json("GET", "/about"),
  tasks: () => json("GET", "/tasks"),
  create: (name, kind) => json("POST", "/tasks", { json: { name, kind } }),
  read: (task) => json("GET", at(task)),
  remove: (task) => request("DELETE", at(task)),
  examples: (task) => json("GET", at(task, "/examples")),
  add: (task, input, label) =>
    json("POST", at(task, `/examples?label=${encodeURIComponent(label.replace(half, "\ufffd"))}`), { body: input, type: input.type }),
  removeExample: (task, id) => json("DELETE", at(task, `/examples/${encodeURIComponent(id)}`)),
  removeClass: (task, label) => json("DELETE", at(task, `/classes?label=${encodeURIComponent(label)}`)),
  undo: (task) => json("POST", at(task, "/undo")),
  explain: (task, input, signal) => json("POST", at(task, "/explain"), { body: input, type: input.type, signal }),
  shifts: (task, png) => json("POST", at(task, "/shifts"), { body: png, type: "image/png" }),
  alphabets: () => json("GET", "/alphabets"),
  addAlphabet: (task, name) => json("POST", at(task, `/alphabets/${encodeURIComponent(name)}`)),
  download: async (task) => (await request("GET", at(task, "/file"))).blob(),
  upload: (file) =>
    json("POST", `/tasks/file?name=${encodeURIComponent(file.name)}`, { body: file, type: "application/x-csn-task" }),
};

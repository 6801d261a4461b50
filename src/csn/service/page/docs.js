/* openapi.json as a page: every operation with its parameters, bodies, answers and a command to try it. */

import { $, make } from "./dom.js";

const code = (text) => make("code", {}, text);
const schemaName = (reference) => reference.split("/").at(-1);

/** A type in words. A named schema becomes a link. */
function type(schema = {}) {
  if (schema.$ref) return make("a", { href: `#${schemaName(schema.$ref)}` }, schemaName(schema.$ref));
  if (schema.type === "array") return make("span", {}, "list of ", type(schema.items));
  if (schema.anyOf) return make("span", {}, ...schema.anyOf.flatMap((part, i) => (i ? [" or ", type(part)] : [type(part)])));
  if (schema.format === "binary") return code("file");
  if (schema.additionalProperties) return make("span", {}, "object of ", type(schema.additionalProperties));
  return code(schema.type ?? "anything");
}

function table(rows) {
  const cells = (row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell)));
  return make("table", {}, make("tbody", {}, ...rows.map(cells)));
}

function part(title, content) {
  return [make("h4", {}, title), content];
}

/** A command line that calls the operation. */
function command(method, path, operation) {
  const kinds = Object.keys(operation.requestBody?.content ?? {});
  const query = (operation.parameters ?? []).filter((one) => one.in === "query").map((one) => `${one.name}=…`).join("&");
  const lines = [`curl ${method === "get" ? "" : `-X ${method.toUpperCase()} `}"${location.origin}${path}${query && `?${query}`}"`];
  if (kinds.includes("image/png")) lines.push('-H "Content-Type: image/png" --data-binary @drawing.png');
  else if (kinds.includes("application/json")) lines.push('-H "Content-Type: application/json" -d \'{"name": "mine"}\'');
  else if (kinds.length) lines.push(`-H "Content-Type: ${kinds[0]}" --data-binary @task.csn`);
  return make("pre", {}, lines.join(" \\\n  "));
}

function operation(method, path, about) {
  const content = [];
  if (about.description && about.description !== about.summary) content.push(make("p", {}, about.description));
  if (about.parameters) {
    content.push(...part("Parameters", table(about.parameters.map((one) => [
      code(one.name), one.in + (one.required ? ", needed" : ""), make("span", {}, type(one.schema), " ", one.description ?? ""),
    ]))));
  }
  if (about.requestBody) {
    content.push(...part("Body", table(Object.entries(about.requestBody.content).map(([kind, { schema }]) => [code(kind), type(schema)]))));
  }
  const answers = Object.entries(about.responses).map(([status, { content: kinds = {}, description }]) => {
    const [kind, body] = Object.entries(kinds)[0] ?? [];
    const what = kind === "application/json" && body.schema && Object.keys(body.schema).length ? type(body.schema) : code(kind ?? "nothing");
    return [code(status), what, description ?? ""];
  });
  content.push(...part("Answers", table(answers)), ...part("Try it", command(method, path, about)));
  const head = make("summary", {}, make("b", { class: method }, method.toUpperCase()), code(path), make("span", {}, about.summary ?? ""));
  return make("details", {}, head, make("div", {}, ...content));
}

function schema(name, about) {
  const rows = Object.entries(about.properties ?? {}).map(([property, one]) => [
    code(property), type(one), make("span", {}, one.description ?? "", (about.required ?? []).includes(property) ? " (needed)" : ""),
  ]);
  const head = make("summary", {}, code(name), make("span", {}, about.description ?? ""));
  return make("details", { id: name }, head, make("div", {}, table(rows)));
}

const description = await (await fetch("/openapi.json")).json();
$("description").textContent = description.info.description;
const groups = new Map();
for (const [path, methods] of Object.entries(description.paths)) {
  for (const [method, about] of Object.entries(methods)) {
    const [tag] = about.tags ?? ["other"];
    if (!groups.has(tag)) groups.set(tag, []);
    groups.get(tag).push(operation(method, path, about));
  }
}
for (const [tag, operations] of groups) $("operations").append(make("h3", {}, tag[0].toUpperCase() + tag.slice(1)), ...operations);
$("schemas").append(...Object.entries(description.components.schemas).map(([name, about]) => schema(name, about)));
addEventListener("hashchange", () => {
  const target = $(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
});
document.documentElement.dataset.ready = "yes";

/* Caches the whole app in the browser, so it opens offline. A new version has another name and replaces the old one. */

const NAME = "csn-VERSION";
const FILES = ["./", "manifest.webmanifest", "icon.svg"];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(NAME).then((cache) => cache.addAll(FILES)).then(() => skipWaiting()));
});

addEventListener("activate", (event) => {
  const old = async () => (await caches.keys()).filter((name) => name.startsWith("csn-") && name !== NAME);
  event.waitUntil(old().then((names) => Promise.all(names.map((name) => caches.delete(name)))).then(() => clients.claim()));
});

addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  event.respondWith(caches.match(event.request, { ignoreSearch: true }).then((kept) => kept ?? fetch(event.request)));
});

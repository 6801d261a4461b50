/* The kinds of task in words: the input, the classes, and what to do next. */

import { plural } from "./dom.js";

export const KINDS = {
  drawings: {
    one: "drawing",
    group: "symbol",
    begin: ["Draw a symbol.", "Any symbol you like. It learns yours from a single drawing."],
    more: ["Now draw another symbol.", "Name it too, and there are two to tell apart."],
    ask: ["Draw one of them again.", "It is recognised as you draw, or unknown if it is like none of them."],
  },
  photos: {
    one: "photograph",
    group: "class",
    begin: ["Show it a photograph.", "Drop, paste, choose or take one. It learns from a single photograph."],
    more: ["Now one of something else.", "Name it too, and there are two to tell apart."],
    ask: ["Show it another photograph.", "It is recognised at once, or unknown if it is like none of them."],
  },
  text: {
    one: "sentence",
    group: "class",
    begin: ["Write a sentence.", "In English. It learns what you call it from a single sentence."],
    more: ["Now one of another class.", "Name it too, and there are two to tell apart."],
    ask: ["Write another sentence.", "It is recognised as you write, or unknown if it is like none of them."],
  },
};

/** "2 symbols" or "2 classes". */
export const counted = (count, kind) => plural(count, KINDS[kind].group, kind === "drawings" ? undefined : "classes");

export const kindOf = (task) => task?.kind ?? "drawings"; // a page without a server knows only drawings

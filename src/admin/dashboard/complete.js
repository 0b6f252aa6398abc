"use strict";
// Suggestions for the editor: the keys and words that the schema has where the cursor is.

const Completion = (() => {
  const MOST = 40;
  const area = $("edit-text");
  const list = $("edit-words");
  let schema = null;
  let found = { from: 0, words: [] };
  let chosen = -1;

  const use = (value) => { schema = value; };

  /** What comes before a comment, of one line. Quotes are kept. */
  const withoutComment = (line) => {
    let quote = "";
    for (let at = 0; at < line.length; at++) {
      const sign = line[at];
      if (quote) quote = sign === quote ? "" : quote;
      else if (sign === '"' || sign === "'") quote = sign;
      else if (sign === "#" && (at === 0 || /\s/.test(line[at - 1]))) return line.slice(0, at);
    }
    return line;
  };

  /** Takes a line apart: the columns of its dashes, its first key and what follows. */
  const parts = (line) => {
    const dashes = [];
    let at = line.search(/\S|$/);
    while (/^-(\s|$)/.test(line.slice(at))) {
      dashes.push(at);
      at += 1;
      at += line.slice(at).search(/\S|$/);
    }
    const key = /^(["']?)([\w.-]+)\1\s*:(?=\s|$)/.exec(line.slice(at));
    return { dashes, column: at, key: key ? key[2] : null, rest: line.slice(at + (key ? key[0].length : 0)) };
  };

  /** Follows braces: returns the keys that are open at the end of `rest`, the last one, and the word there. */
  const inside = (key, rest) => {
    const open = [];
    let last = key;
    let isValue = key !== null;
    let word = "";
    let quote = "";
    const isListed = () => open.length > 0 && open[open.length - 1].sign === "[";
    for (let at = 0; at < rest.length; at++) {
      const sign = rest[at];
      if (quote) {
        if (sign === quote) quote = "";
        else word += sign;
      } else if (sign === '"' || sign === "'") quote = sign;
      else if (sign === "{" || sign === "[") {
        open.push({ key: isListed() ? null : last, sign });
        if (sign === "{") last = null;
        isValue = sign === "[";
        word = "";
      } else if (sign === "}" || sign === "]") {
        open.pop();
        last = null;
        isValue = true;
        word = "";
      } else if (sign === ",") {
        isValue = isListed() || open.length === 0;
        if (!isListed()) last = null;
        word = "";
      } else if (sign === ":" && /^\s?$/.test(rest[at + 1] || "")) {
        last = word.trim();
        isValue = true;
        word = "";
      } else word += sign;
    }
    const keys = open.map((level) => level.key);
    if (isValue && !isListed()) keys.push(last);
    return { keys: keys.filter((one) => one !== null), isOpen: open.length > 0, isValue, word: word.trimStart() };
  };

  /** Returns the keys around the cursor from the outermost to its own, and the word begun there. */
  const place = (before) => {
    const lines = before.split("\n");
    const current = lines.pop();
    if (withoutComment(current) !== current) return null;
    const here = parts(current);
    const { keys, isValue, word } = inside(here.key, here.rest);
    const around = [];
    let limit = here.column;
    let isList = false;
    const climb = (dashes) => {
      for (const dash of dashes.filter((one) => one < limit).reverse()) {
        limit = dash;
        isList = true;
      }
    };
    climb(here.dashes);
    for (let at = lines.length - 1; at >= 0 && (limit > 0 || isList); at--) {
      const line = withoutComment(lines[at]);
      if (!line.trim()) continue;
      const { dashes, column, key, rest } = parts(line);
      if (key !== null && (column < limit || (isList && column === limit)) && (!rest.trim() || inside(key, rest).isOpen)) {
        around.unshift(key);
        limit = column;
        isList = false;
      }
      climb(dashes);
    }
    return { path: [...around, ...keys], isValue, word };
  };

  /** Returns every schema that a value may follow. */
  const alternatives = (one) => {
    if (!one) return [];
    if (one.$ref) return alternatives(schema.$defs[one.$ref.split("/").pop()]);
    const more = [...(one.anyOf || []), ...(one.oneOf || [])].flatMap(alternatives);
    return [one, ...more, ...alternatives(one.items)];
  };
  const follow = (path) => path.reduce(
    (all, key) => all.flatMap((one) => (one.properties && one.properties[key] ? alternatives(one.properties[key]) : alternatives(one.additionalProperties))),
    alternatives({ $ref: schema.$ref }));

  const suggestions = ({ path, isValue, word }) => {
    const all = follow(path);
    const words = new Map();
    const add = (name, about, after) => { if (!words.has(name)) words.set(name, { name, about: about || "", after }); };
    for (const one of all) {
      // A word of a list may become a key or a value.
      if (isValue || !one.properties) {
        if (one.const !== undefined) add(String(one.const), one.description, "");
        for (const name of one.enum || []) add(String(name), "", "");
        if (one.type === "boolean") ["true", "false"].forEach((name) => add(name, "", ""));
      }
      if (!isValue) {
        for (const [name, of] of Object.entries(one.properties || {})) add(name, of.description, ": ");
      }
    }
    if (!words.size) {
      for (const one of all) if (one["x-example"] !== undefined) add(String(one["x-example"]), "an example", "");
    }
    const fits = [...words.values()].filter(({ name }) => name.startsWith(word) && name !== word);
    return fits.slice(0, MOST);
  };

  /** Shows what fits where the cursor is. */
  const update = () => {
    chosen = -1;
    area.removeAttribute("aria-activedescendant");
    const at = area.selectionStart;
    const where = schema && at === area.selectionEnd ? place(area.value.slice(0, at)) : null;
    found = where ? { from: at - where.word.length, words: suggestions(where) } : { from: at, words: [] };
    list.replaceChildren(...found.words.map(({ name, about }, index) =>
      make("li", { role: "option", id: `edit-word-${index}`, "aria-selected": "false", title: about, onpointerdown: (event) => { event.preventDefault(); take(index); } }, make("span", { text: name }))));
    text($("edit-about"), where && where.path.length ? where.path.join(" › ") : "");
  };

  const choose = (index) => {
    chosen = (index + found.words.length) % found.words.length;
    [...list.children].forEach((item, at) => item.setAttribute("aria-selected", String(at === chosen)));
    area.setAttribute("aria-activedescendant", `edit-word-${chosen}`);
    list.children[chosen].scrollIntoView({ block: "nearest" });
    const { name, about } = found.words[chosen];
    text($("edit-about"), about ? `${name}: ${about}` : name);
  };

  /** Writes text at the cursor so that it can be undone. */
  const write = (from, words) => {
    area.focus();
    area.setSelectionRange(from, area.selectionEnd);
    if (!document.execCommand("insertText", false, words)) {
      area.setRangeText(words, from, area.selectionEnd, "end");
      area.dispatchEvent(new Event("input"));
    }
  };
  const take = (index) => {
    const { name, after } = found.words[index];
    const isFollowed = area.value.startsWith(":", area.selectionEnd);
    write(found.from, name + (isFollowed ? "" : after));
  };

  /** A new line begins where the one before does; after a key without a value, two columns later. */
  const breakLine = () => {
    const line = withoutComment(area.value.slice(0, area.selectionStart).split("\n").pop());
    const { column, key, rest } = parts(line);
    const indent = line.trim() ? column : line.length;
    write(area.selectionStart, `\n${" ".repeat(key !== null && !rest.trim() ? indent + 2 : indent)}`);
  };

  area.addEventListener("keydown", (event) => {
    const isOpen = chosen >= 0;
    if ((event.ctrlKey && event.key === " ") || (event.altKey && event.key === "ArrowDown")) {
      if (found.words.length) choose(0);
    } else if (isOpen && event.key === "ArrowDown") choose(chosen + 1);
    else if (isOpen && event.key === "ArrowUp") choose(chosen - 1);
    else if (isOpen && (event.key === "Enter" || event.key === "Tab")) take(chosen);
    else if (isOpen && event.key === "Escape") update();
    else if (event.key === "Enter" && !event.isComposing && !event.ctrlKey && !event.metaKey) breakLine();
    else return;
    event.preventDefault();
  });
  for (const event of ["keyup", "click"]) {
    area.addEventListener(event, ({ key }) => { if (chosen < 0 && !["Shift", "Control", "Alt"].includes(key)) update(); });
  }
  return { use, update, place, suggestions };
})();

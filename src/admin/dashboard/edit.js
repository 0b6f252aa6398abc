"use strict";
// The editor of the file: the text, what the check says of it, what it changes, a preview, the save.

const Editor = (() => {
  const QUIET = 600;
  const LOOK = 2000;
  const MOST_LINES = 20000;
  const area = $("edit-text");
  let loaded = null;
  let checks = 0;
  let timer = 0;
  let looking = 0;
  let hasCarriageReturns = false;

  const ask = (path, options = {}) => fetch(path, { ...options, cache: "no-store", headers: { "x-flowgate-edit": "1", ...options.headers } });
  /** The text as the file has it: a textarea has line feeds only. */
  const edited = () => (hasCarriageReturns ? area.value.replace(/\n/g, "\r\n") : area.value);
  const send = (path) => ask(path, { method: "POST", body: edited(), headers: { "if-match": `"${loaded.hash}"` } });
  const status = (kind, words) => {
    $("edit-status").className = kind ? `chip ${kind}` : "soft";
    text($("edit-status"), words);
  };
  const isEdited = () => loaded !== null && edited() !== loaded.text;

  /** Shows the editor only where the file may be edited. */
  const allow = (isAllowed) => {
    $("edit").hidden = !isAllowed && !isEdited();
    $("edit-link").hidden = $("edit").hidden;
  };

  const load = async () => {
    status("", "loading");
    try {
      const [answer, schema] = await Promise.all([ask("edit"), loaded ? null : ask("edit/schema")]);
      if (!answer.ok) return status("bad", `✕ ${await answer.text()}`);
      if (schema && schema.ok) Completion.use(await schema.json());
      show(await answer.json());
    } catch (error) {
      status("bad", `✕ ${error.message}`);
    }
  };

  const show = (file) => {
    loaded = file;
    hasCarriageReturns = /\r\n/.test(file.text) && !/[^\r]\n/.test(file.text);
    area.value = file.text;
    if (!hasCarriageReturns && area.value !== file.text) loaded.text = area.value;
    text($("edit-file"), file.file);
    text($("edit-included"), file.included.length ? `It includes ${file.included.join(", ")}: edit these files where they are.` : "");
    $("edit-box").hidden = false;
    text($("edit-load"), "Load again");
    checked({ count: 0, problems: [] });
    marks([]);
    changed();
  };

  /** Takes note of a change, and checks it when the typing pauses. */
  const changed = () => {
    lines();
    Completion.update();
    checks += 1;
    clearTimeout(timer);
    $("edit-save").disabled = $("edit-preview").disabled = $("edit-begin").hidden = true;
    if (!isEdited()) {
      checked({ count: 0, problems: [] });
      return status("", "not edited");
    }
    status("", "edited");
    timer = setTimeout(check, QUIET);
  };

  const check = async () => {
    const mine = (checks += 1);
    status("", "checking");
    try {
      const answer = await send("edit/check");
      const body = answer.ok || answer.status === 422 ? await answer.json() : null;
      const words = body ? "" : await answer.text();
      if (mine !== checks) return;
      if (!body) return status("bad", `✕ ${words}`);
      checked(body);
      $("edit-save").disabled = $("edit-preview").disabled = !body.ok;
      if (body.ok) status("", `✓ no errors${body.count ? `, ${count(body.count, "remark")}` : ""}`);
      else status("bad", `✕ ${count(body.count, "error")}`);
    } catch (error) {
      if (mine === checks) status("bad", `✕ ${error.message}`);
    }
  };

  /** Shows what a check has found. */
  const checked = (found) => {
    const isHere = (problem) => problem.line > 0 && problem.file === loaded.file;
    const items = found.problems.map((problem) => make("li", { class: `problem ${problem.severity}` },
      make("b", { text: problem.message }), problem.help ? make("span", { text: problem.help }) : null,
      make("div", {}, isHere(problem)
        ? make("button", { type: "button", class: "link", onclick: () => go(problem), text: `line ${problem.line}, column ${problem.column}` })
        : make("span", { class: "soft", text: problem.line ? `${problem.file}, line ${problem.line}` : problem.file }))));
    const more = found.count - found.problems.length;
    if (more > 0) items.push(make("li", { class: "soft", text: `and ${more} more` }));
    $("edit-problems").replaceChildren(...items);
    $("edit-changes").hidden = found.diff === undefined;
    text($("edit-diff"), found.diff || "");
    marks(found.problems.filter(isHere).filter((problem) => problem.severity === "error").map((problem) => problem.line));
  };

  let marked = new Set();
  let numbered = "";
  const marks = (lineNumbers) => {
    marked = new Set(lineNumbers);
    numbered = "";
    lines();
  };

  /** Writes the numbers of the lines, with a mark at those that have errors. */
  const lines = () => {
    const number = Math.min(area.value.split("\n").length, MOST_LINES);
    const key = `${number} ${[...marked].join()}`;
    if (key !== numbered) {
      numbered = key;
      const parts = [];
      let plain = "";
      for (let line = 1; line <= number; line++) {
        if (marked.has(line)) {
          parts.push(plain, make("b", { text: `✕ ${line}` }), "\n");
          plain = "";
        } else plain += `${line}\n`;
      }
      $("edit-lines").replaceChildren(...parts, plain);
    }
    $("edit-lines").scrollTop = area.scrollTop;
  };

  /** Puts the cursor to the place of a problem. */
  const go = (problem) => {
    const before = area.value.split("\n").slice(0, problem.line - 1);
    const start = before.reduce((sum, line) => sum + line.length + 1, 0);
    const columns = [...area.value.slice(start).split("\n")[0]];
    const from = start + columns.slice(0, problem.column - 1).join("").length;
    const to = problem.end_line === problem.line ? start + columns.slice(0, problem.end_column - 1).join("").length : from;
    area.focus();
    area.setSelectionRange(from, Math.max(from, to));
    area.scrollTop = Math.max(0, (problem.line - 4) * parseFloat(getComputedStyle(area).lineHeight));
  };

  const save = async () => {
    $("edit-save").disabled = $("edit-preview").disabled = true;
    status("", "saving");
    try {
      const answer = await send("edit/save");
      if (answer.status === 422) {
        const body = await answer.json();
        checked(body);
        return status("bad", `✕ not saved: ${count(body.count, "error")}`);
      }
      if (!answer.ok) return status("bad", `✕ not saved: ${await answer.text()}`);
      const { summary } = await answer.json();
      await load();
      status("", `✓ saved: ${summary}`);
    } catch (error) {
      status("bad", `✕ perhaps not saved: ${error.message}`);
    }
  };

  // The preview.
  let asked = "";
  const tell = (words) => text($("edit-report-text"), words);
  /** Shows what a preview would take, and asks whether to begin. */
  const preview = async () => {
    clearTimeout(looking);
    $("edit-report").hidden = false;
    $("edit-apply").disabled = true;
    tell("checking");
    asked = edited();
    try {
      const cost = await ask("preview?check", { method: "POST", body: asked });
      if (!cost.ok) return tell(await cost.text());
      const size = ((await cost.json()).memory_bytes / 2 ** 20).toFixed(1);
      tell(`The preview takes up to ${size} MiB of memory in the gateway. It rejects and delays no request.`);
      $("edit-begin").hidden = asked !== edited();
    } catch (error) {
      tell(error.message);
    }
  };

  const begin = async () => {
    $("edit-begin").hidden = true;
    tell("beginning");
    try {
      const begun = await ask("preview?for=10m", { method: "POST", body: asked });
      if (!begun.ok) return tell(await begun.text());
      // Whatever another has written before the preview began would be lost; what is written later is found by the apply.
      const same = await send("edit/check");
      if (!same.ok) {
        await ask("preview", { method: "DELETE" });
        return tell(same.status === 412 ? await same.text() : "the file cannot be checked");
      }
      look();
    } catch (error) {
      tell(error.message);
    }
  };

  const look = async () => {
    clearTimeout(looking);
    try {
      const answer = await ask("preview");
      if (!answer.ok) return tell(await answer.text());
      report(await answer.json());
    } catch (error) {
      tell(error.message);
      looking = setTimeout(look, LOOK);
    }
  };

  const report = (found) => {
    const { requests } = found;
    const runs = found.state === "running";
    const rows = found.changes.slice(0, 20).map((change) => `${String(change.count).padStart(8)}  ${change.here} → ${change.there}`);
    const left = found.remaining_s === undefined || found.remaining_s === null ? "" : `, ${Math.ceil(found.remaining_s)} s left`;
    tell([
      runs ? `The preview runs${left}. It rejects and delays no request.` : `The preview has ended because ${found.ended_because}.`,
      `${count(requests.compared, "request")}: ${requests.same} the same, ${requests.would_be_rejected} would be rejected, ${requests.would_pass} would pass, ${requests.would_be_delayed} would be delayed, ${requests.no_longer_delayed} no longer delayed, ${requests.other_answer} answered otherwise`,
      ...rows,
    ].join("\n"));
    $("edit-apply").disabled = $("edit-stop").disabled = !runs;
    if (runs) looking = setTimeout(look, LOOK);
  };

  const apply = async () => {
    clearTimeout(looking);
    const answer = await ask("preview/apply", { method: "POST" });
    if (!answer.ok) {
      status("bad", `✕ not applied: ${await answer.text()}`);
      return look();
    }
    const { summary } = await answer.json();
    $("edit-report").hidden = true;
    await load();
    status("", `✓ applied: ${summary}`);
  };

  const stop = async () => {
    clearTimeout(looking);
    const answer = await ask("preview", { method: "DELETE" });
    if (answer.ok) report(await answer.json());
  };

  const reload = () => {
    if (!isEdited() || confirm("Drop what you have edited?")) load();
  };

  area.addEventListener("input", changed);
  area.addEventListener("scroll", lines);
  $("edit-load").addEventListener("click", reload);
  $("edit-save").addEventListener("click", save);
  $("edit-preview").addEventListener("click", preview);
  $("edit-begin").addEventListener("click", begin);
  $("edit-apply").addEventListener("click", () => apply().catch((error) => status("bad", `✕ ${error.message}`)));
  $("edit-stop").addEventListener("click", () => stop().catch((error) => status("bad", `✕ ${error.message}`)));
  addEventListener("beforeunload", (event) => { if (isEdited()) event.preventDefault(); });
  return { allow };
})();

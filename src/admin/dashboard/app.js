"use strict";
// The dashboard: it follows the gateway's stream of samples and shows the latest.

const $ = (id) => document.getElementById(id);
const MOST_SILENCE = 6000;
const PAUSES = [500, 1000, 2000, 4000];

/** Makes an element. Text is set as text: names and messages cannot become markup. */
const make = (tag, properties = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};
const text = (element, value) => { if (element.textContent !== value) element.textContent = value; };
const short = Charts.short;
const pair = (p50, p99) => {
  if (p50 === undefined || p50 === null) return "–";
  const unit = (value) => (value >= 1000 ? " s" : " ms");
  const bare = (value) => short(value >= 1000 ? value / 1000 : value);
  return unit(p50) === unit(p99) ? `${bare(p50)} · ${bare(p99)}${unit(p99)}` : `${millis(p50)} · ${millis(p99)}`;
};
const millis = (value) => (value === undefined || value === null ? "–" : value >= 1000 ? `${short(value / 1000)} s` : `${short(value)} ms`);
const count = (number, one) => `${number.toLocaleString("en")} ${one}${number === 1 ? "" : "s"}`;
const moment = (at) => new Date(at * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
const ago = (at, now) => {
  const seconds = Math.max(0, now - at);
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} days ago`;
};
const say = (news) => { $("news").textContent = news; };

const shown = { config: null, sample: null, all: null, allChart: null, series: new Map(), rows: new Map(), breakers: new Map(), page: 0, opening: null };

// Theme.
const themes = ["system", "light", "dark"];
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const stored = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
const applyTheme = () => {
  const theme = stored("flowgate-theme") || "system";
  const dark = theme === "dark" || (theme === "system" && prefersDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  text($("theme"), `Theme: ${theme}`);
  Charts.restyle();
};
$("theme").addEventListener("click", () => {
  const theme = stored("flowgate-theme") || "system";
  try { localStorage.setItem("flowgate-theme", themes[(themes.indexOf(theme) + 1) % themes.length]); } catch { /* it lasts as long as the page */ }
  applyTheme();
});
prefersDark.addEventListener("change", applyTheme);
applyTheme();

// The stream.
let stream = null;
let failures = 0;
let silence = 0;

const state = (kind, words) => {
  $("link").className = `state ${kind}`;
  text($("link-text"), words);
};

const connect = async () => {
  if (stream) stream.abort();
  const mine = new AbortController();
  stream = mine;
  const wanted = new URLSearchParams({ q: $("search").value, sort: $("sort").value, page: shown.page });
  let reason = "the connection ended";
  try {
    const response = await fetch(`live?${wanted}`, { signal: mine.signal, headers: { accept: "text/event-stream" }, cache: "no-store" });
    if (!response.ok) throw new Error(response.status === 503 ? "too many dashboards are open" : `the gateway answers ${response.status}`);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      listen(mine);
      const { done, value } = await reader.read();
      if (done) break;
      failures = 0;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) take(event);
    }
  } catch (error) {
    reason = error.message;
  }
  clearTimeout(silence);
  if (stream !== mine) return;
  state("off", `no connection: ${reason}`);
  if (failures === 0) say("Connection to the gateway lost. Trying again.");
  setTimeout(() => { if (stream === mine) connect(); }, PAUSES[Math.min(failures++, PAUSES.length - 1)]);
};

/** Gives a stream up that is silent: its gateway or the network is gone. */
const listen = (mine) => {
  clearTimeout(silence);
  silence = setTimeout(() => mine.abort(new Error("no sample for 6 s")), MOST_SILENCE);
};

const take = (event) => {
  let name = "";
  let data = "";
  for (const line of event.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (!data) return;
  const value = JSON.parse(data);
  if (name === "config") showConfig(value);
  else if (name === "history") keepHistory(value);
  else if (name === "sample") showSample(value);
};

const keepHistory = (history) => {
  shown.all = Charts.fromHistory(history.at, history.all);
  for (const [route, columns] of Object.entries(history.routes)) shown.series.set(route, Charts.fromHistory(history.at, columns));
};

const showSample = (sample) => {
  if ($("link").className !== "state on") {
    if (shown.sample) say("Connected again.");
    state("on", "live");
  }
  shown.sample = sample;
  if (!shown.all) shown.all = Charts.empty(sample.at);
  Charts.push(shown.all, sample.at, sample.all);
  showTiles(sample);
  showRejecting(sample.rejecting);
  showFailing(sample.failing);
  showCertificates(sample.at);
  showRoutes(sample);
  showBudgets(sample.budgets);
  showUpstreams(sample.upstreams);
  showStore(sample.store);
  showAges(sample.at);
  if (!shown.allChart) {
    const edits = () => (shown.config ? shown.config.edits : []);
    shown.allChart = Charts.make($("all-chart"), "requests", () => shown.all, { height: 220, edits, reading: $("all-reading") });
  }
  shown.allChart.update();
  document.title = sample.failing.many ? `✕ ${percent(sample.failing.share)} failed · flowgate` : sample.all.rejected > 0 ? `✕ ${sample.all.rejected}/s rejected · flowgate` : "flowgate";
};

const perSecond = (element, value) => element.replaceChildren(short(value), make("small", { text: " /s" }));

const showTiles = ({ all, reasons, at }) => {
  perSecond($("t-passed"), all.passed);
  perSecond($("t-failed"), all.failed);
  $("t-failed").parentElement.classList.toggle("some", all.failed > 0);
  perSecond($("t-delayed"), all.delayed);
  perSecond($("t-rejected"), all.rejected);
  $("t-rejected").parentElement.classList.toggle("some", all.rejected > 0);
  const words = Object.entries(reasons).map(([reason, number]) => `${reason} ${number}`);
  if (words.length) $("t-rejected").append(make("small", { class: "below", text: words.join(", ") }));
  $("t-latency").replaceChildren(millis(all.p50), make("small", { text: `p50 · p99 ${millis(all.p99)}` }));
  text($("t-in-flight"), short(all.in_flight));
  text($("t-waiting"), short(all.waiting));
  if (at % 10 === 0 || !$("all-chart").dataset.announced) {
    $("all-chart").dataset.announced = "yes";
    const most = Math.max(...shown.all.rejected);
    $("all-chart").setAttribute("aria-label", `Requests per second over the last 5 minutes: now ${all.passed} passed, ${all.failed} failed, ${all.delayed} delayed, ${all.rejected} rejected; at most ${most} rejected in a second.`);
  }
};

/** A button that opens a route among the routes, whichever page it is on. */
const routeLink = (route) => make("button", { type: "button", class: "link", onclick: () => openRoute(route), text: route });
const openRoute = (route) => {
  shown.opening = route;
  $("search").value = route;
  // The list of a moment ago has the focus no more, so that it goes on.
  if (document.activeElement) document.activeElement.blur();
  search();
};

const percent = (share) => (share > 0 && share < 0.01 ? "under 1 %" : `${Math.round(share * 100)} %`);

/** The paths with the most failed requests, then those with the most slow ones. */
const showPaths = ({ failed, slow }) => {
  const item = (one, words) => make("li", {},
    make("span", { class: "chip bad", text: `${one.overcount ? "at most " : ""}${short(one.count)} ${words}` }), " ", make("code", { text: one.path }), " ", routeLink(one.route));
  const items = [...failed.map((one) => item(one, `failed, latest ${one.status}`)), ...slow.map((one) => item(one, `slow, up to ${millis(one.longest_ms)}`))];
  $("worst-paths").hidden = !items.length;
  keepFocus($("paths"), items);
};

const showFailing = ({ share, per_second: rate, many, routes, slowest, paths }) => {
  showPaths(paths);
  const items = routes.map((one) => {
    const bar = make("i");
    bar.style.width = `${Math.min(1, one.share) * 100}%`;
    return make("li", {},
      make("div", { class: "line" },
        make("b", {}, routeLink(one.route), one.upstream ? ` → ${one.upstream}` : ""),
        make("span", { class: "chip bad", text: percent(one.share) }),
        make("span", { text: `${short(one.per_second)}/s` })),
      make("span", { class: "bar failed", "aria-hidden": "true" }, bar));
  });
  if (!items.length) items.push(make("li", { class: "soft", text: "No request fails." }));
  keepFocus($("failing"), items);
  const slow = slowest.slice(0, 5).flatMap((one, index) => [index ? ", " : "Slowest by p99: ", routeLink(one.route), ` ${millis(one.p99)}`]);
  $("slowest").hidden = !slow.length;
  keepFocus($("slowest"), slow);
  const was = !$("failing-alert").hidden;
  $("failing-alert").hidden = !many;
  if (!many) return;
  const names = routes.slice(0, 3).flatMap((one, index) => [index ? ", " : "", routeLink(one.route), ` ${percent(one.share)}`]);
  keepFocus($("failing-alert"), [make("b", { text: `✕ ${percent(share)} of the admitted requests fail with 5xx` }), make("span", {}, `${short(rate)}/s: `, ...names, routes.length > 3 ? ", …" : "")]);
  if (!was) say(`Requests fail: ${percent(share)} of the admitted requests get 5xx.`);
};

const DAY = 86400;
const validity = ({ used_by: user, file, valid_until: until, not_after: end }, now) => {
  const days = Math.floor((end - now) / DAY);
  const left = end < now ? "✕ expired" : days === 0 ? "less than a day left" : count(days, "day") + " left";
  return `${file} (${user}): valid until ${until}, ${left}`;
};

/** Shows when certificates end, and a notice two weeks before. */
const showCertificates = (now) => {
  const certificates = shown.config ? shown.config.certificates : [];
  const list = $("certificates");
  if (list) list.replaceChildren(...certificates.map((one) => make("div", { class: one.not_after < now ? "bad" : undefined, text: validity(one, now) })));
  const soon = certificates.filter((one) => one.not_after - now <= 14 * DAY);
  $("certificate-alert").hidden = !soon.length;
  if (soon.length) keepFocus($("certificate-alert"), [make("b", { text: soon[0].not_after < now ? "✕ A certificate has expired." : "A certificate ends soon." }), make("span", { text: validity(soon[0], now) + (soon.length > 1 ? `, and ${count(soon.length - 1, "other")}` : "") })]);
};

const showRejecting = (rules) => {
  const most = Math.max(1, ...rules.map((rule) => rule.per_second));
  const items = rules.map((rule) => {
    const bar = make("i");
    bar.style.width = `${(rule.per_second / most) * 100}%`;
    return make("li", {},
      make("div", { class: "line" },
        make("b", {}, rule.budget ? make("a", { href: "#budgets", text: rule.budget }) : routeLink(rule.route), ` › ${rule.rule}`),
        make("span", { class: `chip ${rule.dry_run ? "warn" : "bad"}`, text: rule.dry_run ? "dry run" : rule.reason }),
        make("span", { text: `${short(rule.per_second)}/s` })),
      make("span", { class: `bar ${rule.dry_run ? "trial" : "rejected"}`, "aria-hidden": "true" }, bar));
  });
  if (!items.length) items.push(make("li", { class: "soft", text: "No rule rejects requests." }));
  keepFocus($("rejecting"), items);
};

/** Replaces the children of a list unless one of them has the focus: keys would go astray. */
const keepFocus = (list, items) => {
  if (list.contains(document.activeElement)) return;
  list.replaceChildren(...items);
};

// Routes.
const showRoutes = ({ routes, at }) => {
  text($("found"), routes.found === routes.total ? count(routes.total, "route") : `${routes.found.toLocaleString("en")} of ${count(routes.total, "route")}`);
  text($("page"), `page ${routes.page + 1} of ${routes.pages}`);
  $("before").disabled = routes.page === 0;
  $("after").disabled = routes.page + 1 >= routes.pages;
  shown.page = routes.page;
  const list = $("rows");
  const names = new Set(routes.rows.map((route) => route.name));
  for (const [name, row] of shown.rows) {
    if (!names.has(name)) {
      row.end();
      shown.rows.delete(name);
      shown.series.delete(name);
    }
  }
  routes.rows.forEach((route, index) => {
    let series = shown.series.get(route.name);
    if (!series) shown.series.set(route.name, (series = Charts.empty(at - 1)));
    Charts.push(series, at, route.now);
    let row = shown.rows.get(route.name);
    if (!row) shown.rows.set(route.name, (row = makeRow(route.name)));
    if (list.children[index] !== row.element) list.insertBefore(row.element, list.children[index] || null);
    row.update(route);
    tellBreaker(route);
  });
  const opened = shown.opening && shown.rows.get(shown.opening);
  if (opened) {
    shown.opening = null;
    opened.open();
  }
  while (list.children.length > Math.max(routes.rows.length, 1)) list.lastChild.remove();
  if (!routes.rows.length) list.replaceChildren(make("li", { class: "row soft", text: "No route has these words." }));
  else list.querySelectorAll(":scope > .soft").forEach((item) => item.remove());
};

const tellBreaker = ({ name, breaker }) => {
  const before = shown.breakers.get(name);
  if (before && breaker && before !== breaker) say(`The breaker of ${name} is ${words(breaker)}.`);
  if (breaker) shown.breakers.set(name, breaker);
};
const words = (word) => word.replace("_", " ");

const makeRow = (name) => {
  const id = `d-${Math.random().toString(36).slice(2)}`;
  const parts = {};
  const number = (key, label) => {
    parts[key] = make("span", { text: "–" });
    return (parts[`${key}-box`] = make("div", { class: "num" }, parts[key], make("small", { text: label })));
  };
  const toggle = make("button", { type: "button", class: "toggle", "aria-expanded": "false", "aria-controls": id, text: name });
  parts.about = make("small");
  parts.chips = make("span");
  const spark = make("div", { class: "spark", role: "img", "aria-label": `Requests to ${name}` });
  const detail = make("div", { class: "detail", id, hidden: true });
  const element = make("li", {},
    make("div", { class: "row" },
      make("div", { class: "what" }, toggle, parts.chips, parts.about), spark,
      number("passed", "passed/s"), number("failed", "failed/s"), number("delayed", "delayed/s"), number("rejected", "rejected/s"),
      number("latency", "p50 · p99"), number("flight", "in flight")), detail);
  const read = () => shown.series.get(name);
  const chart = Charts.make(spark, "requests", read, { height: 34, small: true });
  let open = null;
  let latest = null;
  toggle.addEventListener("click", () => {
    const isOpen = toggle.getAttribute("aria-expanded") !== "true";
    toggle.setAttribute("aria-expanded", String(isOpen));
    detail.hidden = !isOpen;
    if (isOpen) {
      open = makeDetail(detail, name, read);
      if (latest) open.update(latest);
    } else {
      open.end();
      open = null;
    }
  });
  return {
    element,
    update(route) {
      latest = route;
      const { now } = route;
      text(parts.about, `${route.matches}${route.upstream ? ` → ${route.upstream}` : ""}${route.answer ? ` → ${route.answer}` : ""}`);
      text(parts.passed, short(now.passed));
      text(parts.failed, short(now.failed));
      parts["failed-box"].className = now.failed > 0 ? "num some failed" : "num";
      text(parts.delayed, short(now.delayed));
      text(parts.rejected, short(now.rejected));
      parts["rejected-box"].classList.toggle("some", now.rejected > 0);
      text(parts.latency, pair(now.p50, now.p99));
      text(parts.flight, now.waiting ? `${short(now.in_flight)} (${short(now.waiting)} wait)` : short(now.in_flight));
      showChips(parts.chips, route);
      spark.setAttribute("aria-label", `Requests to ${name}: ${now.passed} passed, ${now.failed} failed, ${now.delayed} delayed, ${now.rejected} rejected per second`);
      chart.update();
      if (open) open.update(route);
    },
    /** Opens the route, and scrolls to it. */
    open() {
      if (!open) toggle.click();
      toggle.focus({ preventScroll: true });
      element.scrollIntoView({ block: "start" });
    },
    end() {
      chart.end();
      if (open) open.end();
      element.remove();
    },
  };
};

const showChips = (box, route) => {
  const chips = [];
  const rejecting = route.rules.filter((rule) => rule.rejected > 0).map((rule) => rule.name);
  if (rejecting.length) chips.push(["bad", `rejects: ${[...new Set(rejecting)].slice(0, 3).join(", ")}`]);
  if (route.now.failed) chips.push(["bad", `5xx: ${short(route.now.failed)}/s`]);
  if (route.breaker && route.breaker !== "closed") chips.push(["bad", `breaker ${words(route.breaker)}`]);
  const trial = route.rules.filter((rule) => rule.would_reject > 0).map((rule) => rule.name);
  if (trial.length) chips.push(["warn", `would reject: ${trial.slice(0, 3).join(", ")}`]);
  const key = JSON.stringify(chips);
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  box.replaceChildren(...chips.map(([kind, words]) => make("span", { class: `chip ${kind}`, text: words })));
};

const makeDetail = (box, name, read) => {
  const requests = make("div", { class: "chart", role: "img", "aria-label": `Requests to ${name} over the last 5 minutes` });
  const latency = make("div", { class: "chart", role: "img", "aria-label": `Latency of ${name} over the last 5 minutes` });
  const readings = [make("output"), make("output")];
  const rules = make("tbody");
  const shared = make("p", { class: "hint" });
  box.replaceChildren(
    make("div", { class: "split even" },
      make("div", {}, make("h3", { text: "Requests per second" }),
        make("div", { class: "key", "aria-hidden": "true" }, make("span", { class: "k-passed", text: "passed" }), make("span", { class: "k-delayed", text: "delayed" }), make("span", { class: "k-rejected", text: "rejected" }), make("span", { class: "k-failed", text: "failed" }), readings[0]), requests),
      make("div", {}, make("h3", { text: "Latency of admitted requests" }),
        make("div", { class: "key", "aria-hidden": "true" }, make("span", { class: "k-p50", text: "p50" }), make("span", { class: "k-p99", text: "p99" }), readings[1]), latency)),
    ruleTable(rules), shared);
  const edits = () => (shown.config ? shown.config.edits : []);
  const charts = [
    Charts.make(requests, "requests", read, { height: 160, edits, reading: readings[0] }),
    Charts.make(latency, "latency", read, { height: 160, reading: readings[1] }),
  ];
  return {
    update(route) {
      rules.replaceChildren(...ruleRows(route));
      shared.hidden = !route.budgets;
      text(shared, `Its requests also meet: ${(route.budgets || []).join(", ")}.`);
      charts.forEach((chart) => chart.update());
    },
    end: () => charts.forEach((chart) => chart.end()),
  };
};

const ruleTable = (body) => make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {},
  make("th", { scope: "col", text: "Rule" }), make("th", { scope: "col", text: "Counts" }), make("th", { scope: "col", text: "Used of its limit" }),
  make("th", { scope: "col", class: "n", text: "passed/s" }), make("th", { scope: "col", class: "n", text: "delayed/s" }), make("th", { scope: "col", class: "n", text: "rejected/s" }))), body));

const ruleRows = (route) => {
  const rows = route.rules.flatMap((rule) => [make("tr", {},
    make("td", {}, make("b", { text: rule.name }), rule.dry_run ? make("span", { class: "chip warn", text: "dry run" }) : null, rule.bans ? make("span", { class: "chip warn", text: `${short(rule.bans.total)} banned` }) : null, rule.shared ? make("span", { class: "chip", text: "shared" }) : null,
      make("small", { class: "soft" }, make("br"), [rule.algorithm, rule.auto && autoWords(rule.auto), rule.quota, rule.when].filter(Boolean).join(", "))),
    make("td", { text: rule.key ? `each ${rule.key}` : rule.breaker ? "answers" : "all together" }),
    make("td", {}, fill(rule)),
    make("td", { class: "n", text: short(rule.passed) }), make("td", { class: "n", text: short(rule.delayed) }),
    make("td", { class: "n" }, short(rule.dry_run ? rule.would_reject : rule.rejected), make("small", { class: "soft", text: rule.dry_run ? " would" : reasonsOf(rule) }))),
    ...((rule.fullest || rule.rejected_keys || (rule.bans && rule.keys)) ? [make("tr", { class: "of-rule" }, make("td", { colspan: 6 }, make("small", { class: "soft", text: `${count(rule.keys.live, "key")} of at most ${rule.keys.max.toLocaleString("en")}` }), topKeys(rule)))] : [])]);
  if (route.more_rules) rows.push(make("tr", {}, make("td", { colspan: 6, class: "soft", text: `and ${route.more_rules} more` })));
  if (!rows.length) rows.push(make("tr", {}, make("td", { colspan: 6, class: "soft", text: "This route has no limit." })));
  return rows;
};
const nameless = (rule) => [...(rule.fullest || []), ...(rule.bans ? rule.bans.keys : []), ...(rule.rejected_keys ? rule.rejected_keys.keys : [])].some((key) => !key.name);

/** Shows the fullest and the most rejected keys of a rule. */
const topKeys = (rule) => {
  const key = ({ name, fingerprint }) => make("code", { title: fingerprint, text: name || `${fingerprint.slice(0, 11)}…` });
  const list = (title, keys, value) => (keys.length ? make("div", { class: "keys" }, make("small", { class: "soft", text: title }), make("ol", {}, ...keys.map((one) => make("li", {}, key(one), ` ${value(one)}`)))) : null);
  const { seconds, keys: rejected } = rule.rejected_keys || { seconds: 0, keys: [] };
  const number = ({ rejected, error }) => (error ? `${short(rejected)} (at most ${short(error)} too many)` : short(rejected));
  return make("div", { class: "top" },
    list("fullest keys", rule.fullest || [], ({ used, debt }) => `${short(used)} of ${short(rule.limit)}${debt ? `, debt ${short(debt)}` : ""}`),
    nameless(rule) && !(shown.config && shown.config.shows_keys) ? make("small", { class: "soft hint-keys", text: "Keys are shown as fingerprints; `admin: { show_keys: true }` in the file shows their names." }) : null,
    rule.bans ? list(`${count(rule.bans.total, "client")} banned`, rule.bans.keys.filter(({ fingerprint }) => fingerprint), ({ seconds: rest }) => `for ${short(rest)} s`) : null,
    list(`most rejected in ${Math.max(1, Math.ceil(seconds / 60))} min`, rejected, number));
};

/** Says what a limit that finds itself has found, and why it changed last. */
const autoWords = ({ limit, slot_ms: slot, elasticity, trend, unloaded_ms: unloaded, latest }) =>
  `auto ${short(limit)}, elasticity ${elasticity.toFixed(2)}, trend ${trend.toFixed(2)}, unloaded ${short(unloaded)} ms, slot ${short(slot)} ms${latest ? `, latest ${latest.from} → ${latest.to}: ${latest.reason}` : ""}`;

const reasonsOf = (rule) => Object.keys(rule.reasons || {}).map((reason) => ` ${reason}`).join(",");

/** Shows how full a rule is. */
const fill = (rule) => {
  if (rule.breaker) {
    const { state: is, answers, failed, slow } = rule.breaker;
    return make("span", {}, make("span", { class: is === "closed" ? "chip" : "chip bad", text: words(is) }), ` ${short(failed)} failed, ${short(slow)} slow of ${short(answers)}`);
  }
  const part = rule.limit ? Math.min(1, rule.used / rule.limit) : 0;
  const bar = make("i");
  bar.style.width = `${part * 100}%`;
  const label = `${short(rule.used)} of ${short(rule.limit)}${rule.keys ? " by the fullest key" : ""}${rule.debt ? `, debt ${short(rule.debt)}` : ""}`;
  return make("div", {}, make("span", { text: part >= 1 ? `✕ full: ${label}` : label }),
    make("span", { class: part >= 1 ? "bar full" : "bar", role: "meter", "aria-valuemin": "0", "aria-valuemax": String(rule.limit), "aria-valuenow": String(Math.min(rule.used, rule.limit)), "aria-label": `used by ${rule.name}` }, bar));
};

let typing = 0;
const search = () => {
  shown.page = 0;
  connect();
};
$("tools").addEventListener("submit", (event) => event.preventDefault());
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(search, 250);
});
$("sort").addEventListener("change", search);
$("before").addEventListener("click", () => { shown.page -= 1; connect(); });
$("after").addEventListener("click", () => { shown.page += 1; connect(); });

// Limits that routes share.
const showBudgets = (budgets) => {
  $("budgets").hidden = $("budgets-link").hidden = !budgets;
  if (!budgets) return;
  text($("budgets-count"), budgets.rows.length === budgets.total ? count(budgets.total, "limit") : `${budgets.rows.length} of ${count(budgets.total, "limit")}`);
  const cards = budgets.rows.map((budget) => {
    const routes = budget.routes.flatMap((route, index) => [index ? ", " : "", routeLink(route)]);
    const more = budget.more_routes ? ` and ${budget.more_routes} more` : "";
    return make("div", { class: "card" },
      make("h3", {}, budget.name, budget.parent ? make("span", { class: "chip", text: `counted in ${budget.parent} too` }) : null),
      make("p", { class: "hint" }, routes.length ? "Used by " : "Used by no route", ...routes, more),
      ruleTable(make("tbody", {}, ...ruleRows(budget))));
  });
  if (!cards.length) cards.push(make("p", { class: "soft", text: "None has these words." }));
  keepFocus($("budget-rows"), cards);
};

// Upstreams.
const showUpstreams = (upstreams) => {
  const troubles = [upstreams.out ? `, ✕ ${count(upstreams.out, "server")} out of order` : "", upstreams.failing ? `, ✕ ${count(upstreams.failing, "server")} failing` : ""];
  text($("upstreams-count"), count(upstreams.total, "upstream") + troubles.join(""));
  const cards = upstreams.rows.map((upstream) => {
    const servers = upstream.servers.map((server) => make("tr", {},
      make("td", {}, server.address, server.name ? make("small", { class: "soft", text: ` ${server.name}` }) : null),
      make("td", {}, server.health === "healthy" && server.failing ? make("span", { class: "chip bad", text: `✕ failing: ${percent(server.failing)} of its latest requests` }) : server.health === "healthy" ? "✓ healthy" : server.health === "not asked yet" ? make("span", { class: "soft", text: "not asked yet" }) : make("span", { class: "chip bad", text: `✕ ${server.health}` })),
      make("td", { class: "n", text: short(server.in_flight) }), make("td", { class: "n", text: short(server.requests) }), make("td", { class: "n", text: short(server.failures) }), make("td", { class: "n", text: short(server.server_errors) })));
    const more = upstream.servers_total - upstream.servers.length;
    if (more > 0) servers.push(make("tr", {}, make("td", { colspan: 6, class: "soft", text: `and ${more} more` })));
    return make("div", { class: "card" }, make("h3", {}, upstream.name, make("span", { class: "chip", text: words(upstream.balance) })),
      make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col", text: "Server" }), make("th", { scope: "col", text: "Health" }),
        make("th", { scope: "col", class: "n", text: "in flight" }), make("th", { scope: "col", class: "n", text: "requests/s" }), make("th", { scope: "col", class: "n", text: "failed/s" }), make("th", { scope: "col", class: "n", text: "5xx/s" }))), make("tbody", {}, ...servers))));
  });
  if (!cards.length) cards.push(make("p", { class: "soft", text: upstreams.total ? "No upstream has these words." : "There are no upstreams." }));
  $("upstream-rows").replaceChildren(...cards);
};

const showStore = (store) => {
  $("store").hidden = !store;
  if (!store) return;
  $("store").replaceChildren(make("h3", { text: "Store" }), make("p", {},
    make("span", { class: store.up ? "chip" : "chip bad", text: store.up ? "✓ reached" : "✕ not reached" }),
    ` ${count(store.gateways, "gateway")}; ${store.divisor > 1 ? `while the store fails, each applies 1/${store.divisor} of a shared limit` : "while the store fails, this one applies the whole of a shared limit"}; ${count(store.errors, "error")}, ${count(store.cached_rejections, "rejection")} answered without a call`),
    ...(store.failure ? [make("p", { text: store.failure })] : []));
};

// Configuration.
const showConfig = (config) => {
  const before = shown.config;
  shown.config = config;
  const facts = [
    ["Version", `${config.version} (config ${config.hash})`],
    ["In force since", moment(config.applied), "applied-ago"],
    ["Last change", config.changes || "none since the start"],
    ["Has", `${count(config.routes, "route")}, ${count(config.upstreams, "upstream")}`],
    ["Listens", config.listeners.join(", ")],
    ...(config.certificates.length ? [["Certificates", config.more_certificates ? `and ${config.more_certificates} more` : "", "certificates"]] : []),
    ["Started", moment(config.started), "started-ago"],
    ["Program", `flowgate ${config.flowgate}`],
  ];
  $("force").replaceChildren(...facts.flatMap(([term, value, id]) => [make("dt", { text: term }), id === "certificates" ? make("dd", {}, make("div", { id }), value) : make("dd", {}, value, id ? make("small", { class: "soft", id }) : null)]));
  showProblems(config.rejected, config.is_behind);
  Editor.allow(config.edit);
  const { rejected } = config;
  $("alert").hidden = !config.is_behind;
  if (config.is_behind && rejected) {
    $("alert").replaceChildren(make("b", { text: "✕ The file is not in force." }), `${count(rejected.count, "problem")} in the last edit; version ${config.version} stays in force.`, make("a", { href: "#rejected-edit", text: "Show" }));
  }
  if (before && before.version !== config.version) say(`Configuration applied: ${config.changes}`);
  else if (before && config.is_behind && (!before.rejected || before.rejected.at !== rejected.at)) say(`The last edit was rejected: ${rejected.problems[0].message}`);
};

const showProblems = (rejected, isBehind) => {
  if (!rejected) {
    $("problems").replaceChildren(make("p", { class: "soft", text: "None since the start." }));
    return;
  }
  const items = rejected.problems.map((problem) => make("div", { class: `problem ${problem.severity}` },
    make("b", { text: problem.message }), problem.help ? make("span", { text: problem.help }) : null,
    make("div", { class: "soft", text: problem.line ? `${problem.file}, line ${problem.line}, column ${problem.column}` : problem.file })));
  const more = rejected.count - rejected.problems.length;
  $("problems").replaceChildren(
    make("p", {}, make("span", { class: isBehind ? "chip bad" : "chip", text: isBehind ? "✕ not fixed yet" : "fixed since" }), ` ${moment(rejected.at)}`),
    ...items, more > 0 ? make("p", { class: "soft", text: `and ${more} more` }) : "",
    make("details", {}, make("summary", { text: "As flowgate check prints it" }), make("pre", { tabindex: "0", text: rejected.drawing })));
};

const showAges = (now) => {
  if (!shown.config) return;
  text($("applied-ago"), ` ${ago(shown.config.applied, now)}`);
  text($("started-ago"), ` ${ago(shown.config.started, now)}`);
};

// When the scripts after this one have run.
addEventListener("DOMContentLoaded", connect);

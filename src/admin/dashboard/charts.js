"use strict";
// Charts of five minutes. What happens to requests differs by pattern as well as by colour.

const Charts = (() => {
  const SAMPLES = 300;
  const COUNTS = ["passed", "delayed", "rejected", "failed", "in_flight", "waiting"];
  const all = new Set();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  /** Returns a pattern of dots, of slanted lines, or for what failed of upright ones. */
  const pattern = (kind) => {
    const ratio = devicePixelRatio || 1;
    const size = Math.round((kind === "rejected" ? 7 : 6) * ratio);
    const tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const pen = tile.getContext("2d");
    pen.fillStyle = colour(`${kind}-fill`);
    pen.fillRect(0, 0, size, size);
    pen.strokeStyle = pen.fillStyle = colour(kind);
    if (kind === "delayed") {
      pen.beginPath();
      pen.arc(size / 2, size / 2, ratio, 0, 7);
      pen.fill();
    } else if (kind === "failed") {
      pen.lineWidth = 1.6 * ratio;
      pen.beginPath();
      pen.moveTo(size / 2, 0);
      pen.lineTo(size / 2, size);
      pen.stroke();
    } else {
      pen.lineWidth = 1.3 * ratio;
      for (const shift of [-size, 0, size]) {
        pen.beginPath();
        pen.moveTo(shift, size);
        pen.lineTo(shift + size, 0);
        pen.stroke();
      }
    }
    return pen.createPattern(tile, "repeat");
  };

  /** An empty series that ends at `at`. */
  const empty = (at) => {
    const series = { at: [], p50: [], p99: [] };
    for (let age = SAMPLES - 1; age >= 0; age--) series.at.push(at - age);
    for (const name of COUNTS) series[name] = new Array(SAMPLES).fill(0);
    series.p50 = new Array(SAMPLES).fill(null);
    series.p99 = new Array(SAMPLES).fill(null);
    return series;
  };

  const fromHistory = (at, columns) => Object.assign(empty(at), columns);

  const push = (series, at, point) => {
    if (at <= series.at[series.at.length - 1]) return;
    series.at.push(at);
    for (const name of COUNTS) series[name].push(point[name]);
    series.p50.push(point.p50 ?? null);
    series.p99.push(point.p99 ?? null);
    while (series.at.length > SAMPLES) for (const column of Object.values(series)) column.shift();
  };

  const stacked = (series) => [
    series.at,
    series.passed.map((passed, i) => passed + series.delayed[i] + series.rejected[i]),
    series.passed.map((passed, i) => passed + series.delayed[i]),
    series.passed,
    // No line where nothing fails.
    series.failed.map((failed, i, all) => (failed || all[i - 1] || all[i + 1] ? failed : null)),
  ];
  const latency = (series) => [series.at, series.p50, series.p99];

  const two = (number) => String(number).padStart(2, "0");
  const clock = (at) => {
    const time = new Date(at * 1000);
    return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
  };

  /** Returns the width that the longest label needs. */
  const labelRoom = (_, labels) => 20 + 8 * Math.max(3, ...(labels || []).map((label) => label.length));

  const axes = (unit) => {
    const common = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    return [
      { ...common, space: 70, incrs: [60, 120, 300], values: (_, ticks) => ticks.map((at) => clock(at).slice(0, 5)), size: 26 },
      { ...common, size: labelRoom, values: (_, ticks) => ticks.map((value) => short(value) + unit) },
    ];
  };

  const short = (value) => {
    if (value >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
    if (value >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
    return String(+value.toFixed(value < 10 ? 1 : 0));
  };

  const top = (least) => (_, __, most) => [0, Math.max(least, (most || 0) * 1.1)];

  const drawEdits = (edits) => (chart) => {
    const pen = chart.ctx;
    const { top: y, height, left, width } = chart.bbox;
    pen.save();
    pen.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    pen.textAlign = "center";
    for (const [at, applied] of edits()) {
      const x = chart.valToPos(at, "x", true);
      if (x < left || x > left + width) continue;
      pen.strokeStyle = pen.fillStyle = colour(applied ? "text" : "rejected");
      pen.lineWidth = devicePixelRatio;
      pen.setLineDash(applied ? [] : [4, 4]);
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(x, y + height);
      pen.stroke();
      pen.fillText(applied ? "▲" : "✕", x, y + height - 3);
    }
    pen.restore();
  };

  const requestsOptions = (options) => {
    const area = (name) => ({ stroke: colour(name), width: name === "rejected" || name === "failed" ? 1.5 : 1, fill: name === "passed" ? colour("passed-fill") : () => pattern(name), points: { show: false } });
    return {
      scales: { x: { time: false }, y: { range: top(options.small ? 1 : 4) } },
      series: [{}, area("rejected"), { ...area("delayed"), dash: [4, 3] }, area("passed"), area("failed")],
      axes: options.small ? [{ show: false }, { show: false }] : axes(""),
      hooks: { draw: options.edits ? [drawEdits(options.edits)] : [] },
    };
  };

  const latencyOptions = () => ({
    scales: { x: { time: false }, y: { range: top(1) } },
    // A second alone among seconds without answers is a point.
    series: [{}, { stroke: colour("passed"), width: 1.5, points: { size: 4 } }, { stroke: colour("rejected"), width: 1.5, dash: [5, 3], points: { size: 4 } }],
    axes: axes(" ms"),
    hooks: { draw: [] },
  });

  /**
   * Draws into `box` what `read()` returns. `kind`: requests or latency. Returns an object with
   * `update` and `end`.
   */
  const make = (box, kind, read, options = {}) => {
    const data = kind === "latency" ? latency : stacked;
    let chart = null;
    const build = () => {
      if (chart) chart.destroy();
      const width = box.clientWidth;
      if (!width) { chart = null; return; }
      const made = kind === "latency" ? latencyOptions() : requestsOptions(options);
      const hooks = { ...made.hooks, setCursor: options.reading ? [(of) => showReading(of)] : [] };
      chart = new uPlot({
        width, height: options.height || 180, legend: { show: false }, padding: options.small ? [2, 0, 2, 0] : [8, 22, 0, 0],
        cursor: options.small ? { show: false } : { y: false, drag: { x: false, y: false }, points: { show: false } },
        ...made, hooks,
      }, data(read()), box);
    };
    const showReading = (of) => {
      const { idx } = of.cursor;
      const series = read();
      if (idx == null || series.at[idx] == null) { options.reading.textContent = ""; return; }
      options.reading.textContent = kind === "latency"
        ? `${clock(series.at[idx])}  p50 ${short(series.p50[idx] ?? 0)} ms, p99 ${short(series.p99[idx] ?? 0)} ms`
        : `${clock(series.at[idx])}  passed ${series.passed[idx]}, delayed ${series.delayed[idx]}, rejected ${series.rejected[idx]}, failed ${series.failed[idx]}`;
    };
    const watch = new ResizeObserver(() => {
      if (!chart || Math.abs(chart.width - box.clientWidth) > 1) build();
    });
    watch.observe(box);
    const handle = {
      build,
      update() {
        if (!chart) build();
        else chart.setData(data(read()));
      },
      end() {
        watch.disconnect();
        if (chart) chart.destroy();
        all.delete(handle);
      },
    };
    all.add(handle);
    return handle;
  };

  const restyle = () => all.forEach((handle) => handle.build());

  return { make, empty, fromHistory, push, restyle, clock, short };
})();

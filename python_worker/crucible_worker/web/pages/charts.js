// Charts. Each has a table with the same numbers next to it, for readers who cannot see it.

const drawn = new Set();

/** Charts of pages that were left are removed; the others get the colours and the width of now. */
function redrawCharts() {
  for (const chart of drawn) {
    if (chart.place.isConnected) chart.draw();
    else { chart.plot?.destroy(); drawn.delete(chart); }
  }
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * A metric over steps, with a band for its intervals; the best point is a filled mark, those tied with it are rings.
 * `open(id)` is called with the evaluation whose point is clicked.
 */
function seriesChart(series, open) {
  const place = h("div", { class: "chart", role: "img", "aria-label": seriesInWords(series) });
  const canvas = h("div", {});
  const readout = h("p", { class: "readout" }, seriesInWords(series));
  place.append(canvas, readout);
  const chart = { place, canvas, readout, plot: null, draw: () => drawSeries(chart, series, open) };
  drawn.add(chart);
  requestAnimationFrame(() => { if (chart.plot === null) chart.draw(); });
  return place;
}

function drawSeries(chart, series, open) {
  const width = chart.place.clientWidth;
  if (width === 0) return;
  chart.plot?.destroy();
  const points = series.points;
  const steps = points.every((point) => point.step !== null);
  const xs = points.map((point, n) => (steps ? point.step : n));
  const line = colour("--line");
  const marks = points.map((point) =>
    (point.id === series.best ? "best" : series.tied.includes(point.id) ? "tied" : "plain"));
  const axis = { stroke: colour("--text"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule") } };
  chart.plot = new uPlot({
    width, height: 240, legend: { show: false }, cursor: { drag: { x: true, y: false }, points: { size: 9 } },
    scales: { x: { time: false, range: (_, low, high) => padded(low, high) }, y: { range: (_, low, high) => padded(low, high) } },
    axes: [
      { ...axis, label: steps ? "step" : "evaluation, in order", labelSize: 22, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? count(tick) : "")) },
      { ...axis, label: series.key, labelSize: 22, size: 56, values: (_, ticks) => ticks.map(number) },
    ],
    bands: [{ series: [2, 1], fill: colour("--band") }],
    series: [
      {},
      { stroke: "transparent", points: { show: false } },
      { stroke: "transparent", points: { show: false } },
      { stroke: line, width: 2, points: { show: false } },
    ],
    hooks: { draw: [(plot) => drawMarks(plot, xs, points, marks)], setCursor: [(plot) => showPoint(plot, chart, points)] },
  }, [xs, points.map((point) => point.low), points.map((point) => point.high), points.map((point) => point.value)],
  chart.canvas);
  chart.plot.over.addEventListener("click", () => {
    const { idx } = chart.plot.cursor;
    if (idx !== null && idx !== undefined && points[idx]) open(points[idx].id);
  });
}

function padded(low, high) {
  const room = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

function drawMarks(plot, xs, points, marks) {
  const { ctx } = plot;
  ctx.save();
  points.forEach((point, n) => {
    const x = plot.valToPos(xs[n], "x", true);
    const y = plot.valToPos(point.value, "y", true);
    const size = (marks[n] === "plain" ? 3 : 5) * devicePixelRatio;
    ctx.beginPath();
    ctx.arc(x, y, size, 0, 2 * Math.PI);
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.strokeStyle = colour(marks[n] === "plain" ? "--line" : "--best");
    ctx.fillStyle = colour(marks[n] === "best" ? "--best" : marks[n] === "tied" ? "--page" : "--line");
    ctx.fill();
    ctx.stroke();
  });
  ctx.restore();
}

function showPoint(plot, chart, points) {
  const point = points[plot.cursor.idx];
  if (point) chart.readout.textContent = pointInWords(point);
}

function pointInWords(point) {
  const between = point.low === null || point.high === null ? "" : ` (${number(point.low)} to ${number(point.high)})`;
  const bounds = point.scored === null ? between : `${between}, ${point.scored}`;
  return `${point.step === null ? point.id : `step ${count(point.step)}`}: ${number(point.value)}${bounds}`;
}

function seriesInWords(series) {
  const best = series.points.find((point) => point.id === series.best);
  const first = series.points[0];
  const last = series.points[series.points.length - 1];
  if (!first) return `${series.key}: no values`;
  const change = first === last ? pointInWords(first) : `${pointInWords(first)}, ${pointInWords(last)}`;
  const tied = series.tied.filter((id) => id !== series.best).length;
  return `${change}${best ? `; best ${pointInWords(best)}` : ""}${tied > 0 ? `, ${count(tied)} tied with it` : ""}`;
}

/** Bars over ranges of a number: scores, seconds, tokens. */
function histogram(title, hist, format, typical) {
  const width = 360;
  const height = 120;
  const most = Math.max(1, ...hist.counts);
  const bar = width / hist.counts.length;
  const all = hist.counts.reduce((sum, one) => sum + one, 0);
  const first = hist.edges[0];
  const last = hist.edges[hist.edges.length - 1];
  const words = `${title}: ${count(all)} samples from ${format(first)} to ${format(last)}`;
  const bars = hist.counts.map((n, at) => {
    const tall = n === 0 ? 0 : Math.max(1.5, (n / most) * (height - 4));
    return svg("rect", { x: at * bar + 0.5, y: height - tall, width: Math.max(bar - 1, 0.5), height: tall, class: "bar" },
      svg("title", {}, `${format(hist.edges[at])} to ${format(hist.edges[at + 1])}: ${count(n)}`));
  });
  const rows = hist.counts.map((n, at) => [`${format(hist.edges[at])} to ${format(hist.edges[at + 1])}`, count(n)])
    .filter((_, at) => hist.counts[at] > 0);
  return h("figure", { class: "histogram" },
    h("figcaption", {}, title),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words, preserveAspectRatio: "none" }, bars),
    h("div", { class: "range" }, h("span", {}, format(first)), h("span", {}, format(last))),
    typical ? h("p", { class: "readout" }, `mean ${format(typical.mean)} · median ${format(typical.median)} · 95 % up to ${format(typical.p95)}`) : null,
    folded("Numbers", () => table(title, ["range", "samples"], rows)));
}

/** A difference with its interval on a common scale from -most to most; the middle line is 0. */
function whisker(value, low, high, most) {
  const at = (number) => 100 + (Math.max(-most, Math.min(most, number)) / (most || 1)) * 96;
  const sure = low !== null && high !== null && (low > 0 || high < 0);
  return svg("svg", { viewBox: "0 0 200 16", class: `whisker${sure ? " sure" : ""}`, role: "img",
    "aria-label": `difference ${number(value)}${low === null ? "" : `, ${number(low)} to ${number(high)}`}` },
    svg("line", { x1: 100, x2: 100, y1: 0, y2: 16, class: "zero" }),
    low === null || high === null ? null : svg("line", { x1: at(low), x2: at(high), y1: 8, y2: 8, class: "interval" }),
    svg("circle", { cx: at(value), cy: 8, r: 4 }));
}

/** How far something that runs has come. */
function progress(done, total, name) {
  return h("span", { class: "progress" },
    h("progress", { max: total || 1, value: done, "aria-label": name }),
    ` ${count(done)} of ${total ? count(total) : "?"}`);
}

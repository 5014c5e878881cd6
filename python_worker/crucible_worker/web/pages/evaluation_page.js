// One evaluation: its headline numbers, how its samples are spread, what has no score and why.

const rates = new Map();

async function evaluationPage(source, [id]) {
  const data = await source.evaluation(id);
  const holding = source.holding(id);
  return {
    title: data.step === null ? `Evaluation ${id}` : `Step ${count(data.step)} of ${data.run || id}`,
    concerns: (change) => change.id === id,
    again: data.complete === false ? 1000 : null,
    content: [
      h("p", { class: "facts" }, stateMark(data.state), pausedMark(data), " ", shortened(data.model, 120), " · ", data.dataset,
        data.run ? [" · ", link(`run ${data.run}`, ["run", data.run])] : null),
      data.problem ? h("p", { class: "problem", role: "alert" }, problemText(data.problem)) : null,
      data.state === "running" || data.state === "queued" ? section("Progress", throughput(data)) : null,
      section("Metrics", headlineTiles(data), data.warnings.map((text) => h("p", { class: "problem" }, text)), restOfMetrics(data)),
      section("Samples", h("ul", { class: "links" }, filterLinks(data)),
        holding && holding.left_out ? h("p", { class: "quiet" }, holding.left_out) : null),
      data.evaluators.length === 0 ? null : section("Evaluators", evaluatorTable(data)),
      ...Object.entries(data.distributions).map(([label, spread]) => spreadSection(data, label, spread)),
      section("Facts", factsList(data)),
    ],
  };
}

/** Results done, and how many a second: since the page was opened, or at first of all the time at work. */
function throughput(data) {
  const now = Date.now() / 1000;
  if (data.paused || data.waiting_for) rates.delete(data.id); // the time in which nothing may be done says nothing of the rate
  const seen = rates.get(data.id) || [];
  if (seen.length === 0 || seen[seen.length - 1][1] !== data.done) seen.push([now, data.done]);
  rates.set(data.id, seen.slice(-60));
  const [first, last] = [seen[0], seen[seen.length - 1]];
  const rate = last[0] > first[0] ? (last[1] - first[1]) / (last[0] - first[0])
    : data.done > 0 && data.duration > 0 ? data.done / data.duration : null;
  const left = rate && data.total ? (data.total - data.done) / rate : null;
  return h("p", {}, progress(data.done, data.total, "results"),
    rate === null ? null : ` · ${number(rate)} results a second`, left === null ? null : ` · ${seconds(left)} left`);
}

function headlineTiles(data) {
  const keys = data.headline.filter((key) => key in data.metrics);
  if (keys.length === 0) return h("p", {}, data.state === "running" ? "Metrics come when it has ended." : "None.");
  return h("ul", { class: "tiles" }, keys.map((key) => h("li", {},
    h("span", { class: "name" }, key), h("strong", {}, number(data.metrics[key])),
    data.intervals[key] ? h("span", { class: "quiet" }, interval(data.intervals[key])) : null)));
}

function restOfMetrics(data) {
  const rows = Object.entries(data.metrics).filter(([key]) => !isEqualStrict(data.metrics, key)).map(([key, value]) => [key, number(value), interval(data.intervals[key])]);
  const undefinedRows = Object.entries(data.undefined).map(([key, reason]) => [key, reason]);
  return [
    rows.length === 0 ? null : folded("Every metric", () => tableOfFilled("Every metric", ["metric", "value", "interval"], rows),
      { "data-key": "metrics" }),
    undefinedRows.length === 0 ? null : folded("Undefined metrics", () =>
      table("Undefined metrics", ["metric", "reason"], undefinedRows), { "data-key": "undefined" }),
  ];
}

function filterLinks(data) {
  const sum = (field) => data.evaluators.reduce((total, one) => total + one[field], 0);
  const wrong = Object.values(data.distributions).reduce((total, spread) => total + (spread.verdicts.incorrect || 0), 0);
  const named = [["All samples", "", data.done], ["Wrong", "wrong", wrong],
    ["Unscored", "unscored", sum("n_unscored")], ["Truncated", "truncated", sum("n_truncated")]];
  return named.map(([name, filter, n]) => h("li", {},
    link(name, ["evaluation", data.id, "samples"], { filter }), h("span", { class: "quiet" }, ` ${count(n)}`)));
}

function evaluatorTable(data) {
  return tableOfFilled("Evaluators", ["evaluator", "kind", "samples", "scored", "unscored", "errors", "truncated", "truncated in reasoning", "problem"],
    data.evaluators.map((one) => [one.label, one.kind, count(one.n), count(one.n_scored), count(one.n_unscored),
      count(one.n_errors), count(one.n_truncated), count(one.n_truncated_reasoning), problemText(one.problem)]));
}

function spreadSection(data, label, spread) {
  const unscored = spread.unscored.map(([reason, n]) => [
    link(reason, ["evaluation", data.id, "samples"], { evaluator: label, filter: "unscored", search: "" }), count(n)]);
  const verdicts = Object.entries(spread.verdicts).filter(([, n]) => n > 0).map(([verdict, n]) => [verdictMark(verdict), count(n)]);
  const drawings = [["Scores", "score", number], ["Time of a sample", "seconds", seconds],
    ["Output tokens", "output_tokens", number]].filter(([, key]) => spread[key]);
  return section(`Samples of ${label}`,
    h("div", { class: "columns" },
      verdicts.length === 0 ? null : table(`Verdicts of ${label}`, ["verdict", "samples"], verdicts),
      unscored.length === 0 ? null : table(`Unscored samples of ${label}`, ["unscored because", "samples"], unscored)),
    h("div", { class: "histograms" }, drawings.map(([title, key, format]) => histogram(title, spread[key], format, spread.typical[key]))));
}

function factsList(data) {
  const facts = [...data.facts, ["created", moment(data.created)], ["ended", moment(data.ended)], ["tokens", usageText(data.usage)]];
  const options = Object.entries(data.options).filter(([, given]) => Object.keys(given).length > 0)
    .map(([label, given]) => [`options of ${label}`, JSON.stringify(given)]);
  return h("dl", {}, [...facts, ...options].filter(([, text]) => text).map(([word, text]) => [h("dt", {}, word), h("dd", {}, text)]));
}

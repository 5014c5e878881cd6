// A run: every metric over its steps, what is best, what runs now.

async function runPage(source, [run]) {
  const data = await source.run(run);
  const withGoal = data.series.filter((series) => series.goal !== null);
  const others = data.series.filter((series) => series.goal === null);
  const running = data.evaluations.filter((one) => data.running.includes(one.id));
  return {
    title: `Run ${run}`,
    concerns: (change) => change.run === run,
    content: [
      h("p", { class: "facts" }, runFacts(data)),
      data.series.filter((series) => series.headline).map(bestInWords).filter(Boolean).map((words) => h("p", { class: "summary" }, words)),
      running.length === 0 ? null : section("Running now", h("ul", { class: "plain" }, running.map((one) =>
        h("li", {}, link(stepName(one), ["evaluation", one.id]), " ", progress(one.done, one.total, `progress of ${one.id}`))))),
      section("Metrics by step",
        h("p", { class: "quiet" }, h("span", { class: "key best" }, "●"), " best  ", h("span", { class: "key tied" }, "○"),
          " not distinguishable from the best, sample by sample. Where a metric has an interval, the band shows it."),
        withGoal.length === 0 ? h("p", {}, data.evaluations.length === 0 ? "Its evaluations are no longer retained." : "No metric has a value yet.") : h("div", { class: "charts" }, withGoal.map(seriesFigure)),
        others.length === 0 ? null : folded(plural(others.length, "further metric"), () => h("div", { class: "charts" }, others.map(seriesFigure)),
          { "data-key": "further" })),
      data.checkpoints && data.checkpoints.length > 0 ? section("Checkpoints", checkpointsTable(data.checkpoints),
        data.more_checkpoints ? h("p", { class: "quiet" }, `The first ${count(data.checkpoints.length)} by step.`) : null) : null,
      data.evaluations.length === 0 ? null : section("Evaluations", chosen(data.evaluations, { withRun: false })),
      data.evaluations.length < 2 ? null : h("p", {}, link("Compare the first with the last ones",
        ["compare", joinedIds([data.evaluations[0], ...data.evaluations.slice(1).slice(-9)].map((one) => one.id))])),
    ],
  };
}

/** "accuracy: best at step 500, 0.8. Step 400 cannot be told apart from it, sample by sample." */
function bestInWords(series) {
  const best = series.points.find((point) => point.id === series.best);
  if (!best || series.points.length < 2) return null;
  const words = `${series.key}: best at ${pointInWords(best).replace(": ", ", ")}.`;
  const others = (ids) => series.points.filter((point) => point.id !== best.id && ids.includes(point.id));
  if (others(series.compared).length === 0) return words;
  const tied = others(series.tied);
  const apart = "told apart from it, sample by sample";
  return tied.length === 0 ? `${words} Every other one can be ${apart}.` : `${words} ${capital(pointNames(series.points, tied))} cannot be ${apart}.`;
}

/** Names of some points, those that follow each other as a range: "steps 100 to 200 and step 400". */
function pointNames(points, some) {
  const ranges = [];
  points.forEach((point, n) => {
    if (!some.includes(point)) return;
    const last = ranges[ranges.length - 1];
    if (last && last.end === n - 1) last.end = n;
    else ranges.push({ start: n, end: n });
  });
  const name = (point) => (point.step === null ? point.id : count(point.step));
  const named = ranges.map(({ start, end }) => {
    const [first, last] = [points[start], points[end]];
    const noun = first.step === null ? "" : start === end ? "step " : "steps ";
    return `${noun}${name(first)}${start === end ? "" : ` to ${name(last)}`}`;
  });
  return named.length === 1 ? named[0] : `${named.slice(0, -1).join(", ")} and ${named[named.length - 1]}`;
}

function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** Each checkpoint with every metric of every data set: one row for each evaluation of it. */
function checkpointsTable(checkpoints) {
  const rows = checkpoints.flatMap((one) => one.results.map((result, at) => [
    at > 0 || one.step === null ? "" : count(one.step),
    at > 0 ? "" : checkpointName(one),
    result.retained ? link(shortened(result.dataset, 60), ["evaluation", result.id]) : shortened(result.dataset, 60),
    [stateMark(result.state), nothingMark(result), result.retained ? null : h("span", { class: "quiet" }, " samples removed"),
      result.superseded ? h("span", { class: "quiet" }, " superseded: the checkpoint was written again") : null],
    resultMetrics(result),
    at > 0 || Object.keys(one.labels).length === 0 ? "" : Object.entries(one.labels).map(([key, value]) => h("div", {}, shortened(`${key}: ${value}`, 60))),
    result.ended === null ? "" : h("span", { class: "moment" }, moment(result.ended)),
  ]));
  return tableOfFilled("Checkpoints", ["step", "checkpoint", "data set", "state", "metrics", "labels", "ended"], rows);
}

function checkpointName(one) {
  if (!one.adapter) return h("div", { title: one.fingerprint || null }, shortened(one.model, 60));
  return h("div", { title: one.fingerprint || null }, shortened(one.adapter, 60),
    h("div", { class: "quiet" }, `on ${shortened(one.base_model, 60)}`));
}

/** The headline metrics, the others when they are asked for; the best value of the run has a dot. */
function resultMetrics(result) {
  const line = (metric) => h("div", {}, `${metric.key} `, h("span", { class: metric.best ? "best" : null }, number(metric.value)),
    metric.best ? h("span", { class: "key best", title: "the best value of this run on this data set" }, " ●") : null,
    metric.interval ? h("span", { class: "quiet" }, ` ${interval(metric.interval)}`) : null,
    metric.scored === null ? null : h("span", { class: "quiet" }, ` ${metric.scored}`));
  const first = result.metrics.slice(0, Math.max(result.headline, 1));
  const rest = result.metrics.slice(first.length);
  return [
    first.map(line),
    rest.length === 0 ? null : folded(plural(rest.length, "further metric"), () => rest.map(line),
      { "data-key": `metrics ${result.id}` }),
    result.problem === null ? null : h("div", { class: "quiet" }, shortened(result.problem, 120)),
  ];
}

function runFacts(data) {
  const usages = data.evaluations.map((one) => one.usage).filter(Boolean);
  const tokens = (key, name) => {
    const known = usages.map((usage) => usage[key]).filter((value) => value !== null && value !== undefined);
    return known.length > 0 ? `${count(known.reduce((total, value) => total + value, 0))} ${name}` : "";
  };
  const costs = usages.filter((usage) => usage.cost !== null && usage.cost !== undefined);
  const words = [
    plural(data.evaluations.length, "evaluation"),
    data.running.length > 0 ? `${count(data.running.length)} running` : "",
    [tokens("prompt_tokens", "prompt tokens"), tokens("output_tokens", "output tokens")].filter(Boolean).join(", "),
    costs.length > 0 ? `cost ${number(costs.reduce((total, usage) => total + usage.cost, 0))}` : "",
  ];
  return words.filter(Boolean).join(" · ");
}

function seriesFigure(series) {
  const rows = series.points.map((point) => [
    link(point.step === null ? point.id : `step ${count(point.step)}`, ["evaluation", point.id]),
    number(point.value), point.low === null ? "" : `${number(point.low)} to ${number(point.high)}`, point.scored ?? "",
    point.id === series.best ? "best" : series.tied.includes(point.id) ? "tied with the best" : ""]);
  return h("figure", {},
    h("figcaption", {}, h("strong", {}, series.key), series.rules === null ? null : h("span", { class: "quiet" }, ` rules ${series.rules},`),
      series.goal === null ? null : h("span", { class: "quiet" }, series.goal === "higher" ? " higher is better" : " lower is better")),
    seriesChart(series, (id) => { location.hash = address(["evaluation", id]); }),
    folded("Numbers", () => tableOfFilled(series.key, ["step", "value", "interval", "not all scored", ""], rows), { "data-key": `numbers ${series.key} ${series.rules ?? ""}` }));
}

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
      running.length === 0 ? null : section("Running now", h("ul", { class: "plain" }, running.map((one) =>
        h("li", {}, link(stepName(one), ["evaluation", one.id]), " ", progress(one.done, one.total, `progress of ${one.id}`))))),
      section("Metrics by step",
        h("p", { class: "quiet" }, h("span", { class: "key best" }, "●"), " best  ", h("span", { class: "key tied" }, "○"),
          " not distinguishable from the best, sample by sample. The band is the interval of each value."),
        withGoal.length === 0 ? h("p", {}, "No metric has a value yet.") : h("div", { class: "charts" }, withGoal.map(seriesFigure)),
        others.length === 0 ? null : folded(plural(others.length, "further metric"), () => h("div", { class: "charts" }, others.map(seriesFigure)),
          { "data-key": "further" })),
      section("Evaluations", chosen(data.evaluations, { withRun: false })),
      data.evaluations.length < 2 ? null : h("p", {}, link("Compare the first with the last ones",
        ["compare", joinedIds([data.evaluations[0], ...data.evaluations.slice(1).slice(-9)].map((one) => one.id))])),
    ],
  };
}

function runFacts(data) {
  const usages = data.evaluations.map((one) => one.usage).filter(Boolean);
  const sum = (key) => usages.reduce((total, usage) => total + (usage[key] || 0), 0);
  const costs = usages.filter((usage) => usage.cost !== null && usage.cost !== undefined);
  const words = [
    plural(data.evaluations.length, "evaluation"),
    data.running.length > 0 ? `${count(data.running.length)} running` : "",
    usages.length > 0 ? `${count(sum("prompt_tokens"))} prompt tokens, ${count(sum("output_tokens"))} output tokens` : "",
    costs.length > 0 ? `cost ${number(costs.reduce((total, usage) => total + usage.cost, 0))}` : "",
  ];
  return words.filter(Boolean).join(" · ");
}

function seriesFigure(series) {
  const rows = series.points.map((point) => [
    link(point.step === null ? point.id : `step ${count(point.step)}`, ["evaluation", point.id]),
    number(point.value), point.low === null ? "" : `${number(point.low)} to ${number(point.high)}`,
    point.id === series.best ? "best" : series.tied.includes(point.id) ? "tied with the best" : ""]);
  return h("figure", {},
    h("figcaption", {}, h("strong", {}, series.key),
      series.goal === null ? null : h("span", { class: "quiet" }, series.goal === "higher" ? " higher is better" : " lower is better")),
    seriesChart(series, (id) => { location.hash = address(["evaluation", id]); }),
    folded("Numbers", () => tableOfFilled(series.key, ["step", "value", "interval", ""], rows), { "data-key": `numbers ${series.key}` }));
}

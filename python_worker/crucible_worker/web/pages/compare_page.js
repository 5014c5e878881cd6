// Two to ten evaluations: differences of the same samples, what changed its verdict, one sample over all of them.

async function comparePage(source, [joined], query) {
  const ids = splitIds(joined);
  const data = await source.compare(ids);
  const baseline = data.evaluations[0];
  const names = new Map(data.evaluations.map((one) => [one.id, stepName(one)]));
  const evaluators = [...new Set(data.evaluations.flatMap((one) => one.evaluators.map((each) => each.label)))];
  return {
    title: `Comparison of ${data.evaluations.map(stepName).join(", ")}`,
    concerns: () => false,
    content: [
      h("p", { class: "facts" }, "Compared with ", link(stepName(baseline), ["evaluation", baseline.id]),
        ", sample by sample. Samples count if both evaluations have a score for them."),
      section("Differences", differences(data, names)),
      section("Changed samples", data.comparisons.flatMap((one) => changes(source, one, names, data.inputs))),
      section("One sample over all", sampleForm(ids, evaluators, query),
        query.sample ? await answerColumn(source, ids, query.evaluator || evaluators[0], query.sample) : null),
      section("Metrics", metricTable(data)),
    ],
  };
}

function differences(data, names) {
  const most = Math.max(1e-9, ...data.comparisons.flatMap((one) =>
    ["difference", "difference_ci_low", "difference_ci_high"].map((key) => Math.abs(one.metrics[key] ?? 0))));
  const rows = data.comparisons.map((one) => one.problem
    ? [one.evaluator, link(names.get(one.evaluation) || one.evaluation, ["evaluation", one.evaluation]), problemText(one.problem), "", "", "", "", "", ""]
    : [one.evaluator, link(names.get(one.evaluation) || one.evaluation, ["evaluation", one.evaluation]),
      [h("span", { class: "difference" }, number(one.metrics.difference)),
        whisker(one.metrics.difference, one.metrics.difference_ci_low ?? null, one.metrics.difference_ci_high ?? null, most)],
      one.metrics.difference_ci_low === undefined ? "" : `${number(one.metrics.difference_ci_low)} to ${number(one.metrics.difference_ci_high)}`,
      count(one.n_improved), count(one.n_regressed), count(one.n_matched), number(one.metrics.holm_p), number(one.metrics.mde_80)]);
  if (data.only_with) return h("p", {}, `This report is of so many results that it compares evaluations only with ${data.only_with}. These are compared by: `,
    h("code", {}, `crucible-worker compare ${data.evaluations.map((one) => one.id).join(" ")}`));
  if (rows.length === 0) return h("p", {}, "Nothing can be compared: the evaluations have no evaluator in common.");
  return table("Differences", ["evaluator", "evaluation", "difference", "interval", "better", "worse", "samples of both", "p (Holm)", "detectable from"], rows);
}

function changes(source, one, names, inputs) {
  const listed = [["Worse", one.regressions, one.n_regressed], ["Better", one.improvements, one.n_improved]].filter(([, samples]) => samples.length > 0);
  return listed.map(([word, samples, n]) => folded(
    `${word} in ${names.get(one.evaluation) || one.evaluation}, ${one.evaluator}: ${samples.length < n ? `the first ${count(samples.length)} of ` : ""}${plural(n, "sample")}`,
    () => samples.map((change) => folded(changeText(change, own(inputs, change.id)), () => {
      const place = h("div", {}, h("p", { class: "quiet" }, "Loading…"));
      answerColumn(source, [one.baseline, one.evaluation], one.evaluator, change.id)
        .then((column) => place.replaceChildren(column))
        .catch((error) => place.replaceChildren(h("p", { class: "problem" }, error.message)));
      return place;
    }))));
}

/** The sample with what it asks, as ids are often numbers of rows. */
function changeText(change, input) {
  const question = input === null || input === change.id ? "" : ` · ${shortened(input.replace(/\s+/g, " "), 80)}`;
  return `${shortened(change.id, 80)}${question}: ${number(change.from)} to ${number(change.to)}`;
}

function sampleForm(ids, evaluators, query) {
  const sample = h("input", { type: "text", id: "sample", value: query.sample || "", placeholder: "id of a sample" });
  const evaluator = h("select", { id: "evaluator" },
    evaluators.map((name) => h("option", { value: name, selected: query.evaluator === name }, name)));
  return h("form", { class: "toolbar", onsubmit: (event) => {
    event.preventDefault();
    location.hash = address(["compare", joinedIds(ids)], { sample: sample.value, evaluator: evaluator.value });
  } }, h("label", { for: "sample" }, "Sample ", sample), evaluators.length > 1 ? h("label", { for: "evaluator" }, "of ", evaluator) : null,
  h("button", {}, "Show"));
}

/** The answers of several evaluations to one sample, next to each other. */
async function answerColumn(source, ids, evaluator, sample) {
  const data = await source.answers(ids, evaluator, sample);
  if (data.answers.length === 0) return h("p", {}, `No evaluation has a sample ${sample} of ${evaluator}.`);
  return h("div", {},
    data.input === null ? null : spoken(data.input),
    data.targets && data.targets.length > 0 ? h("p", {}, "Target: ", h("span", { class: "text" }, data.targets.join(" | "))) : null,
    h("div", { class: "answers" }, data.answers.map((answer) => h("article", {},
      h("h3", {}, link(answer.step === null ? shortened(answer.evaluation, 40) : `step ${count(answer.step)}`,
        samplePath(answer.evaluation, { evaluator, id: sample, repeat: answer.repeat || 0 }))),
      h("p", {}, verdictMark(answer.verdict), answer.extracted ? [" ", h("span", { class: "text" }, answer.extracted)] : null),
      answerText(answer.output, answer.reasoning_span, answer.extracted_span)))));
}

function metricTable(data) {
  const keys = [...new Set(data.evaluations.flatMap((one) => Object.keys(one.metrics)))];
  return table("Metrics", ["metric", ...data.evaluations.map(stepName)],
    keys.map((key) => [key, ...data.evaluations.map((one) => withInterval(one.metrics[key], one.intervals[key]))]));
}

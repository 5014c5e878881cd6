// The first page: runs and evaluations, newest first.

const MOST_COLUMNS = 5;  // of metrics in a list; one of more kinds has the metrics of each evaluation in one column
const MOST_IN_COLUMN = 3;

async function indexPage(source, _, query) {
  const index = await source.index({ offset: query.offset });
  const offset = Number(query.offset || 0);
  const runs = index.runs.map((run) => [
    link(run.run, ["run", run.run]), run.checkpoints ? count(run.checkpoints) : "", stepRange(run.steps), count(run.evaluations),
    run.running ? count(run.running) : "", run.failed ? count(run.failed) : "", run.best && run.best.length > 0 ? run.best.map(bestOfRun) : "", h("span", { class: "moment" }, moment(run.last))]);
  return {
    title: "Evaluations",
    concerns: () => true,
    content: [
      runs.length === 0 ? null : section("Runs",
        tableOfFilled("Runs", ["run", "checkpoints", "steps", "evaluations", "unfinished", "failed", "best", "last change"], runs),
        index.more_runs ? h("p", { class: "quiet" }, `The newest ${count(runs.length)} runs.`) : null),
      section("Evaluations",
        index.evaluations.length === 0
          ? h("p", {}, "No evaluations yet. This page shows them as soon as one begins.")
          : chosen(index.evaluations),
        h("p", { class: "paging" },
          offset > 0 ? link("Newer", [], { offset: Math.max(0, offset - PAGE_ROWS) }) : null,
          index.more ? link("Older", [], { offset: offset + index.evaluations.length }) : null)),
      replicasOf(index.fleets || []),
    ],
  };
}

/** The replicas of servers and devices, as the worker saw them when the page was made; a report file has none. */
function replicasOf(fleets) {
  const rows = fleets.flatMap((fleet) => fleet.replicas.map((replica) => [
    `${fleet.backend}:${fleet.name}`, replica.address, replicaMark(replica.state), h("span", {}, count(replica.outstanding)),
    h("span", {}, count(replica.done)), h("span", {}, count(replica.failures)), replica.last_error]));
  return rows.length === 0 ? null : section("Replicas",
    tableOfFilled("Replicas", ["models", "replica", "state", "requests now", "answered", "failed", "last error"], rows));
}

function replicaMark(state) {
  const known = state || "unknown";
  return h("span", { class: `replica ${known}` }, known);
}

function stepRange(steps) {
  if (!steps || steps[0] === null) return "";
  return steps[0] === steps[1] ? count(steps[0]) : `${count(steps[0])} to ${count(steps[1])}`;
}

function bestOfRun(best) {
  return h("div", {}, `${best.key} ${number(best.value)}`,
    best.step === null ? null : h("span", { class: "quiet" }, ` at step ${count(best.step)}`),
    best.scored === null ? null : h("span", { class: "quiet" }, `, ${best.scored}`),
    best.interval ? h("span", { class: "quiet interval", title: "95 % interval" }, `, ${interval(best.interval)}`) : null);
}

/** Evaluations as a table; two to ten of them can be chosen for a comparison. */
function chosen(evaluations, { withRun } = { withRun: true }) {
  const picked = new Set();
  const button = h("button", { type: "button", disabled: true, onclick: () => {
    location.hash = address(["compare", joinedIds(evaluations.map((one) => one.id).filter((id) => picked.has(id)))]);
  } }, "Compare");
  const choose = (event) => {
    if (event.target.checked) picked.add(event.target.value);
    else picked.delete(event.target.value);
    button.disabled = picked.size < 2 || picked.size > blockOf("data").most_compared;
    button.textContent = picked.size < 2 ? "Compare" : `Compare ${picked.size}`;
  };
  const all = headlines(evaluations);
  const keys = all.length > MOST_COLUMNS ? [] : all;
  const mixed = all.length > MOST_COLUMNS ? ["metrics"] : [];
  const rows = evaluations.map((one) => [
    h("input", { type: "checkbox", value: one.id, "aria-label": `choose ${one.id}`, onchange: choose }),
    link(shortened(one.id, 60), ["evaluation", one.id]),
    ...(withRun ? [one.run ? link(one.run, ["run", one.run]) : ""] : []),
    one.step === null ? "" : count(one.step),
    [one.state === "running" ? progress(one.done, one.total, `progress of ${one.id}`) : stateMark(one.state), pausedMark(one),
      one.superseded ? h("span", { class: "quiet" }, " superseded: the checkpoint was written again") : null],
    shortened(one.model, 60),
    ...mixed.map(() => headlinesOf(one).slice(0, MOST_IN_COLUMN).map((key) => h("div", {}, `${key} ${number(one.metrics[key])}`,
      one.intervals[key] ? h("span", { class: "quiet interval", title: "95 % interval" }, ` ${interval(one.intervals[key])}`) : null))),
    ...keys.map((key) => withInterval(one.metrics[key], one.intervals[key])),
    one.usage && one.usage.output_tokens ? count(one.usage.output_tokens) : "",
    h("span", { class: "moment" }, moment(one.created)),
  ]);
  return [
    table("Evaluations", ["", "evaluation", ...(withRun ? ["run"] : []), "step", "state", "model", ...mixed, ...keys, "output tokens", "created"], rows),
    evaluations.length < 2 ? null : h("p", {}, button, " Choose two to ten evaluations."),
  ];
}

function headlinesOf(one) {
  return one.headline.filter((key) => key in one.metrics);
}

/** The metrics of a list: the three that most have, and one of each evaluation that has none of these. */
function headlines(evaluations) {
  const keys = new Map();
  for (const one of evaluations) {
    for (const key of headlinesOf(one)) keys.set(key, (keys.get(key) || 0) + 1);
  }
  const ordered = [...keys].sort((a, b) => b[1] - a[1]).map(([key]) => key);
  const chosenKeys = ordered.slice(0, 3);
  for (const one of evaluations) {
    const own = ordered.filter((key) => key in one.metrics);
    if (own.length > 0 && !own.some((key) => chosenKeys.includes(key))) chosenKeys.push(own[0]);
  }
  return chosenKeys;
}

function pausedMark(evaluation) {
  const waits = evaluation.waiting_for ? [" ", h("span", { class: "state paused" }, `waits for ${evaluation.waiting_for}`)] : null;
  return [evaluation.paused ? [" ", stateMark("paused")] : null, waits, nothingMark(evaluation)];
}

function nothingMark(result) {
  return result.nothing_scored ? [" ", h("span", { class: "state failed" }, "nothing scored")] : null;
}

function stateMark(state) {
  return h("span", { class: `state ${state.toLowerCase()}` }, state.toLowerCase());
}

function verdictMark(verdict) {
  return h("span", { class: `verdict ${verdict.toLowerCase()}` }, verdict.toLowerCase());
}

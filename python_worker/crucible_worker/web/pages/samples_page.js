// The samples of an evaluation as a table: filtered, searched, sorted and paged. All of it stands in the address.

const FILTERS = [["", "all"], ["wrong", "wrong"], ["unscored", "unscored"], ["truncated", "truncated"], ["changed", "changed against"]];
const SORTED = { "#": "n", sample: "id", score: "score", tokens: "tokens", seconds: "seconds" };

async function samplesPage(source, [id], query) {
  const [page, evaluation] = await Promise.all([source.samples(id, query), source.evaluation(id)]);
  const here = ["evaluation", id, "samples"];
  const go = (changes) => { location.hash = address(here, { ...query, offset: "", ...changes }); };
  const offset = Number(query.offset || 0);
  const holding = source.holding(id);
  const withRepeats = page.rows.some((row) => row.repeat > 0);
  const several = evaluation.evaluators.length > 1 && !query.evaluator;
  const columns = ["#", "sample", ...(several ? ["evaluator"] : []), "input", "target", "output", "extracted", "verdict", "score", "tokens", "seconds"]
    .map((name) => (SORTED[name] ? sortLink(name, here, query) : name));
  const rows = page.rows.map((row) => [
    count(row.n + 1),
    link(shortened(row.id, 40) + (withRepeats ? ` (${row.repeat})` : ""), samplePath(id, row), onlyFilters(query)),
    ...(several ? [row.evaluator] : []),
    brief(row.input, "wide"), brief(row.target), brief(row.output, "wide"), brief(row.extracted),
    [verdictMark(row.verdict), row.reason ? h("span", { class: "quiet" }, ` ${row.reason}`) : null],
    number(row.score), row.tokens ? count(row.tokens) : "", row.seconds === null ? "" : number(row.seconds)]);
  return {
    title: `Samples of ${stepName(evaluation)}`,
    concerns: () => false,
    content: [
      h("p", { class: "facts" }, link("Back to the evaluation", ["evaluation", id])),
      toolbar(evaluation, query, go),
      h("p", { class: "quiet", role: "status" }, matchText(page, offset),
        holding && holding.left_out ? ` ${holding.left_out}` : ""),
      rows.length === 0 ? h("p", {}, "No sample matches.") : table("Samples", columns, rows, { class: "samples" }),
      h("p", { class: "paging" },
        offset > 0 ? link("Previous page", here, { ...query, offset: Math.max(0, offset - PAGE_ROWS) || "" }, { rel: "prev" }) : null,
        offset + page.rows.length < page.matching ? link("Next page", here, { ...query, offset: offset + PAGE_ROWS }, { rel: "next" }) : null),
    ],
    again: page.complete ? null : 1000,
  };
}

function brief(text, width) {
  return h("div", { class: `brief ${width || ""}` }, text);
}

function matchText(page, offset) {
  const shown = page.rows.length === 0 ? "" : `${count(offset + 1)} to ${count(offset + page.rows.length)} of `;
  return `${shown}${plural(page.matching, "sample")}${page.complete ? "" : `, ${count(page.read)} read so far`}.`;
}

function samplePath(id, row) {
  return ["evaluation", id, "sample", row.evaluator, row.id, String(row.repeat)];
}

function onlyFilters(query) {
  const { offset: _, ...rest } = query;
  return rest;
}

function toolbar(evaluation, query, go) {
  const search = h("input", { type: "search", id: "search", value: query.search || "", placeholder: "in question, answer, target, id",
    "aria-keyshortcuts": "/" });
  const where = h("input", { type: "text", id: "where", value: [query.where || []].flat().join(" "), placeholder: "level=3" });
  const other = h("input", { type: "text", id: "other", value: query.other || "", placeholder: "id of the other evaluation" });
  const filter = h("select", { id: "filter", onchange: () => {
    if (filter.value === "changed" && other.value === "") { otherLabel.hidden = false; other.focus(); }
    else go({ filter: filter.value });
  } }, FILTERS.map(([value, name]) => h("option", { value, selected: (query.filter || "") === value }, name)));
  const evaluator = h("select", { id: "evaluator", onchange: () => go({ evaluator: evaluator.value }) },
    h("option", { value: "" }, "every evaluator"),
    evaluation.evaluators.map((one) => h("option", { value: one.label, selected: query.evaluator === one.label }, one.label)));
  const otherLabel = h("label", { for: "other", hidden: query.filter !== "changed" }, "Evaluation ", other);
  return h("form", { class: "toolbar", role: "search", onsubmit: (event) => {
    event.preventDefault();
    go({ search: search.value, where: where.value.split(/\s+/).filter((pair) => pair.includes("=")), filter: filter.value, other: other.value });
  } },
  h("label", { for: "filter" }, "Show ", filter), otherLabel,
  evaluation.evaluators.length > 1 ? h("label", { for: "evaluator" }, "of ", evaluator) : null,
  h("label", { for: "search" }, "Search ", search), h("label", { for: "where" }, "Metadata ", where),
  h("button", {}, "Apply"));
}

function sortLink(name, here, query) {
  const key = SORTED[name];
  const current = (query.sort || "n") === key;
  const descending = current && !query.descending;
  const arrow = current ? (query.descending ? " ↓" : " ↑") : "";
  return link(name + arrow, here, { ...query, offset: "", sort: key === "n" ? "" : key, descending: descending ? "1" : "" },
    { "aria-label": `sort by ${name === "#" ? "position" : name}${descending ? ", descending" : ""}` });
}

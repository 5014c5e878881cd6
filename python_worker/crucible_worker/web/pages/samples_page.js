// The samples of an evaluation as a table: filtered, searched, sorted and paged. All of it stands in the address.

const FILTERS = [["", "all"], ["wrong", "wrong"], ["unscored", "unscored"], ["truncated", "truncated"], ["changed", "disagreeing with"]];
const SORTED = { "#": "n", sample: "id", score: "score", tokens: "tokens", time: "seconds" };

async function samplesPage(source, [id], query) {
  const [page, evaluation] = await Promise.all([source.samples(id, query), source.evaluation(id)]);
  const here = ["evaluation", id, "samples"];
  const others = query.filter === "changed" ? await otherEvaluations(source, evaluation, query.other) : [];
  const offset = Number(query.offset || 0);
  const holding = source.holding(id);
  const withRepeats = page.rows.some((row) => row.repeat > 0);
  const several = evaluation.evaluators.length > 1 && !query.evaluator;
  const columns = ["#", "sample", ...(several ? ["evaluator"] : []), "input", "target", "output", "extracted", "verdict", "score", "tokens", "time"]
    .map((name) => (SORTED[name] ? sortLink(name, here, query) : name));
  const rows = page.rows.map((row) => [
    count(row.n + 1),
    link(shortened(row.id, 40) + (withRepeats ? ` (${row.repeat})` : ""), samplePath(id, row), onlyFilters(query)),
    ...(several ? [row.evaluator] : []),
    brief(row.input, "wide"), brief(row.target), brief(row.output, "wide"), brief(row.extracted),
    [verdictMark(row.verdict), row.stop === "length" ? h("span", { class: "quiet" }, " truncated") : null, row.reason ? h("span", { class: "quiet" }, ` ${row.reason}`) : null],
    number(row.score), row.tokens ? count(row.tokens) : "", seconds(row.seconds)]);
  return {
    title: `Samples of ${stepName(evaluation)}`,
    concerns: (change) => change.id === id,
    content: [
      h("p", { class: "facts" }, link("Back to the evaluation", ["evaluation", id]),
        query.filter === "changed" ? [" · ", link("Compare both, answer by answer", ["compare", `${query.other},${id}`])] : null),
      toolbar(source, evaluation, page.fields, others, query, here),
      h("p", { class: "quiet", role: "status" }, matchText(page, offset),
        holding && holding.left_out ? ` ${holding.left_out}` : ""),
      rows.length === 0 ? h("p", {}, "No sample matches.") : table("Samples", columns, rows, { class: "samples" }),
      h("p", { class: "paging" },
        offset > 0 ? link("Previous page", here, { ...query, offset: Math.max(0, offset - PAGE_ROWS) || "" }, { rel: "prev" }) : null,
        offset + page.rows.length < page.matching ? link("Next page", here, { ...query, offset: offset + PAGE_ROWS }, { rel: "next" }) : null),
    ],
    again: page.searched < page.total ? 100 : null,
  };
}

function brief(text, width) {
  return h("div", { class: `brief ${width || ""}` }, text);
}

function matchText(page, offset) {
  const shown = page.rows.length === 0 ? "" : `${count(offset + 1)} to ${count(offset + page.rows.length)} of `;
  return `${shown}${plural(page.matching, "sample")}${page.searched < page.total ? `, ${count(page.searched)} of ${count(page.total)} searched so far` : ""}.`;
}

function samplePath(id, row) {
  return ["evaluation", id, "sample", row.evaluator, row.id, String(row.repeat)];
}

function onlyFilters(query) {
  const { offset: _, ...rest } = query;
  return rest;
}

function toolbar(source, evaluation, fields, others, query, here) {
  const pairs = [query.where || []].flat();
  const search = h("input", { type: "search", id: "search", value: query.search || "", placeholder: "in question, answer, target, id",
    "aria-keyshortcuts": "/" });
  const go = (changes) => { location.hash = address(here, { ...query, offset: "", search: search.value, ...changes }); };
  const other = h("select", { id: "other", onchange: () => { if (other.value) go({ filter: "changed", other: other.value }); } });
  const offer = (found) => other.replaceChildren(h("option", { value: "" }, "choose an evaluation"),
    ...found.map((one) => h("option", { value: one.id, selected: one.id === query.other }, shortened(evaluationName(one), 80))));
  offer(others);
  const otherLabel = h("label", { for: "other", hidden: query.filter !== "changed" }, other);
  const filter = h("select", { id: "filter", onchange: async () => {
    if (filter.value !== "changed") { go({ filter: filter.value, other: "" }); return; }
    otherLabel.hidden = false;
    offer(await otherEvaluations(source, evaluation, query.other));
    other.focus();
  } }, FILTERS.map(([value, name]) => h("option", { value, selected: (query.filter || "") === value }, name)));
  const evaluator = h("select", { id: "evaluator", onchange: () => go({ evaluator: evaluator.value }) },
    h("option", { value: "" }, "every evaluator"),
    evaluation.evaluators.map((one) => h("option", { value: one.label, selected: query.evaluator === one.label }, one.label)));
  const metadata = metadataChoice(fields, (pair) => go({ where: [...pairs.filter((one) => fieldOf(one) !== fieldOf(pair)), pair] }));
  return [h("form", { class: "toolbar", role: "search", onsubmit: (event) => {
    event.preventDefault();
    if (!metadata.typed()) go({});
  } },
  h("label", { for: "filter" }, "Show ", filter), otherLabel,
  evaluation.evaluators.length > 1 ? h("label", { for: "evaluator" }, "of ", evaluator) : null,
  h("label", { for: "search" }, "Search ", search), metadata.parts,
  h("button", {}, "Apply")),
  pairs.length === 0 ? null : h("p", { class: "chosen" }, pairs.map((pair) => h("span", {}, pair, " ",
    link("×", here, { ...query, offset: "", where: pairs.filter((one) => one !== pair) }, { "aria-label": `do not filter by ${pair}` }))))];
}

function fieldOf(pair) {
  return pair.slice(0, pair.indexOf("="));
}

/** A field of the metadata, then one of its values; what has too many values is typed. `choose("level=3")` takes both. */
function metadataChoice(fields, choose) {
  const names = Object.keys(fields);
  if (names.length === 0) return { parts: null, typed: () => false };
  const place = h("span");
  const field = h("select", { id: "field", onchange: () => {
    const values = fields[field.value];
    const given = { id: "value", "aria-label": `value of ${field.value}` };
    if (field.value === "") place.replaceChildren();
    else if (values === null) place.replaceChildren(h("input", { type: "text", placeholder: "value", ...given }));
    else {
      place.replaceChildren(h("select", { onchange: (event) => { if (event.target.selectedIndex > 0) choose(`${field.value}=${event.target.value}`); }, ...given },
        h("option", {}, "choose a value"), values.map((value) => h("option", { value }, value === "" ? "(empty)" : value))));
    }
    place.firstChild?.focus();
  } }, h("option", { value: "" }, "any"), names.map((name) => h("option", { value: name }, name)));
  return {
    parts: [h("label", { for: "field" }, "Metadata ", field), place],
    typed: () => {
      const box = place.querySelector("input");
      if (!box || box.value === "") return false;
      choose(`${field.value}=${box.value}`);
      return true;
    },
  };
}

/** What an evaluation can be held against: the others of its run, then the others of its data set. */
async function otherEvaluations(source, evaluation, chosen) {
  const ofRun = evaluation.run && source.hasRun(evaluation.run) ? (await source.run(evaluation.run)).evaluations : [];
  const listed = (await source.index({})).evaluations.filter((one) => one.dataset_fingerprint === evaluation.dataset_fingerprint);
  const found = new Map([...ofRun, ...listed].map((one) => [one.id, one]));
  found.delete(evaluation.id);
  if (chosen && !found.has(chosen)) found.set(chosen, { id: chosen, step: null });
  return [...found.values()];
}

function evaluationName(one) {
  return one.step === null ? one.id : `step ${count(one.step)} (${one.id})`;
}

function sortLink(name, here, query) {
  const key = SORTED[name];
  const current = (query.sort || "n") === key;
  const descending = current && !query.descending;
  const arrow = current ? (query.descending ? " ↓" : " ↑") : "";
  return link(name + arrow, here, { ...query, offset: "", sort: key === "n" ? "" : key, descending: descending ? "1" : "" },
    { "aria-label": `sort by ${name === "#" ? "position" : name}${descending ? ", descending" : ""}` });
}

// Where a page gets its data: from the blocks of a report file, or from the worker that serves it.

const PAGE_ROWS = 100;
const MAX_FIELDS = 50;  // of metadata to choose from, values of a field, characters of a value
const MAX_VALUES = 50;
const MAX_VALUE_CHARS = 100;
const SEARCH_MS = 2000;  // of a search before its first results are shown, and the longest one
const MOST_SEARCH_MS = 600000;

function blockOf(id) {
  const block = document.getElementById(id);
  return block === null ? null : JSON.parse(block.textContent);
}

/** The data of a report file. Its samples are parsed when they are looked at. */
class FileSource {
  constructor(data) {
    this.data = data;
    this.live = false;
    this.parsed = new Map();
  }

  async index() { return this.data.index; }

  async run(run) { return known(own(this.data.runs, run), `run ${run}`); }

  async evaluation(id) { return known(own(this.data.evaluations, id), `evaluation ${id}`); }

  async compare(ids) {
    const compare = this.data.compare;
    const held = new Set((compare ? compare.evaluations : []).map((one) => one.id));
    if (!ids.every((id) => held.has(id))) return known(null, `comparison of ${ids.join(", ")}`);
    const baseline = ids[0];
    return {
      evaluations: ids.map((id) => compare.evaluations.find((one) => one.id === id)),
      comparisons: compare.comparisons.filter((one) => one.baseline === baseline && ids.includes(one.evaluation)),
      inputs: compare.inputs,
      only_with: compare.all_pairs || baseline === compare.evaluations[0].id ? null : compare.evaluations[0].id,
    };
  }

  /** What of an evaluation's samples the file has: `{total, shown, left_out}`. */
  holding(id) { return own(this.data.samples, id); }

  allSamples(id) {
    if (!this.parsed.has(id)) {
      const holding = this.holding(id);
      this.parsed.set(id, holding === null ? [] : blockOf(holding.block));
    }
    return this.parsed.get(id);
  }

  async samples(id, query) {
    const all = this.allSamples(id);
    const changed = query.filter === "changed" ? verdicts(this.allSamples(query.other || "")) : null;
    const search = (query.search || "").toLocaleLowerCase();
    const where = [query.where || []].flat().map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]);
    const found = all.filter((sample) =>
      (!query.evaluator || sample.evaluator === query.evaluator) && passes(sample, query.filter, changed) &&
      (search === "" || searched(sample).includes(search)) &&
      where.every(([key, value]) => sample.metadata && sample.metadata[key] === value));
    const rows = found.map(rowOf);
    const sign = query.descending ? -1 : 1;
    if (query.sort && query.sort !== "n") rows.sort((a, b) => ordered(a[query.sort], b[query.sort], sign) || a.n - b.n);
    else if (sign < 0) rows.reverse();
    const offset = Number(query.offset || 0);
    return { rows: rows.slice(offset, offset + PAGE_ROWS), matching: rows.length, searched: all.length, total: all.length, fields: this.fields(all) };
  }

  /** The metadata to choose from, as a worker tells it: `{level: ["1", "2"], source: null}`, null for too many values. */
  fields(samples) {
    const values = new Map();
    for (const [key, value] of samples.flatMap((one) => Object.entries(one.metadata || {}))) {
      if (key === "" || key.includes("=") || (!values.has(key) && values.size === MAX_FIELDS)) continue;
      if (!values.has(key)) values.set(key, new Set());
      if (value.length > MAX_VALUE_CHARS) values.set(key, null);
      values.get(key)?.add(value);
    }
    const listed = (one) => (one === null || one.size > MAX_VALUES ? null : [...one].sort());
    return Object.fromEntries([...values].sort(([a], [b]) => ordered(a, b)).map(([key, one]) => [key, listed(one)]));
  }

  hasRun(run) { return Object.hasOwn(this.data.runs, run); }

  async sample(id, evaluator, sample, repeat) {
    const found = this.allSamples(id).find((one) =>
      one.evaluator === evaluator && one.sample_id === sample && one.repeat === repeat);
    return known(found, `sample ${sample}`);
  }

  async answers(ids, evaluator, sample) {
    const found = ids.flatMap((id) => this.allSamples(id)
      .filter((one) => one.evaluator === evaluator && one.sample_id === sample)
      .map((one) => ({ evaluation: id, step: this.data.evaluations[id].step, ...one })));
    return { id: sample, input: found[0]?.input ?? null, targets: found[0]?.targets ?? null, answers: found };
  }

  leave() { /* Nothing is under way. */ }

  listen() { /* A file does not change. */ }
}

/** Ids may be called as what every object has: "constructor". */
function own(object, key) {
  return Object.hasOwn(object, key) ? object[key] : null;
}

function known(value, name) {
  if (value === null || value === undefined) throw new Error(`This file does not contain the ${name}.`);
  return value;
}

function verdicts(samples) {
  return new Map(samples.map((one) => [keyOf(one), one.verdict]));
}

function keyOf(sample) {
  return JSON.stringify([sample.evaluator, sample.sample_id, sample.repeat]);
}

function passes(sample, filter, changed) {
  if (filter === "wrong") return sample.verdict === "incorrect";
  if (filter === "unscored") return sample.verdict === "error" || sample.verdict === "undecided";
  if (filter === "truncated") return sample.stop_reason === "length";
  if (filter === "changed") return changed.has(keyOf(sample)) && changed.get(keyOf(sample)) !== sample.verdict;
  return true;
}

function searched(sample) {
  return [sample.sample_id, inputText(sample.input), sample.output, sample.extracted, ...(sample.targets || [])].join("\n").toLocaleLowerCase();
}

function inputText(input) {
  if (input === null || input === undefined) return "";
  if (typeof input === "string") return input;
  if (Array.isArray(input)) return input.map((message) => `${message.role}: ${message.content}`).join("\n");
  return `${count(input.tokens)} tokens`;
}

function rowOf(sample) {
  return {
    n: sample.n, evaluator: sample.evaluator, id: sample.sample_id, repeat: sample.repeat, verdict: sample.verdict,
    score: sample.score, input: shortened(inputText(sample.input), 300), output: shortened(afterReasoning(sample), 300),
    extracted: sample.extracted, target: shortened((sample.targets || []).join(", "), 300), stop: sample.stop_reason,
    tokens: sample.output_tokens, seconds: sample.seconds, reason: sample.problem ? sample.problem.reason : "",
  };
}

function afterReasoning(sample) {
  return sample.reasoning_span ? Array.from(sample.output).slice(sample.reasoning_span[1]).join("").trim() : sample.output;
}

/** Values that are missing are last in both directions. */
function ordered(a, b, sign) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -sign : sign;
}

/** The data of a worker: asked for when it is shown, and again when it has changed. */
class LiveSource {
  constructor() {
    this.live = true;
    this.searching = null;
    this.unfinished = null;
  }

  async get(path, query, signal) {
    const words = Object.entries(query || {}).filter(([, value]) => value !== undefined && value !== null && value !== "")
      .flatMap(([key, value]) => [value].flat().map((one) => [key, one]));
    const answer = await fetch(`api/${path}?${new URLSearchParams(words)}`, { headers: { accept: "application/json" }, signal });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error);
    return body;
  }

  index(query) { return this.get("index", query); }

  run(run) { return this.get("run", { run }); }

  evaluation(id) { return this.get("evaluation", { id }); }

  compare(ids) { return this.get("compare", { ids: joinedIds(ids) }); }

  hasRun() { return true; }

  holding() { return null; }

  /** What matches of the samples that can be looked through in a moment; asked again, in a longer one. */
  async samples(id, query) {
    this.leave();
    const key = JSON.stringify([id, query]);
    const within = this.unfinished?.key === key ? this.unfinished.within : SEARCH_MS;
    this.searching = new AbortController();
    const page = await this.get("samples", { ...query, id, limit: PAGE_ROWS, within }, this.searching.signal);
    this.unfinished = page.searched < page.total ? { key, within: Math.min(4 * within, MOST_SEARCH_MS) } : null;
    return page;
  }

  /** The reader has left the page: its search ends. */
  leave() { this.searching?.abort(); }

  sample(id, evaluator, sample, repeat) { return this.get("sample", { id, evaluator, sample, repeat }); }

  answers(ids, evaluator, sample) { return this.get("answers", { ids: joinedIds(ids), evaluator, sample }); }

  /** Call `changed({id, run, state, done, total})` whenever an evaluation has moved, and `connected(bool)` on changes of it. */
  listen(changed, connected) {
    const events = new EventSource("api/events");
    events.addEventListener("changed", (event) => changed(JSON.parse(event.data)));
    events.addEventListener("open", () => connected(true));
    events.addEventListener("error", () => connected(false));
  }
}

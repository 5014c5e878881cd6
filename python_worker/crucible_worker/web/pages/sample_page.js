// One sample: what was asked, what the model answered, how that was graded and why.

async function samplePage(source, [id, , evaluator, sample, repeat], query) {
  const [data, neighbours] = await Promise.all([
    source.sample(id, evaluator, sample, Number(repeat)), neighboursOf(source, id, evaluator, sample, Number(repeat), query)]);
  const problem = data.problem ? h("p", { class: "problem" }, problemText(data.problem)) : null;
  return {
    title: `Sample ${shortened(sample, 80)}`,
    concerns: () => false,
    content: [
      h("p", { class: "facts" }, link("Back to the samples", ["evaluation", id, "samples"], query), " · ",
        link(`evaluation ${shortened(id, 60)}`, ["evaluation", id]), data.repeat > 0 ? ` · repeat ${count(data.repeat)}` : ""),
      h("nav", { class: "paging", "aria-label": "Samples next to this one" },
        neighbours.before ? link("Previous", samplePath(id, neighbours.before), query, { rel: "prev", "aria-keyshortcuts": "k" }) : null,
        neighbours.after ? link("Next", samplePath(id, neighbours.after), query, { rel: "next", "aria-keyshortcuts": "j" }) : null),
      section("Grade", h("p", {}, verdictMark(data.verdict), data.score === null ? null : h("strong", {}, ` ${number(data.score)}`)),
        problem, gradeFacts(data)),
      promptSection(data),
      data.turns.length > 0 || data.rollouts.length > 0 ? null : answerSection(data),
      turnsSection(data),
      logprobsSection(data),
      metadataSection(data),
    ],
  };
}

async function neighboursOf(source, id, evaluator, sample, repeat, query) {
  const offset = Number(query.offset || 0);
  const page = await source.samples(id, { ...query, offset });
  const at = page.rows.findIndex((row) => row.evaluator === evaluator && row.id === sample && row.repeat === repeat);
  return at < 0 ? {} : { before: page.rows[at - 1], after: page.rows[at + 1] };
}

function gradeFacts(data) {
  const facts = [
    ["target", (data.targets || []).join(" | ")], ["extracted", data.extracted], ["method", data.method],
    ["generation ended by", data.stop_reason], ["output tokens", data.output_tokens ? count(data.output_tokens) : ""],
    ["time", seconds(data.seconds)], ["tokens", usageText(data.usage)],
    ...Object.entries(data.measurements || {}).map(([key, value]) => [key, number(value)]),
    ...data.truncated.map((part) => [`left out of ${part.part}`, `${count(part.bytes)} bytes, by ${part.limit}`]),
  ];
  return h("dl", {}, facts.filter(([, text]) => text).map(([word, text]) => [h("dt", {}, word), h("dd", { class: "text" }, text)]));
}

function promptSection(data) {
  if (data.prompt === null && data.input === null) return section("Prompt", h("p", { class: "quiet" }, "Not recorded."));
  const choices = data.choices && data.choices.length > 0
    ? h("ol", { class: "choices", type: "A" }, data.choices.map((choice) => h("li", { class: "text" }, choice))) : null;
  const asked = data.prompt === null ? data.input : data.prompt;
  const same = data.prompt === null || plainly(data.prompt) === plainly(data.input);
  return section("Prompt", spoken(asked), choices,
    same || data.input === null ? null : folded("Input as the data set has it", () => spoken(data.input)));
}

/** A conversation of one user message is its text. */
function plainly(asked) {
  if (Array.isArray(asked) && asked.length === 1 && asked[0].role === "user") return asked[0].content;
  return typeof asked === "string" ? asked : JSON.stringify(asked);
}

/** A text, a conversation, or tokens that were given in place of both. */
function spoken(asked) {
  if (typeof asked === "string") return h("pre", { class: "text" }, asked);
  if (Array.isArray(asked)) return asked.map((message) => bubble(message.role, message.content));
  return h("p", { class: "quiet" }, `${count(asked.tokens)} tokens; their text is not recorded.`);
}

function bubble(role, body, ...notes) {
  return h("div", { class: `bubble ${["user", "assistant", "system", "judge", "tool"].includes(role) ? role : "other"}` },
    h("p", { class: "role" }, role, notes.filter(Boolean).map((note) => h("span", { class: "quiet" }, ` · ${note}`))),
    typeof body === "string" ? h("pre", { class: "text" }, body) : body);
}

function answerSection(data) {
  if (data.output === "") return null;
  return section("Answer", bubble("assistant", answerText(data.output, data.reasoning_span, data.extracted_span)));
}

/** An answer: its reasoning is folded, the part that was graded is marked. */
function answerText(output, reasoning, extracted) {
  const points = Array.from(output);  // by characters as Python counts them, not by UTF-16
  const piece = (from, to) => points.slice(from, to).join("");
  const start = reasoning ? reasoning[1] : 0;
  const marked = extracted && extracted[0] >= start ? extracted : null;
  return [
    reasoning ? [
      reasoning[0] > 0 ? h("pre", { class: "text" }, piece(0, reasoning[0])) : null,
      folded(`Reasoning, ${count(reasoning[1] - reasoning[0])} characters`, () => h("pre", { class: "text" }, piece(...reasoning)))] : null,
    h("pre", { class: "text" }, marked === null ? piece(start) : [
      piece(start, marked[0]), h("mark", { title: "what was graded" }, piece(...marked)), piece(marked[1])]),
  ];
}

function turnsSection(data) {
  const rollouts = new Map();
  for (const turn of data.turns) {
    const key = turn.rollout ?? 0;
    if (!rollouts.has(key)) rollouts.set(key, []);
    rollouts.get(key).push(turn);
  }
  data.rollouts.forEach((_, n) => { if (!rollouts.has(n)) rollouts.set(n, []); });
  if (rollouts.size === 0) return null;
  const several = rollouts.size > 1 || data.rollouts.length > 0;
  return section(several ? "Rollouts" : "Turns", [...rollouts].map(([n, turns]) => {
    const rollout = data.rollouts[n];
    const shown = turns.map((turn) => {
      const notes = [turn.model ? `${turn.role === "assistant" ? "said by" : "asked of"} ${turn.model}` : "",
        turn.reward === null ? "" : `reward ${number(turn.reward)}`, turn.tokens ? plural(turn.tokens, "token") : ""];
      const graded = turn.role === "assistant" && !turn.model && turn.text === data.output;
      const body = graded ? answerText(turn.text, data.reasoning_span, data.extracted_span) : h("pre", { class: "text" }, turn.text);
      return bubble(turn.model ? "judge" : turn.role, body, ...notes);
    });
    const facts = rollout ? rolloutFacts(rollout) : null;
    if (!several) return [facts, shown];
    const words = rollout ? ` · reward ${number(rollout.reward)} · ${plural(rollout.turns.length, "turn")}` : "";
    const part = h("details", { open: n === 0 }, h("summary", {}, `Rollout ${count(n + 1)}${words}`), facts, shown);
    return part;
  }));
}

function rolloutFacts(rollout) {
  const rows = rollout.turns.map((turn, n) => [count(n + 1), count(turn.observation_tokens), count(turn.action_tokens),
    number(turn.reward), turn.stop, Object.entries(turn.metrics).map(([key, value]) => `${key} ${number(value)}`).join(", ")]);
  const named = Object.entries(rollout.metrics).map(([key, value]) => `${key} ${number(value)}`).join(", ");
  return [
    named || rollout.final_reward ? h("p", { class: "quiet" }, [rollout.final_reward ? `final reward ${number(rollout.final_reward)}` : "", named]
      .filter(Boolean).join(" · ")) : null,
    table("Turns", ["turn", "observed tokens", "generated tokens", "reward", "ended by", "metrics"], rows),
  ];
}

/** Tokens with their log-probabilities: the less likely, the stronger the colour. */
function logprobsSection(data) {
  if (!data.logprobs || data.logprobs.length === 0) return null;
  const total = data.logprobs.reduce((sum, [, value]) => sum + value, 0);
  return section("Log-probabilities",
    h("p", { class: "quiet" }, `${count(data.logprobs.length)} tokens, sum ${number(total)} nats, mean ${number(total / data.logprobs.length)}. ` +
      "The stronger the colour, the less likely the token."),
    h("p", { class: "tokens" }, data.logprobs.map(([text, value]) =>
      h("span", { class: `surprise-${Math.min(5, Math.floor(-value / 1.2))}`, title: `${number(value)} nats` }, text))));
}

function metadataSection(data) {
  const rows = Object.entries(data.metadata || {});
  if (rows.length === 0) return null;
  return section("Metadata", h("dl", {}, rows.map(([key, value]) => [h("dt", {}, key), h("dd", { class: "text" }, value)])));
}

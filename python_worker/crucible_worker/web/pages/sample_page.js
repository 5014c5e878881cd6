// One sample: what was asked, what the model answered, how that was graded and why.

async function samplePage(source, [id, , evaluator, sample, repeat], query) {
  const [data, evaluation, neighbours] = await Promise.all([
    source.sample(id, evaluator, sample, Number(repeat)), source.evaluation(id), neighboursOf(source, id, evaluator, sample, Number(repeat), query)]);
  const problem = data.problem ? h("p", { class: "problem" }, problemText(data.problem)) : null;
  return {
    title: `Sample ${shortened(sample, 80)}`,
    concerns: () => false,
    content: [
      h("p", { class: "facts" }, link("Back to the samples", ["evaluation", id, "samples"], query), " · ",
        link(evaluation.step === null ? `evaluation ${shortened(id, 60)}` : `step ${count(evaluation.step)}`, ["evaluation", id]),
        ` · ${evaluator}`, data.repeat > 0 ? ` · repeat ${count(data.repeat)}` : "",
        evaluation.run && source.hasRun(evaluation.run)
          ? [" · ", link(`This sample over the steps of ${evaluation.run}`, ["run", evaluation.run, "sample", evaluator, sample])] : null),
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
    ["target", (data.targets || []).join(" | ")], ["extracted", data.extracted], ["graded by", data.method],
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
  if (data.output === "" && !data.reasoning && !data.refusal && !data.tool_calls && !data.unparsed_tool_calls) return null;
  return section("Answer", bubble("assistant", [
    apart(data, !data.reasoning_span), data.output === "" ? null : answerText(data.output, data.reasoning_span, data.extracted_span, isParsed(data))]));
}

/** What an answer has apart from its text: reasoning, a refusal, calls of tools, and those that cannot be parsed. */
function apart(said, reasoned = true) {
  return [
    reasoned && said.reasoning ? folded(`Reasoning, ${count(said.reasoning.length)} characters`, () => h("pre", { class: "text" }, said.reasoning)) : null,
    said.refusal ? h("p", { class: "role" }, "refused") : null,
    said.refusal ? h("pre", { class: "text" }, said.refusal) : null,
    callsOf(said),
  ];
}

/** Its calls of tools, and those that cannot be parsed. */
function callsOf(said) {
  return [
    (said.tool_calls || []).map((call) => h("div", { class: "call" }, h("p", { class: "role" }, "tool call"),
      h("pre", { class: "text" }, call.name ? `${call.name} ${call.arguments}` : call.arguments))),
    (said.unparsed_tool_calls || []).map((call) => h("div", { class: "call" },
      h("p", { class: "role" }, "tool call that cannot be parsed", h("span", { class: "quiet" }, ` · ${call.error}`)), h("pre", { class: "text" }, call.text))),
  ];
}

/** An answer: its reasoning is folded, the part that was graded is marked. */
function answerText(output, reasoning, extracted, parsed = false) {
  const points = Array.from(output);  // by characters as Python counts them, not by UTF-16
  const piece = (from, to) => points.slice(from, to).join("");
  const start = reasoning ? reasoning[1] : 0;
  const marked = extracted && extracted[0] >= start ? extracted : null;
  return [
    reasoning ? [
      reasoning[0] > 0 ? h("pre", { class: "text" }, piece(0, reasoning[0])) : null,
      folded(`Reasoning, ${count(reasoning[1] - reasoning[0])} characters`, () => h("pre", { class: "text" }, piece(...reasoning)))] : null,
    marked === null ? (parsed ? h("pre", { class: "text" }, piece(start)) : withToolCalls(piece(start))) : h("pre", { class: "text" },
      piece(start, marked[0]), h("mark", { title: "what was graded" }, piece(...marked)), piece(marked[1])),
  ];
}

/** What was said: of a group of rollouts, each with its turns, of which each has its observations, its answer and its reward. */
function turnsSection(data) {
  const rollouts = new Map();
  for (const turn of data.turns) {
    const key = turn.rollout ?? 0;
    if (!rollouts.has(key)) rollouts.set(key, []);
    rollouts.get(key).push(turn);
  }
  data.rollouts.forEach((_, n) => { if (!rollouts.has(n)) rollouts.set(n, []); });
  if (rollouts.size === 0) return null;
  if (rollouts.size === 1 && data.rollouts.length === 0) return section("Turns", [...rollouts.values()][0].map((turn) => said(data, turn)));
  const rewards = data.rollouts.map((one) => one.reward);
  const best = Math.max(...rewards) > Math.min(...rewards) ? Math.max(...rewards) : null;
  return section("Rollouts", groupFacts(data.rollouts), [...rollouts].sort(([a], [b]) => a - b).map(([n, turns]) => {
    const rollout = data.rollouts[n];
    const words = rollout ? ` · reward ${number(rollout.reward)} · ${plural(rollout.turns.length, "turn")}` : "";
    return h("details", { open: n === 0, class: rollout && rollout.reward === best ? "rollout most" : "rollout" },
      h("summary", {}, `Rollout ${count(n + 1)}${words}`), rollout ? rolloutFacts(rollout) : null,
      byAnswer(turns, rollout).map((part, at) => turnPart(data, part, rollout && rollout.turns[at], at)));
  }));
}

function groupFacts(rollouts) {
  if (rollouts.length < 2) return null;
  const rewards = rollouts.map((one) => one.reward);
  const mean = rewards.reduce((sum, one) => sum + one, 0) / rewards.length;
  return h("p", { class: "quiet" }, `A group of ${plural(rollouts.length, "rollout")}: mean reward ${number(mean)}, ` +
    `from ${number(Math.min(...rewards))} to ${number(Math.max(...rewards))}.`);
}

/** What was said, in parts that each end with an answer of the model; what a judge said after it belongs to it. */
function byAnswer(turns, rollout) {
  const parts = [];
  let answered = true;
  for (const turn of turns) {
    if (answered && !(turn.model && parts.length > 0)) { parts.push([]); answered = false; }
    parts[parts.length - 1].push(turn);
    if (turn.role === "assistant" && !turn.model) answered = true;
  }
  while (rollout && parts.length < rollout.turns.length) parts.push([]);  // the text is not recorded
  return parts;
}

function turnPart(data, turns, facts, at) {
  const metrics = facts ? metricWords(facts.metrics) : "";
  const words = facts ? [`reward ${number(facts.reward)}`, `${count(facts.observation_tokens)} tokens observed`,
    `${count(facts.action_tokens)} generated`, facts.stop ? `ended by ${facts.stop}` : "", metrics] : [];
  const alone = data.rollouts.length === 1 && data.rollouts[0].turns.length === 1;  // then they have a section of their own
  return h("details", { open: true, class: "turn" },
    h("summary", {}, [`Turn ${count(at + 1)}`, ...words].filter(Boolean).join(" · ")),
    turns.length === 0 ? h("p", { class: "quiet" }, "Its text is not recorded.") : turns.map((turn) => said(data, turn)),
    facts && facts.logprobs && !alone ? folded("Log-probabilities", () => surprises(facts.logprobs)) : null);
}

function metricWords(metrics) {
  return Object.entries(metrics).map(([key, value]) => `${key} ${number(value)}`).join(", ");
}

function said(data, turn) {
  const notes = [turn.model ? `${turn.role === "assistant" ? "said by" : "asked of"} ${turn.model}` : "",
    turn.reward === null ? "" : `reward ${number(turn.reward)}`, turn.tokens ? plural(turn.tokens, "token") : ""];
  const graded = turn.role === "assistant" && !turn.model && turn.text === data.output;
  const body = graded ? answerText(turn.text, data.reasoning_span, data.extracted_span, isParsed(turn))
    : turn.role === "assistant" && !isParsed(turn) ? withToolCalls(turn.text) : h("pre", { class: "text" }, turn.text);
  return bubble(turn.model ? "judge" : turn.role, [callsOf(turn), body], ...notes);
}

/** Whether calls of tools were separated from a text: they stand before it, and it is shown as it is. */
function isParsed(said) {
  return Boolean(said.tool_calls || said.unparsed_tool_calls);
}

/** A text with its tool calls set apart, as models write them: `<tool_call>{"name": ..., "arguments": ...}</tool_call>`. */
function withToolCalls(text) {
  return text.split("<tool_call>").map((part, n) => {
    const end = part.indexOf("</tool_call>");
    if (n === 0 || end < 0) return part.trim() === "" && n === 0 ? null : h("pre", { class: "text" }, n === 0 ? part : `<tool_call>${part}`);
    const after = part.slice(end + "</tool_call>".length);
    return [h("div", { class: "call" }, h("p", { class: "role" }, "tool call"), h("pre", { class: "text" }, part.slice(0, end).trim())),
      after.trim() === "" ? null : h("pre", { class: "text" }, after)];
  });
}

function rolloutFacts(rollout) {
  const named = metricWords(rollout.metrics);
  const words = [rollout.final_reward ? `final reward ${number(rollout.final_reward)}` : "", named].filter(Boolean);
  return words.length > 0 ? h("p", { class: "quiet" }, words.join(" · ")) : null;
}

function logprobsSection(data) {
  return data.logprobs && data.logprobs.length > 0 ? section("Log-probabilities", surprises(data.logprobs)) : null;
}

/** Tokens with their log-probabilities: the less likely, the stronger the colour. */
function surprises(logprobs) {
  const total = logprobs.reduce((sum, [, value]) => sum + value, 0);
  return [
    h("p", { class: "quiet" }, `${plural(logprobs.length, "token")}, sum ${number(total)} nats, mean ${number(total / logprobs.length)}. ` +
      "The stronger the colour, the less likely the token. Tokens are shown by their ids."),
    h("p", { class: "tokens" }, logprobs.map(([text, value]) =>
      [h("span", { class: `surprise-${Math.min(5, Math.floor(-value / 1.2))}`, title: `${number(value)} nats` }, text), " "])),
  ];
}

function metadataSection(data) {
  const rows = Object.entries(data.metadata || {});
  if (rows.length === 0) return null;
  return section("Metadata", h("dl", {}, rows.map(([key, value]) => [h("dt", {}, key), h("dd", { class: "text" }, value)])));
}

// Numbers, times and texts as people read them.

const GROUPED = new Intl.NumberFormat("en-US");

function count(value) {
  return value === null || value === undefined ? "" : GROUPED.format(value);
}

/** "1 metric", "2 metrics". */
function plural(value, word) {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}

/** Four significant digits: 0.3333, 12.57, 1,234, 1.2e-9. */
function number(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2);
  return new Intl.NumberFormat("en-US", { maximumSignificantDigits: size >= 1000 ? 21 : 4, maximumFractionDigits: 4 }).format(
    size >= 1000 ? Math.round(value) : value);
}

/** Whether a metric counts samples without a score as wrong, and is equal to that without them. */
function isEqualStrict(metrics, key) {
  return key.endsWith("_strict") && metrics[key] === metrics[key.slice(0, -"_strict".length)];
}

function interval(bounds) {
  return bounds ? `${number(bounds[0])} to ${number(bounds[1])}` : "";
}

/** A value with its interval, where it has one, in a line of its own. */
function withInterval(value, bounds) {
  return h("span", { "data-number": number(value) }, number(value),
    bounds ? h("div", { class: "quiet interval", title: "95 % interval" }, interval(bounds)) : null);
}

function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 1) {
    const size = value < 0.01 ? 100 : value < 0.1 ? 10 : 1;
    return `${number(Math.round(value * 1000 * size) / size)} ms`;
  }
  if (value < 120) return `${number(Math.round(value * 10) / 10)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 120) return `${minutes} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function moment(unix) {
  if (!unix) return "";
  const time = new Date(unix * 1000);
  const two = (part) => String(part).padStart(2, "0");
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ` +
    `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

function shortened(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

/** What an evaluation is called beside others of its run. */
function stepName(summary) {
  return summary.step === null ? summary.id : `step ${count(summary.step)}`;
}

function problemText(problem) {
  if (!problem) return "";
  if (typeof problem === "string") return problem;
  return `${problem.reason}: ${[problem.field, problem.message].filter(Boolean).join(" ")}`;
}

/** Tokens and cost in words: "1,200 prompt, 300 output tokens, 12 calls, cost 0.02". */
function usageText(usage) {
  if (!usage) return "";
  const named = [
    [usage.prompt_tokens, "prompt token"], [usage.cached_prompt_tokens, "cached prompt token"],
    [usage.output_tokens, "output token"], [usage.reasoning_tokens, "reasoning token"], [usage.calls, "call"],
  ];
  const words = named.filter(([value]) => value).map(([value, name]) => plural(value, name));
  if (usage.cost !== null && usage.cost !== undefined) words.push(`cost ${number(usage.cost)}`);
  for (const judge of usage.judges || []) words.push(`${judge.model}: ${usageText(judge.usage)}`);
  return words.join(", ");
}

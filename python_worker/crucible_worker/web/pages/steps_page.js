// One sample over the steps of a run: what each of them answered, one below the other.

const ASKED_TOGETHER = 10;  // evaluations, as many as the worker answers for at a time

async function stepsPage(source, [run, , evaluator, sample]) {
  const data = await source.run(run);
  const ids = data.evaluations.map((one) => one.id);
  const parts = [];
  for (let at = 0; at < ids.length; at += ASKED_TOGETHER) {
    parts.push(await source.answers(ids.slice(at, at + ASKED_TOGETHER), evaluator, sample));
  }
  const answers = parts.flatMap((part) => part.answers);
  const asked = parts.find((part) => part.input !== null);
  const targets = parts.find((part) => part.targets && part.targets.length > 0)?.targets;
  const steps = new Set(answers.map((one) => one.evaluation)).size;
  return {
    title: `Sample ${shortened(sample, 80)} over the steps of ${run}`,
    concerns: (change) => change.run === run,
    content: [
      h("p", { class: "facts" }, link(`run ${run}`, ["run", run]), ` · ${evaluator} · in ${count(steps)} of ${plural(ids.length, "evaluation")}`),
      asked ? section("Input", spoken(asked.input)) : null,
      targets ? section("Target", h("p", { class: "text" }, targets.join(" | "))) : null,
      section("Answers", answers.length === 0 ? h("p", {}, `No evaluation has a sample ${sample} of ${evaluator}.`) : h("div", { class: "steps" },
        table("Answers by step", ["step", "verdict", "extracted", "answer"],
          answers.map((answer, at) => stepRow(evaluator, sample, answer, answers[at - 1]))))),
    ],
  };
}

function stepRow(evaluator, sample, answer, before) {
  const name = answer.step === null ? shortened(answer.evaluation, 40) : `step ${count(answer.step)}`;
  return [
    link(answer.repeat > 0 ? `${name} (${answer.repeat})` : name, samplePath(answer.evaluation, { evaluator, id: sample, repeat: answer.repeat })),
    [verdictMark(answer.verdict), " ", number(answer.score),
      before && before.verdict !== answer.verdict ? h("span", { class: "quiet" }, " changed") : null],
    [h("span", { class: "text" }, answer.extracted)],
    answerText(answer.output, answer.reasoning_span, answer.extracted_span),
  ];
}

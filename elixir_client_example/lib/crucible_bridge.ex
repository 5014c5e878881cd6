defmodule CrucibleBridge do
  @moduledoc """
  A crucible-bridge worker, call by call.

      children = [{CrucibleBridge.Connection, address: "127.0.0.1:50051"}]

      {:ok, evaluation} =
        CrucibleBridge.evaluate(
          evaluation_id: "run-7-step-400",
          model: "embedded:arithmetic@320",
          evaluators: [:nll, :accuracy],
          dataset: "builtin:arithmetic",
          sampling: [max_tokens: 8]
        )

      evaluation.metrics.values["accuracy"]

  Every function takes a connection first, which is `CrucibleBridge.Connection` where it is left out, and options last,
  for which the connection has to be said; `timeout: milliseconds` is one of each. Results are `{:ok, result}` or
  `{:error, %CrucibleBridge.Error{}}`; a reply is a map with the fields of its message as atoms (see
  `CrucibleBridge.Wire.decode/1`), metrics are `%{values: %{"nll" => 0.2}, undefined: %{"accuracy" => "reason"}}` with
  text as keys, and numbers in `values` are finite.

  An evaluation that failed is no failed call: `evaluation.state` is `:failed`, and `evaluation.problem` says why.
  """

  alias CrucibleBridge.Calls.{Evaluation, Experiments, Grading, Metrics, Models, Programs, Rendering, Rubric, Worker}
  alias CrucibleBridge.{Connection, Error, V1}

  # By other names: `cancel`, `info` and `classification`.
  use CrucibleBridge.Calls.Derived,
    besides: [V1.CancelEvaluationRequest, V1.GetInfoRequest, V1.ComputeClassificationMetricsRequest]

  @conn Connection

  @type conn :: Connection.conn()
  @type result(value) :: {:ok, value} | {:error, Error.t()}
  @type metrics :: %{values: %{String.t() => float}, undefined: %{String.t() => String.t()}}
  @typedoc "See `CrucibleBridge.Specification`."
  @type specification :: keyword | V1.EvaluateRequest.t()
  @typedoc "See `CrucibleBridge.ModelRef`; `CrucibleBridge.Orchestrator` is for models that stay here."
  @type model :: term

  # Evaluations

  @doc "Evaluators that the worker has, with the JSON schema of their options and the keys they yield."
  @spec list_evaluators(conn, keyword) :: result([map])
  def list_evaluators(conn \\ @conn, opts \\ []), do: Evaluation.list_evaluators(conn, opts)

  @doc """
  Evaluates, and waits for the end however long it takes. With an `evaluation_id` it can be asked for again: what has
  ended is returned, what is at work is joined, what was interrupted goes on.
  """
  @spec evaluate(conn, specification, keyword) :: result(map)
  def evaluate(conn \\ @conn, specification, opts \\ []), do: Evaluation.evaluate(conn, specification, opts)

  @doc "Starts an evaluation, or goes on with it: `%{evaluation: ..., existed: boolean}`."
  @spec start_evaluation(conn, specification, keyword) :: result(map)
  def start_evaluation(conn \\ @conn, specification, opts \\ []),
    do: Evaluation.start_evaluation(conn, specification, opts)

  @doc """
  The events of an evaluation until it ends: `{:ok, %CrucibleBridge.V1.EventBatch{}}` each, and an `{:error, error}` where
  the stream broke. Options: `:after_sequence` and `:log_id` to go on from, `:without_samples`.
  """
  @spec watch(conn, String.t(), keyword) :: result(Enumerable.t())
  def watch(conn \\ @conn, evaluation_id, opts \\ []), do: Evaluation.watch(conn, evaluation_id, opts)

  @doc """
  The events of all evaluations, likewise; `CrucibleBridge.Telemetry` makes `:telemetry` of them. Options:
  `:after_sequence`, `:log_id`, `:kinds` (as `CrucibleBridge.V1.EventKind` has them), `:run_id`, `:until_now`.
  """
  @spec subscribe(conn, keyword) :: result(Enumerable.t())
  def subscribe(conn \\ @conn, opts \\ []), do: Evaluation.subscribe(conn, opts)

  @doc "An evaluation as it stands."
  @spec get_evaluation(conn, String.t(), keyword) :: result(map)
  def get_evaluation(conn \\ @conn, evaluation_id, opts \\ []), do: Evaluation.get_evaluation(conn, evaluation_id, opts)

  @doc """
  A page of evaluations, newest first: `%{evaluations: [...], next_page_token: ""}`. Options: `:run_id`, `:states` (such
  as `[:completed]`), `:from_step`, `:to_step`, `:page_size`, `:page_token`.
  """
  @spec list_evaluations(conn, keyword) :: result(map)
  def list_evaluations(conn \\ @conn, opts \\ []), do: Evaluation.list_evaluations(conn, opts)

  @doc """
  A page of runs, the newest first, or with `:run_id` that run and a page of its checkpoints by step: `%{runs: [...],
  checkpoints: [...], next_page_token: ""}`. Options: `:run_id`, `:page_size`, `:page_token`.
  """
  @spec list_runs(conn, keyword) :: result(map)
  def list_runs(conn \\ @conn, opts \\ []), do: Evaluation.list_runs(conn, opts)

  @doc """
  A page of an evaluation's samples: `%{samples: [...], next_page_token: ""}`. Options: `:verdicts` (such as
  `[:incorrect]`), `:evaluator`, `:page_size`, `:page_token`, `:without_records`.
  """
  @spec get_samples(conn, String.t(), keyword) :: result(map)
  def get_samples(conn \\ @conn, evaluation_id, opts \\ []), do: Evaluation.get_samples(conn, evaluation_id, opts)

  @doc """
  Looks through an evaluation's samples: `%{rows: [...], matching: 3, searched: 200, total: 200, fields: [...]}`.
  Options: `:search`, `:evaluator`, `:verdicts`, `:stop_reason`, `:changed_from`, `:metadata`, `:sample_id`, `:order_by`
  (such as `:score`), `:descending`, `:offset`, `:limit`, `:within_ms`.
  """
  @spec find_samples(conn, String.t(), keyword) :: result(map)
  def find_samples(conn \\ @conn, evaluation_id, opts \\ []), do: Evaluation.find_samples(conn, evaluation_id, opts)

  @doc """
  Every sample of an evaluation, page after page: a list, so leave out what is not needed. Options: `:verdicts`,
  `:evaluator` and `:without_records`, which leaves out `:sample`, `:prompt` and `:turns`.
  """
  @spec all_samples(conn, String.t(), keyword) :: result([map])
  def all_samples(conn \\ @conn, evaluation_id, opts \\ []), do: Evaluation.all_samples(conn, evaluation_id, opts)

  @doc "Ends an evaluation early; `:reason` is recorded."
  @spec cancel(conn, String.t(), keyword) :: result(map)
  def cancel(conn \\ @conn, evaluation_id, opts \\ []), do: Evaluation.cancel(conn, evaluation_id, opts)

  @doc """
  Pauses an evaluation: samples under way finish, no other begins, and its deadline does not count. It stays paused,
  over restarts of workers as well, until `resume_evaluation/3`. One that has ended is an error with reason
  EVALUATION_ENDED.
  """
  @spec pause_evaluation(conn, String.t(), keyword) :: result(map)
  def pause_evaluation(conn \\ @conn, evaluation_id, opts \\ []),
    do: Evaluation.pause_evaluation(conn, evaluation_id, opts)

  @doc "Ends the pause of an evaluation; one that is not paused stays as it is."
  @spec resume_evaluation(conn, String.t(), keyword) :: result(map)
  def resume_evaluation(conn \\ @conn, evaluation_id, opts \\ []),
    do: Evaluation.resume_evaluation(conn, evaluation_id, opts)

  @doc "Changes how many samples of an evaluation may be at work at once, now and in later attempts."
  @spec set_evaluation_concurrency(conn, String.t(), pos_integer, keyword) :: result(map)
  def set_evaluation_concurrency(conn \\ @conn, evaluation_id, concurrency, opts \\ []),
    do: Evaluation.set_evaluation_concurrency(conn, evaluation_id, concurrency, opts)

  @doc """
  Deletes an evaluation that has ended, with its samples, and returns what it was last. One that is queued or running is an
  error with reason NOT_ENDED: `cancel/3` ends it. Its events stay, its id is free.
  """
  @spec delete_evaluation(conn, String.t(), keyword) :: result(map)
  def delete_evaluation(conn \\ @conn, evaluation_id, opts \\ []),
    do: Evaluation.delete_evaluation(conn, evaluation_id, opts)

  @doc """
  A report of one or several evaluations, `format: :markdown`, `:html` or `:json`. Of a run with `run_id: "run-7"` and `[]`
  in place of ids; of numbers that belong to no evaluation with `metrics: %{"accuracy" => 0.5}`. Further options: `:title`,
  and `:max_samples` that a report in HTML holds.
  """
  @spec generate_report(conn, String.t() | [String.t()], keyword) :: result(String.t())
  def generate_report(conn \\ @conn, evaluation_ids, opts \\ []),
    do: Evaluation.generate_report(conn, evaluation_ids, opts)

  @doc """
  The samples of a data set, as an evaluation would get them: a stream of `{:ok, %CrucibleBridge.V1.ReadDatasetResponse{}}`,
  each with some of them, and an `{:error, error}` where it broke. Options: `:offset` and `:limit`, and those of
  `CrucibleBridge.Dataset` with `:shuffle_seed`, `:skip_malformed` and `:where`.
  """
  @spec read_dataset(conn, term, keyword) :: result(Enumerable.t())
  def read_dataset(conn \\ @conn, dataset, opts \\ []), do: Evaluation.read_dataset(conn, dataset, opts)

  @doc """
  What the model would get of one sample, from each evaluator, before anything is asked: `%{sample_id: "...", prompts:
  [%{text: "...", conversation: nil, tokens: [...], ...}]}`. Option: `:sample_id`, of the first sample if absent.
  """
  @spec render_sample(conn, specification, keyword) :: result(map)
  def render_sample(conn \\ @conn, specification, opts \\ []),
    do: Evaluation.render_sample(conn, specification, opts)

  @doc """
  Sets evaluations of one data set beside each other, a list of ids or `{:run, run_id}`: `%{comparisons: [...], series:
  [...], evaluations: [...], best_evaluation_id: "...", tied_evaluation_ids: [...]}`, differences by sample with their
  uncertainty, and every metric over the steps. Options: `:baseline_id`, `:evaluator`, `:rank_by` (such as
  `{"accuracy", :higher}`), `:confidence`, `:max_listed`, `:cluster_by`, and `:dataset_fingerprint` where a run has several
  data sets.
  """
  @spec compare_evaluations(conn, [String.t()] | {:run, String.t()}, keyword) :: result(map)
  def compare_evaluations(conn \\ @conn, evaluations, opts \\ []),
    do: Evaluation.compare_evaluations(conn, evaluations, opts)

  @doc """
  Whether a candidate may replace a baseline: `%{verdict: :pass, reasons: [...], metrics: [%{key: "accuracy", verdict:
  :pass, ...}]}`. A verdict is `:pass`, `:warn`, `:block` or `:inconclusive`.

      CrucibleBridge.gate(conn, "step-320", "step-600", metrics: [[key: "accuracy", max_drop: 0.01, tier: :block]])

  A metric has `:key`, and `:max_drop` or `:max_relative_drop`; `:tier`, `:min_n` and `:direction` (`:higher` or `:lower`)
  where wanted. Besides `:metrics`, a policy may have `:confidence` and `:cluster_by`.
  """
  @spec gate(conn, String.t(), String.t(), keyword | map | V1.GatePolicy.t(), keyword) :: result(map)
  def gate(conn \\ @conn, baseline_id, candidate_id, policy, opts \\ []),
    do: Evaluation.gate(conn, baseline_id, candidate_id, policy, opts)

  @doc "Registers what is evaluated while a run trains, see `CrucibleBridge.Specification.plan/1`: `%{fingerprint:, existed:}`."
  @spec register_plan(conn, keyword | V1.EvaluationPlan.t(), keyword) :: result(map)
  def register_plan(conn \\ @conn, plan, opts \\ []), do: Evaluation.register_plan(conn, plan, opts)

  @doc """
  Tells of a training step: what is due is started, and returned as by `start_evaluation/3`. `last: true` is the last
  step, at which everything is due.
  """
  @spec notify_step(conn, String.t(), non_neg_integer, model, keyword) :: result([map])
  def notify_step(conn \\ @conn, plan_id, step, model, opts \\ []),
    do: Evaluation.notify_step(conn, plan_id, step, model, opts)

  @doc """
  Evaluates the checkpoints that a run saves in a directory below a model root of the worker, each once it is whole:
  `%{plan_id: "run-8", existed: false}`. `plan` is the id of a registered plan, or a plan as `register_plan/3` takes it,
  of the run. Options: `:policy` (`:all`, `:latest` or `:every`), `:every`, `:name_pattern`, `:marker`, `:base_model`,
  `:hold_folder`, `:mark`.
  """
  @spec follow_run(conn, String.t(), String.t(), String.t() | keyword | V1.EvaluationPlan.t(), keyword) :: result(map)
  def follow_run(conn \\ @conn, run_id, directory, plan, opts \\ []),
    do: Evaluation.follow_run(conn, run_id, directory, plan, opts)

  @doc "Ends the following of a run; returns whether it was followed until now. Evaluations that have begun continue."
  @spec unfollow_run(conn, String.t(), keyword) :: result(boolean)
  def unfollow_run(conn \\ @conn, run_id, opts \\ []), do: Evaluation.unfollow_run(conn, run_id, opts)

  # Training metrics: each reply has `metrics`

  @doc """
  KL divergence between the policy that sampled and the one that trains: `%{metrics: metrics, action_tokens: n}`, keys
  `optim/kl_sample_train_v1`, `optim/kl_sample_train_v2` and `optim/entropy`.

  `data` are Datums with `logprobs` and `mask`; `training_logprobs` has one list or tensor a datum. `extended: true` adds
  further keys and `per_sequence` tensors.
  """
  @spec kl_sample_train(conn, [term], [term], keyword) :: result(map)
  def kl_sample_train(conn \\ @conn, data, training_logprobs, opts \\ []),
    do: Metrics.kl_sample_train(conn, data, training_logprobs, opts)

  @doc """
  KL divergence before and after an update: `%{metrics: metrics, action_tokens: n}`, keys `kl_pre_post_v1` and
  `kl_pre_post_v2`. `updated` has one list or tensor a datum, or is a model to ask, within `:deadline_ms`.
  """
  @spec kl_post_update(conn, [term], [term] | model, keyword) :: result(map)
  def kl_post_update(conn \\ @conn, data, updated, opts \\ []), do: Metrics.kl_post_update(conn, data, updated, opts)

  @doc """
  Advantages with a penalty for leaving a base policy: `%{metrics: metrics, advantages: [[float]]}`, the key
  `kl_policy_base`, and one list a datum, or none where the penalty is undefined.

  `base` has one list or tensor a datum, or is a model to ask. Options: `:coef`, required, and `:discount`, 0 if absent.
  `reverse_kl: true` is the penalty of on-policy distillation, with the metric `teacher_kl`, and `:datasets`, a name for
  each datum, gives that of each data set.
  """
  @spec incorporate_kl_penalty(conn, [term], [term] | model, keyword) :: result(map)
  def incorporate_kl_penalty(conn \\ @conn, data, base, opts),
    do: Metrics.incorporate_kl_penalty(conn, data, base, opts)

  @doc "`nll` and `perplexity` over all sequences: `%{metrics: metrics, total_weight: number}`."
  @spec mean_nll(conn, [term], [term], keyword) :: result(map)
  def mean_nll(conn \\ @conn, logprobs, weights, opts \\ []), do: Metrics.mean_nll(conn, logprobs, weights, opts)

  @doc """
  Metrics of trajectories, keys `env/all/...` and `env/TAG/...`, of groups as `CrucibleBridge.Trajectory` reads them.
  Options: `:tags`, a list for each group, and `:good_threshold`, 0.5 if absent.
  """
  @spec trajectory_metrics(conn, [term], keyword) :: result(%{metrics: metrics})
  def trajectory_metrics(conn \\ @conn, groups, opts \\ []), do: Metrics.trajectory_metrics(conn, groups, opts)

  @doc """
  Metrics of preference pairs: `pairs` holds `:chosen_logprobs`, `:rejected_logprobs`, `:chosen_reference_logprobs` and
  `:rejected_reference_logprobs`, a number a pair each; the option `:beta` is required.
  """
  @spec dpo_metrics(conn, keyword, keyword) :: result(%{metrics: metrics})
  def dpo_metrics(conn \\ @conn, pairs, opts), do: Metrics.dpo_metrics(conn, pairs, opts)

  @doc """
  Metrics of preference pairs that models are asked for; the option `:beta` is required.

      question = %{role: "user", content: "17+25="}

      pair = %{
        chosen: [question, %{role: "assistant", content: "42"}],
        rejected: [question, %{role: "assistant", content: "43"}]
      }

      CrucibleBridge.dpo_metrics_of_models(conn, [pair], "tinker://...", "local:base", beta: 0.1)

  `reference` may be the reply's `chosen_reference_logprobs` and `rejected_reference_logprobs` of an earlier call, as a
  keyword of lists. The reply has the keys of `dpo_metrics/3`, the tensors of what was measured, and the usage.
  `:deadline_ms` bounds the models.
  """
  @spec dpo_metrics_of_models(conn, [map], model, model | keyword, keyword) :: result(map)
  def dpo_metrics_of_models(conn \\ @conn, pairs, policy, reference, opts),
    do: Metrics.dpo_metrics_of_models(conn, pairs, policy, reference, opts)

  @doc "How stale samples are and how long sampling took, of each group's training step and seconds."
  @spec sampling_client_metrics(conn, [integer], [number], keyword) :: result(%{metrics: metrics})
  def sampling_client_metrics(conn \\ @conn, steps, seconds, opts \\ []),
    do: Metrics.sampling_client_metrics(conn, steps, seconds, opts)

  @doc "`accuracy`, `precision`, `recall` and `f1` of labels, of `:positive` or as macro averages."
  @spec classification(conn, [term], [term], keyword) :: result(%{metrics: metrics})
  def classification(conn \\ @conn, predictions, targets, opts \\ []),
    do: Metrics.classification(conn, predictions, targets, opts)

  @doc "`pass@K` of samples and successes by problem, for one k or several."
  @spec pass_at_k(conn, [integer], [integer], pos_integer | [pos_integer], keyword) :: result(%{metrics: metrics})
  def pass_at_k(conn \\ @conn, samples, successes, k, opts \\ []),
    do: Metrics.pass_at_k(conn, samples, successes, k, opts)

  # Grading

  @doc """
  Grades mathematics: `%{grades: [%{verdict: :correct, ...}], policy_version: "..."}`, a grade an item in their order.

  An item is `{answer, target}` or a map with `answer` or `response` (of which the answer is extracted), `target` or
  `targets`, and `id`. Options are the fields of `CrucibleBridge.V1.MathPolicy`.
  """
  @spec grade_math(conn, [term], keyword) :: result(map)
  def grade_math(conn \\ @conn, items, opts \\ []), do: Grading.grade_math(conn, items, opts)

  @doc "The answers inside responses: `%{answer: ..., extraction: ...}` each."
  @spec extract_answer(conn, String.t() | [binary], keyword) :: result([map])
  def extract_answer(conn \\ @conn, responses, opts \\ []), do: Grading.extract_answer(conn, responses, opts)

  @doc """
  Scores texts, items as in `grade_math/3`, by `:exact_match`, `:contains`, `:f1`, `:bleu` or `:rouge` (options
  `:case_sensitive`, `:normalize_whitespace`, `:strip_punctuation`), `:regex` (`:full`), `:numeric`
  (`:absolute_tolerance`, `:relative_tolerance`), `:multiple_choice` (`:choices`) or `:format` (`boxed: true`, `:marks` or
  `:json_schema`). From `:threshold` on a score is correct. `:exact_match` has `compare: :text`, `:number` or `:list` as
  well, and for lists `:ordered_lists`. A text names a grader of the worker, with its options as evaluators have them:
  `score(items, "numeric", relative_tolerance: 0.01)`.
  """
  @spec score(conn, [term], atom | String.t(), keyword) :: result([map])
  def score(conn \\ @conn, items, scorer, opts \\ []), do: Grading.score(conn, items, scorer, opts)

  @doc """
  Runs programs against tests, in sandboxes of the worker:
  `%{grades: [%{verdict: :correct, ...}], problems: [...], metrics: ...}`.

  An item is a map with `response`, `tests`, and where wanted `prefix`, `id` and `problem_id`. A test is Python that
  asserts, `%{stdin: ..., stdout: ...}`, `%{function: ..., arguments: [...], expected: ...}`, or `%{input_output: ...}`,
  which holds several as APPS has them, in a map or as JSON. Tests of output may have `:by_token`, `:absolute_tolerance`
  and `:relative_tolerance`; any other key of a test is an error. Options: `:k`, for `pass@<k>` over the problems,
  `:image`, the name of packages that programs can import (GetInfo lists them in `code_images`), and the fields of
  `CrucibleBridge.V1.CodeLimits`.
  """
  @spec grade_code(conn, [map], keyword) :: result(map)
  def grade_code(conn \\ @conn, items, opts \\ []), do: Programs.grade_code(conn, items, opts)

  @doc """
  The programs inside responses, as `grade_code/3` takes them: `%{program: ..., extraction: ...}` each. Option: `:names`,
  what the programs must define.
  """
  @spec extract_code(conn, String.t() | [binary], keyword) :: result([map])
  def extract_code(conn \\ @conn, responses, opts \\ []), do: Programs.extract_code(conn, responses, opts)

  @doc """
  Has a model judge responses by weighted criteria:
  `%{grades: [%{grade: %{verdict: :correct, score: ...}, criteria: [%{name:, score:, reason:}]}], completion_tokens: ...}`.

  An item is a response, or a map with `response` and, where wanted, `question`, `reference` or `references`, `id`,
  `other`, another response that it is compared with in both orders, and `prior`, the verdict of another grader: what is
  `:incorrect` stays so. A criterion is `{name, description}` or has these, and `weight`, `min` and `max`. Options:
  `:threshold`, from which on a score is correct, `:sampling`, `:renderer` and `:limits`.
  """
  @spec grade_rubric(conn, model, [term], [term], keyword) :: result(map)
  def grade_rubric(conn \\ @conn, judge, items, criteria, opts \\ []),
    do: Rubric.grade_rubric(conn, judge, items, criteria, opts)

  # Models

  @doc """
  Continuations: `%{items: [%{sequences: [%{text: ...}], problem: nil}], model_fingerprint: ...}`.

  An item is text, a conversation (`[%{role: "user", content: "..."}]`), token ids, or `%{prompt: any of these}` with
  `:num_samples` and `:seed`. Options: `:sampling`, required, `:limits`, and `:top_logprobs`, the number of likeliest
  tokens that come with each generated one (`top_tokens` and `top_logprobs` of a sequence).
  """
  @spec sample(conn, model, [term], keyword) :: result(map)
  def sample(conn \\ @conn, model, items, opts), do: Models.sample(conn, model, items, opts)

  @doc """
  Log-probabilities of sequences' tokens but for the first: `%{sequences: [%{logprobs: tensor, problem: nil}]}`.

  A sequence is token ids, text, a conversation, or `%{prompt: any of these}` with `:continuation` (token ids, which alone
  are measured), `:targets` (ids in place of each measured token) and `:last_n`. Options: `:top_k`, the number of likeliest
  tokens in place of each (`top_tokens` and `top_logprobs`, of two dimensions), `:last_n`, `:add_special_tokens`, `:limits`.

  A list in place of the model is teachers: `%{model: model, weight: 3, items: [0, 1]}`, of which `:weight` (1) and
  `:items` (the indices of the sequences that it measures; all) may be absent. A sequence then has the logarithm of the
  weighted mean of its teachers' probabilities.
  """
  @spec compute_logprobs(conn, model | [map], [term], keyword) :: result(map)
  def compute_logprobs(conn \\ @conn, model, sequences, opts \\ []),
    do: Models.compute_logprobs(conn, model, sequences, opts)

  @doc """
  Log-probabilities of targets by forward passes: `%{outputs: [%{logprobs: tensor, loss: number}]}`, of Datums, of text
  and of conversations. Options: `:train_on`, which tokens of conversations count, `:add_special_tokens`, `:limits`.
  """
  @spec forward(conn, model, [term], keyword) :: result(map)
  def forward(conn \\ @conn, model, data, opts \\ []), do: Models.forward(conn, model, data, opts)

  # Renderers and tokenizers: of a model, its tokenizer alone is loaded, and "local:PATH" may be one without a model

  @doc "The renderers of the worker: `[%{name: \"role_colon\", description: ..., unavailable: \"\"}]`."
  @spec list_renderers(conn, keyword) :: result([map])
  def list_renderers(conn \\ @conn, opts \\ []), do: Rendering.list_renderers(conn, opts)

  @doc """
  Prompts of conversations: `%{items: [%{tokens: [1, 2], problem: nil}], stop: ["<|im_end|>"]}`.

  A conversation is a list of messages (`[%{role: "user", content: "..."}]`), or text, which is one message of the user.
  Messages may have images and calls of tools, see `CrucibleBridge.Wire.Messages`; with images, an item has a
  `model_input` in place of `tokens`.
  Option: `:renderer` ("auto", "chat_template", "role_colon", "raw", "tinker:NAME").
  """
  @spec build_generation_prompt(conn, model, [term], keyword) :: result(map)
  def build_generation_prompt(conn \\ @conn, model, conversations, opts \\ []),
    do: Rendering.build_generation_prompt(conn, model, conversations, opts)

  @doc """
  Conversations to train on: `%{items: [%{tokens: [...], weights: [...], datum: datum, problem: nil}]}`.

  Options: `:train_on` ("last_assistant", "all_assistant" or "all") and `:renderer`. `forward` and `mean_nll` take the
  Datums, and an evaluator of `nll` does.
  """
  @spec build_supervised_example(conn, model, [term], keyword) :: result(map)
  def build_supervised_example(conn \\ @conn, model, conversations, opts \\ []),
    do: Rendering.build_supervised_example(conn, model, conversations, opts)

  @doc """
  What models generated, as messages: `%{items: [%{text: ..., reasoning: ..., tool_calls: [], termination: :stop}]}`.

  A response is text, token ids, or a map with `:text` or `:tokens` and `:stop_reason`, as a sampled sequence has them.
  Option: `:renderer`, that of the prompt. The model may be `nil` for the renderers "raw" and "role_colon".
  """
  @spec parse_response(conn, model | nil, [term], keyword) :: result(map)
  def parse_response(conn \\ @conn, model, responses, opts \\ []),
    do: Rendering.parse_response(conn, model, responses, opts)

  @doc "What ends an answer to a prompt of the option `:renderer`: `%{stop: [...], stop_tokens: [...], eos_token: 2}`."
  @spec get_stop_sequences(conn, model | nil, keyword) :: result(map)
  def get_stop_sequences(conn \\ @conn, model, opts \\ []), do: Rendering.get_stop_sequences(conn, model, opts)

  @doc "Token ids of texts, `%{items: [%{tokens: [1, 2], problem: nil}]}`; `add_special_tokens: true` adds what frames one."
  @spec tokenize(conn, model, [String.t()], keyword) :: result(map)
  def tokenize(conn \\ @conn, model, texts, opts \\ []), do: Rendering.tokenize(conn, model, texts, opts)

  @doc "Texts of token ids, `%{items: [%{text: ..., problem: nil}]}`; `skip_special_tokens: true` leaves special ones out."
  @spec detokenize(conn, model, [[non_neg_integer]], keyword) :: result(map)
  def detokenize(conn \\ @conn, model, tokens, opts \\ []), do: Rendering.detokenize(conn, model, tokens, opts)

  # Experiments; CrucibleBridge.ExperimentLogger is a logger for CrucibleTrain

  @doc """
  Opens an experiment, or continues it: `%{experiment: %{loggers: ...}, existed: boolean}`.

  Options: `:log_to`, its loggers (`["trackio:my-project", "jsonl"]`), and `:config`, hyperparameters as keywords or a
  map. Evaluations with this `run_id` log into it as well.
  """
  @spec open_experiment(conn, String.t(), keyword) :: result(map)
  def open_experiment(conn \\ @conn, experiment_id, opts \\ []),
    do: Experiments.open_experiment(conn, experiment_id, opts)

  @doc "Logs hyperparameters, keywords or a map of what JSON has: the sequence of their entry, which is in the journal."
  @spec log_hparams(conn, String.t(), map | keyword, keyword) :: result(pos_integer)
  def log_hparams(conn \\ @conn, experiment_id, hparams, opts \\ []),
    do: Experiments.log_hparams(conn, experiment_id, hparams, opts)

  @doc """
  Logs rows of metrics, each `%{values: %{"train/loss" => 0.7}, step: 3}` with `:family` and `:unix_time_ns` where
  wanted: the sequence of the last row. All of them are in the journal.
  """
  @spec log_metrics(conn, String.t(), [map | keyword], keyword) :: result(pos_integer)
  def log_metrics(conn \\ @conn, experiment_id, rows, opts \\ []),
    do: Experiments.log_metrics(conn, experiment_id, rows, opts)

  @doc "Logs a text, at the option `:step` where it has one: the sequence of its entry."
  @spec log_long_text(conn, String.t(), String.t(), String.t(), keyword) :: result(pos_integer)
  def log_long_text(conn \\ @conn, experiment_id, key, text, opts \\ []),
    do: Experiments.log_long_text(conn, experiment_id, key, text, opts)

  @doc "Waits for the loggers of an experiment, `:timeout_ms` at most: `%{experiment: ..., synced: boolean}`."
  @spec sync(conn, String.t(), keyword) :: result(map)
  def sync(conn \\ @conn, experiment_id, opts \\ []), do: Experiments.sync(conn, experiment_id, opts)

  @doc "Closes an experiment, and waits for its loggers as `sync` does."
  @spec close_experiment(conn, String.t(), keyword) :: result(map)
  def close_experiment(conn \\ @conn, experiment_id, opts \\ []),
    do: Experiments.close_experiment(conn, experiment_id, opts)

  @doc "Where people look at an experiment, with the logger of the option `:logger` or any: a URL or path, or `nil`."
  @spec get_url(conn, String.t(), keyword) :: result(String.t() | nil)
  def get_url(conn \\ @conn, experiment_id, opts \\ []), do: Experiments.get_url(conn, experiment_id, opts)

  # The worker

  @doc "What the worker is and has; right after its start it answers once it is warm."
  @spec info(conn, keyword) :: result(map)
  def info(conn \\ @conn, opts \\ []), do: Worker.info(conn, opts)

  @doc "Sends the worker home, as SIGTERM does: the ids of evaluations that this interrupts."
  @spec drain(conn, keyword) :: result([String.t()])
  def drain(conn \\ @conn, opts \\ []), do: Worker.drain(conn, opts)
end

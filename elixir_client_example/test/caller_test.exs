defmodule CrucibleBridge.CallerTest do
  use ExUnit.Case, async: true

  @moduletag :capture_log

  alias CrucibleBridge.{Error, Evaluator, V1}
  alias CrucibleBridge.Orchestrator.{Answering, Environment, Frames, Grader, Held, Verifier}
  alias Google.Protobuf.{ListValue, Struct, Value}

  @sample %{id: "s0", input: {:text, "17+25="}, targets: ["42", "forty-two"], choices: [], metadata: %{"level" => "2"}}
  @question %{grader: "mine", evaluator: "accuracy", sample: @sample, repeat: 0, response: "42"}

  defmodule Sums do
    @behaviour Verifier

    @impl true
    def verify(%{targets: targets}, answer), do: {:ok, %{passed: answer in targets, reason: "compared as texts"}}
    def verify(%{targets: targets}, answer, opts), do: String.trim(answer, opts[:trim]) in targets
  end

  defmodule Problem do
    @behaviour CrucibleBridge.Orchestrator.Problem
    defstruct [:question, :answer, convo_prefix: [], format_coef: 0.1]

    @impl true
    def get_question(problem), do: problem.question
    @impl true
    def check_answer(%{answer: answer}, text), do: if(text == "?", do: {:error, :down}, else: text =~ answer)
    @impl true
    def check_format(_problem, text), do: text =~ "!"
  end

  defmodule Train do
    @moduledoc "An environment of crucible_train: a struct, and token ids."
    defstruct [:target]

    def initial_observation(_env), do: {%{chunks: [%{tokens: [1, 2, 3]}]}, ["\n", 7]}

    def step(env, tokens) do
      %{
        reward: length(tokens),
        episode_done: env.target in tokens,
        next_observation: %{chunks: [%{tokens: [1, 2, 3] ++ tokens}]},
        next_stop_condition: [7],
        metrics: %{"length" => length(tokens), "none" => nil}
      }
    end
  end

  defmodule Guess do
    @behaviour Environment

    @impl true
    def open(episode, opts), do: {:ok, %{observation: "A number?", tags: ["games"]}, {rem(episode.seed, 10), opts}}

    @impl true
    def step(%{text: "raise"}, _state), do: raise("a bad guess")
    def step(%{text: "hang"}, _state), do: receive(do: (:never -> :ok))
    def step(%{text: "die"}, _state), do: Process.exit(self(), :kill)

    def step(%{text: text}, {number, _opts} = state) do
      if text == to_string(number),
        do: {:ok, %{reward: 1, done: true}, state},
        else: {:ok, %{observation: [{"user", "Wrong."}], stop: ["\n", 7]}, state}
    end

    @impl true
    def close({_number, opts}), do: send(opts[:test], {:closed, self()})
  end

  defp grade(grader, question \\ @question), do: Grader.grade(grader, question)

  describe "graders:" do
    test "a function of answer and target is right if it is for one of them, and knows a sample without a target" do
      grader = fn response, target -> response == target end
      assert {:ok, %{verdict: :VERDICT_CORRECT}} = grade(grader)
      assert {:ok, %{verdict: :VERDICT_CORRECT}} = grade(grader, %{@question | response: "forty-two"})
      assert {:ok, %{verdict: :VERDICT_INCORRECT}} = grade(grader, %{@question | response: "41"})

      best = fn _response, target -> String.length(target || "") / 10 end
      assert {:ok, %{score: 0.9}} = grade(best)
      assert {:ok, %{score: +0.0}} = grade(best, put_in(@question.sample.targets, []))
    end

    test "a function of a question sees all of it, and modules have the shape of Crucible.Verifier" do
      test = self()
      assert {:ok, _grade} = grade(fn question -> send(test, question) && true end)
      assert_received @question

      assert {:ok, %{verdict: :VERDICT_CORRECT, reason: "compared as texts"}} = grade(Sums)
      assert {:ok, %{verdict: :VERDICT_INCORRECT}} = grade(Sums, %{@question | response: "42."})
      assert {:ok, %{verdict: :VERDICT_CORRECT}} = grade({Sums, trim: "."}, %{@question | response: "42."})
    end

    test "what is returned becomes a grade" do
      for {returned, grade} <- [
            {true, %V1.AnsweredGrade{verdict: :VERDICT_CORRECT}},
            {{:ok, false}, %V1.AnsweredGrade{verdict: :VERDICT_INCORRECT}},
            {1, %V1.AnsweredGrade{score: 1.0}},
            {{:ok, 0.25}, %V1.AnsweredGrade{score: 0.25}},
            {:undecided, %V1.AnsweredGrade{verdict: :VERDICT_UNDECIDED}},
            {%{passed: true, score: 0.5}, %V1.AnsweredGrade{verdict: :VERDICT_CORRECT, score: 0.5}},
            {%{"passed" => false, "reason" => "no"}, %V1.AnsweredGrade{verdict: :VERDICT_INCORRECT, reason: "no"}},
            {%{verdict: :partial, score: 0.5, extracted: 42, measurements: %{digits: 2}},
             %V1.AnsweredGrade{
               verdict: :VERDICT_PARTIAL,
               score: 0.5,
               extracted: "42",
               measurements: %{"digits" => 2.0}
             }},
            {%{passed: true, reason: <<255>>}, %V1.AnsweredGrade{verdict: :VERDICT_CORRECT, reason: "<<255>>"}}
          ] do
        assert grade(fn _question -> returned end) == {:ok, grade}
      end
    end

    test "what is no grade is an error, and so is what a grader raises, throws or exits with: its text is told" do
      for {grader, reason, retryable, message} <- [
            {fn _ -> nil end, "BACKEND_ANSWER", false, "returned nil"},
            {fn _ -> 1.5 end, "BACKEND_ANSWER", false, "score"},
            {fn _ -> :wrong end, "BACKEND_ANSWER", false, ":wrong"},
            {fn _ -> :measured end, "BACKEND_ANSWER", false, ":measured"},
            {fn _ -> %{reason: "because"} end, "BACKEND_ANSWER", false, "returned"},
            {fn _ -> %{passed: true, measurements: %{a: "b"}} end, "BACKEND_ANSWER", false, "measurements"},
            {fn _ -> {:error, "no such key"} end, "BACKEND_FAILED", false, "no such key"},
            {fn _ -> raise "a tensor is missing" end, "BACKEND_FAILED", false, "RuntimeError: a tensor is missing"},
            {fn _ -> throw(:up) end, "BACKEND_FAILED", false, ":up"},
            {fn _ -> exit(:shutdown) end, "BACKEND_FAILED", true, "shutdown"},
            {fn _ -> raise %Error{reason: "BUSY", message: "later", retryable: true} end, "BUSY", true, "later"},
            {fn _, _ -> {:error, %Error{reason: "BUSY", message: "later", retryable: true}} end, "BUSY", true, "later"}
          ] do
        assert {:error, error} = grade(grader)
        assert {error.reason, error.retryable} == {reason, retryable}
        assert Exception.message(error) =~ message
      end
    end
  end

  describe "environments:" do
    @episode %{environment: "guess", evaluator: "rl_test_set", sample: @sample, seed: 13, rollout: 0, options: %{}}
    @action %{turn: 0, text: "42!", tokens: [4, 2], stop_reason: :stop}

    defp problem(fields \\ []), do: fn _episode -> struct!(Problem, [question: "17+25=", answer: "42"] ++ fields) end

    defp step(environment, action) do
      {:ok, {_first, state}} = Environment.open(environment, @episode)
      with {:ok, {turn, _state}} <- Environment.step(state, "guess", Map.merge(@action, action)), do: turn
    end

    test "a problem is an environment of one turn, whose rewards are those of ProblemEnv" do
      assert {:ok, {%{observation: {:text, "17+25="}, done: false}, _state}} = Environment.open(problem(), @episode)

      for {action, reward, format, correct} <- [
            {%{}, 1.0, 1.0, 1.0},
            {%{text: "42"}, 0.9, 0.0, 1.0},
            {%{stop_reason: :length}, 0.9, 0.0, 1.0},
            {%{text: "41"}, -0.1, 0.0, 0.0}
          ] do
        assert %{done: true, observation: nil, metrics: metrics} = turn = step(problem(), action)
        assert_in_delta turn.reward, reward, 1.0e-9
        assert metrics == %{"format" => format, "correct" => correct}
      end

      assert {:error, %Error{reason: "BACKEND_ANSWER", message: message}} = step(problem(), %{text: "?"})
      assert message =~ "check_answer returned {:error, :down}"

      prefix = [%{role: "user", content: "1+1="}, {"assistant", "2"}]
      {:ok, {%{observation: {:conversation, asked}}, _}} = Environment.open(problem(convo_prefix: prefix), @episode)

      assert Enum.map(asked.messages, &{&1.role, &1.content}) == [
               {"user", "1+1="},
               {"assistant", "2"},
               {"user", "17+25="}
             ]
    end

    test "an environment of crucible_train sees token ids" do
      make = fn _episode -> {:ok, %Train{target: 9}} end

      assert {:ok, {%{observation: {:model_input, input}, stop: ["\n"], stop_tokens: [7]}, state}} =
               Environment.open(make, @episode)

      assert [%{chunk: {:tokens, %{shape: [3]}}}] = input.chunks

      assert {:ok, {%{done: false, reward: 2.0, metrics: %{"length" => 2.0}}, state}} =
               Environment.step(state, "t", @action)

      assert {:ok, {%{done: true, observation: nil}, _}} = Environment.step(state, "t", %{@action | tokens: [9]})
    end

    test "what is no turn is an error" do
      for {turn, message} <- [
            {nil, "turn"},
            {%{}, "observation"},
            {%{observation: %{}}, "observation"},
            {%{observation: "x", reward: "much"}, "reward"},
            {%{observation: "x", stop: :never}, "stop"},
            {%{observation: "x", stop_tokens: [1], stop: [-1]}, "stop_tokens"},
            {%{observation: "x", metrics: %{a: "b"}}, "metrics"},
            {%{observation: "x", done: :maybe}, "done"}
          ] do
        environment = fn _episode -> Process.put(:turn, turn) && %{__struct__: __MODULE__.Odd} end
        assert {:error, %Error{reason: "BACKEND_ANSWER"}} = Environment.open(environment, @episode)
        assert {:error, %Error{message: said}} = CrucibleBridge.Orchestrator.Turn.of(turn)
        assert said =~ message
      end

      for made <- [nil, %{}, %URI{}] do
        assert {:error, %Error{reason: "BACKEND_ANSWER"}} = Environment.open(fn _episode -> made end, @episode)
      end
    end
  end

  describe "what stays here:" do
    test "names, functions and modules are checked before a stream is opened" do
      assert {:ok, %{graders: %{"grader" => Sums}}} = Held.new(nil, graders: Sums)
      assert {:ok, %{graders: %{"a" => _, "b" => _}}} = Held.new(nil, graders: [a: Sums, b: fn _ -> true end])
      assert {:ok, %{environments: %{"env/1" => Guess}}} = Held.new(nil, environments: %{"env/1" => Guess})

      for {opts, field} <- [
            {[], "model"},
            {[graders: %{"a b" => Sums}], "graders"},
            {[graders: %{1 => Sums}], "graders"},
            {[graders: [a: NoSuchModule]], "graders[\"a\"]"},
            {[graders: [a: {Sums, :no_list}]], "graders[\"a\"]"},
            {[graders: fn -> true end], "graders[\"grader\"]"},
            {[environments: Sums], "environments[\"environment\"]"},
            {[graders: Sums, answer_timeout_ms: 0], "answer_timeout_ms"}
          ] do
        assert {:error, %Error{reason: "INVALID_FIELD", field: ^field}} = Held.new(nil, opts)
      end
    end

    test "functions and modules among an evaluator's options get names" do
      one = fn _ -> true end

      evaluators = [
        {"accuracy", grader: one},
        {"rl_test_set", %{"environment" => {Guess, []}, "grader" => Sums}},
        "nll"
      ]

      assert {named, held} = Evaluator.CallerParts.taken(evaluators ++ [{"rollout", grader: one}], [])

      assert named == [
               {"accuracy", %{grader: "caller:grader"}},
               {"rl_test_set", %{"environment" => "caller:environment", "grader" => "caller:grader-2"}},
               "nll",
               {"rollout", %{grader: "caller:grader"}}
             ]

      assert held[:graders] == %{"grader" => one, "grader-2" => Sums}
      assert held[:environments] == %{"environment" => {Guess, []}}
      assert Evaluator.CallerParts.taken({"accuracy", grader: :math}, []) == {[{"accuracy", %{grader: :math}}], []}
      assert {_, [graders: %{"mine" => ^one}]} = Evaluator.CallerParts.taken("nll", graders: [mine: one])
    end
  end

  describe "questions of a stream:" do
    setup do
      supervisor = start_supervised!(Task.Supervisor)
      test = self()
      {:ok, supervisor: supervisor, send: &send(test, &1)}
    end

    defp answering(%{supervisor: supervisor, send: send}, opts) do
      {:ok, held} = Held.new(nil, opts)
      %Answering{supervisor: supervisor, held: held, send: send}
    end

    defp asked_sample, do: %V1.AskedSample{id: "s0", input: {:text, "17+25="}, targets: ["42"]}

    defp grading(id, response) do
      %V1.OrchestratorQuestion{
        id: id,
        question: {:grade, %V1.GradeQuestion{grader: "grader", response: response, sample: asked_sample()}}
      }
    end

    defp environment(id, episode, question) do
      asked = %V1.EnvironmentQuestion{environment: "environment", episode: episode, question: question}
      %V1.OrchestratorQuestion{id: id, question: {:environment, asked}}
    end

    defp opening(id, episode, seed),
      do: environment(id, episode, {:open, %V1.OpenEpisode{sample: asked_sample(), seed: seed}})

    defp guessing(id, episode, text),
      do: environment(id, episode, {:step, %V1.EpisodeAction{text: text, stop_reason: "stop"}})

    defp told(id) do
      assert_receive %{frame: {:answer, %{id: ^id, answer: answer}}}, 5_000
      answer
    end

    test "a slow grader stands in nobody's way, and is ended by its time", context do
      grader = fn
        "slow", _target -> receive(do: (:never -> true))
        "dies", _target -> Process.exit(self(), :kill)
        response, target -> response == target
      end

      state = answering(context, graders: grader, answer_timeout_ms: 200)

      Enum.reduce([{1, "slow"}, {2, "dies"}, {3, "42"}], state, fn {id, text}, state ->
        Answering.ask(state, grading(id, text))
      end)

      assert {:grade, %{verdict: :VERDICT_CORRECT}} = told(3)
      assert {:problem, %{reason: "BACKEND_FAILED", message: message, retryable: false}} = told(1)
      assert message =~ "the orchestrator's grader \"grader\" did not answer within 200 ms"
      assert {:problem, %{message: message}} = told(2)
      assert message =~ "ended without an answer: killed"
      assert idle?(context.supervisor)
    end

    test "a question that is withdrawn ends whoever is at it", context do
      test = self()

      state =
        answering(context, graders: fn _question -> send(test, {:at_it, self()}) && receive(do: (:never -> true)) end)

      state = Answering.ask(state, grading(1, "42"))
      assert_receive {:at_it, hand}, 5_000
      monitor = Process.monitor(hand)
      Answering.withdraw(state, 1)
      assert_receive {:DOWN, ^monitor, :process, ^hand, :killed}, 5_000
      assert idle?(context.supervisor)
      refute_received %{frame: _}
    end

    test "episodes keep their state apart, one that dies costs itself, and each is closed once", context do
      state = answering(context, environments: {Guess, test: self()}, answer_timeout_ms: 200)
      state = Enum.reduce(1..4, state, &Answering.ask(&2, opening(&1, &1, &1)))

      for id <- 1..4,
          do: assert({:environment, %{observation: {:text, "A number?"}, tags: ["games"]}} = told(id))

      texts = [{11, 1, "1"}, {12, 2, "raise"}, {13, 3, "hang"}, {14, 4, "die"}]

      state =
        Enum.reduce(texts, state, fn {id, episode, text}, state -> Answering.ask(state, guessing(id, episode, text)) end)

      assert {:environment, %{done: true, reward: 1.0}} = told(11)
      assert {:problem, %{message: message}} = told(12)
      assert message =~ "environment \"environment\" raised RuntimeError: a bad guess"
      assert {:problem, %{message: message}} = told(13)
      assert message =~ "did not answer within 200 ms"
      assert {:problem, %{message: message}} = told(14)
      assert message =~ "ended without an answer: killed"

      # What raised has kept its state; what was killed has none.
      state = Answering.ask(state, guessing(22, 2, "3"))

      assert {:environment, %{observation: {:conversation, _}, done: false, stop: ["\n"], stop_tokens: [7]}} = told(22)
      state = Answering.ask(state, guessing(23, 3, "3"))
      assert {:problem, _} = told(23)
      state = Answering.ask(state, guessing(99, 99, "3"))
      assert {:problem, %{reason: "BACKEND_ANSWER", message: "episode 99 is not open" <> _}} = told(99)

      state = Enum.reduce([1, 2, 3, 4, 99], state, &Answering.close(&2, &1))
      assert state.episodes == %{}
      assert_receive {:closed, first}, 5_000
      assert_receive {:closed, second}, 5_000
      assert first != second
      assert idle?(context.supervisor)
      refute_received {:closed, _}
    end

    test "what was never offered is a problem of its question", context do
      state = answering(context, environments: Guess)
      Answering.ask(state, grading(1, "42"))
      assert {:problem, %{message: "there is no grader \"grader\" here"}} = told(1)

      Answering.ask(state, %V1.OrchestratorQuestion{
        id: 2,
        question: {:logprobs, %V1.LogprobsQuestion{sequence: %V1.ModelInput{}}}
      })

      assert {:problem, %{message: message}} = told(2)
      assert message =~ "no model"
    end

    # All processes end by themselves; looked at again until they have.
    defp idle?(supervisor, tries \\ 500) do
      cond do
        Task.Supervisor.children(supervisor) == [] -> true
        tries == 0 -> false
        true -> Process.sleep(10) == :ok and idle?(supervisor, tries - 1)
      end
    end

    test "questions are read in plain Elixir" do
      options = %Struct{
        fields: %{
          "hard" => %Value{kind: {:bool_value, true}},
          "sizes" => %Value{kind: {:list_value, %ListValue{values: [%Value{kind: {:number_value, 2.0}}]}}}
        }
      }

      open = %V1.OpenEpisode{evaluator: "rl_test_set", sample: asked_sample(), seed: 3, rollout: 1, options: options}
      assert {:ok, {:open, 7, episode}} = Frames.question(environment(1, 7, {:open, open}))

      assert episode == %{
               environment: "environment",
               evaluator: "rl_test_set",
               sample: %{id: "s0", input: {:text, "17+25="}, targets: ["42"], choices: [], metadata: %{}},
               seed: 3,
               rollout: 1,
               options: %{"hard" => true, "sizes" => [2.0]}
             }

      tokens = %V1.Tensor{dtype: :DTYPE_I32, data: <<5::little-32>>}
      step = %V1.EpisodeAction{turn: 2, text: "5", tokens: tokens, stop_reason: "length"}

      assert Frames.question(environment(1, 7, {:step, step})) ==
               {:ok, {:step, 7, %{turn: 2, text: "5", tokens: [5], stop_reason: :length}}}

      assert {:error, %Error{field: "question"}} = Frames.question(environment(1, 7, nil))
    end
  end
end

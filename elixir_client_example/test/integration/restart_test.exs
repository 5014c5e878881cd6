defmodule CrucibleBridge.RestartTest do
  # A run that is started again: the second time in another VM, as after a crash of the first one.
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log
  # Workers load their model anew, and a VM starts, on whatever else the machine does.
  @moduletag timeout: 180_000

  alias CrucibleBridge.{Connection, TestWorker}

  # Of a second VM: the same stage or evaluator, and a grader that says who judged.
  @vm ~S"""
  [address, whose, how] = System.argv()
  {:ok, _} = Application.ensure_all_started(:crucible_bridge)
  {:ok, _} = CrucibleBridge.Connection.start_link(address: address)

  grader = fn _response, _target ->
    # The first VM judges two answers, and hangs: it is killed then.
    if whose == "first" and :ets.update_counter(:judged, :n, 1, {:n, 0}) > 2 do
      IO.puts("hangs")
      Process.sleep(:infinity)
    end

    %{passed: true, extracted: whose}
  end

  :ets.new(:judged, [:named_table, :public])
  opts = [sampling: [max_tokens: 8], limit: 6, limits: [concurrency: 1], grader: grader, window: 1]
  model = "embedded:arithmetic@320"

  result =
    case how do
      "stage" ->
        context = %{
          config: %{run_id: "nightly", dataset: "arithmetic"},
          adapters: %{evaluator: {CrucibleBridge.Evaluator, opts}},
          state: %{global_step: 40, total_steps: 100, trained_model: model, eval_dataset: "builtin:arithmetic"},
          metrics: [],
          # Kitchen's own, another one in each VM.
          metadata: %{run_id: "run_#{System.os_time()}_#{System.pid()}"},
          current_stage: :evaluate,
          stage_opts: []
        }

        {:ok, context} = CrucibleBridge.Stages.Evaluate.execute(context)
        context.state.eval_results

      "evaluator" ->
        {:ok, results} = CrucibleBridge.Evaluator.evaluate(opts ++ [run_id: "weekly"], model, "builtin:arithmetic")
        results
    end

  IO.puts("evaluated #{result.evaluation_id}")
  """

  setup_all do
    worker = TestWorker.start()
    start_supervised!({Connection, address: worker.address})
    :ok = Connection.await(Connection, 10_000)
    {:ok, worker: worker}
  end

  for {how, run_id} <- [{"stage", "nightly"}, {"evaluator", "weekly"}] do
    test "the #{how} resumes in a second VM by the run's name: nothing is judged twice", %{worker: worker} do
      first = vm([worker.address, "first", unquote(how)])
      assert said(first) == "hangs"
      kill(first)

      second = vm([worker.address, "second", unquote(how)])
      "evaluated " <> id = said(second)
      assert_receive {^second, {:exit_status, 0}}, 60_000

      assert {:ok, %{evaluations: [%{evaluation_id: ^id, attempt: 2, state: :completed}]}} =
               CrucibleBridge.list_evaluations(Connection, run_id: unquote(run_id))

      {:ok, samples} = CrucibleBridge.all_samples(id)
      assert Enum.frequencies_by(samples, & &1.extracted) == %{"first" => 2, "second" => 4}
    end
  end

  test "an evaluation that has ended is the same one under a step, and is made anew where its grader may have changed" do
    opts = [sampling: [max_tokens: 8], limit: 3, run_id: "ended"]
    evaluate = &CrucibleBridge.Evaluator.evaluate(opts ++ &1, "embedded:arithmetic@320", "builtin:arithmetic")
    judged = [grader: fn _response, _target -> true end]

    ids =
      for more <- [[], [], [step: 7], [step: 7], judged, judged, [step: 7] ++ judged, [step: 7] ++ judged] do
        {:ok, %{evaluation_id: id}} = evaluate.(more)
        assert String.starts_with?(id, "ended-")
        id
      end

    assert [plain, plain, at_7, at_7, judged_1, judged_2, judged_7, judged_7] = ids
    assert length(Enum.uniq([plain, at_7, judged_1, judged_2, judged_7])) == 5
  end

  # With what this one has loaded.
  defp vm(args) do
    paths = for path <- :code.get_path(), path = to_string(path), path =~ "/_build/" or File.dir?(path), do: path
    beams = Enum.flat_map(paths, &["-pa", &1])
    elixir = System.find_executable("elixir")

    Port.open({:spawn_executable, elixir}, [:binary, :exit_status, line: 1_000, args: beams ++ ["-e", @vm, "--" | args]])
  end

  defp said(port) do
    receive do
      {^port, {:data, {:eol, "hangs"}}} -> "hangs"
      {^port, {:data, {:eol, "evaluated " <> _id = line}}} -> line
      {^port, {:data, _other}} -> said(port)
      {^port, {:exit_status, status}} -> flunk("the second VM ended with #{status}")
    after
      120_000 -> flunk("the second VM said nothing")
    end
  end

  defp kill(port) do
    {:os_pid, pid} = Port.info(port, :os_pid)
    {_output, 0} = System.cmd("kill", ["-KILL", "#{pid}"])
    assert_receive {^port, {:exit_status, _status}}, 30_000
  end
end

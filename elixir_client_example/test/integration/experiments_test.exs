defmodule CrucibleBridge.ExperimentsTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log

  import ExUnit.CaptureLog

  alias CrucibleBridge.{Connection, Error, ExperimentLogger, TestWorker}

  @waited [timeout_ms: 120_000]

  setup_all do
    worker = TestWorker.start(args: ["--grading-processes", "0"])
    {:ok, conn} = Connection.start_link([name: nil] ++ worker.connect)
    %{conn: conn, worker: worker}
  end

  defp lines(url), do: url |> Path.join("metrics.jsonl") |> File.stream!() |> Enum.map(&Jason.decode!/1)

  test "what is logged reaches the loggers in order", %{conn: conn} do
    assert {:ok, %{existed: false, experiment: %{loggers: [%{logger: "jsonl"}]}}} =
             CrucibleBridge.open_experiment(conn, "run-1", log_to: ["jsonl"], config: [lr: 1.0e-4])

    rows = for step <- 1..3, do: %{values: %{"train/loss" => 1 / step}, step: step, family: "train"}
    assert {:ok, 4} = CrucibleBridge.log_metrics(conn, "run-1", rows)
    assert {:ok, 5} = CrucibleBridge.log_hparams(conn, "run-1", %{seed: 7})
    assert {:ok, 6} = CrucibleBridge.log_long_text(conn, "run-1", "answer", "46", step: 3)
    assert {:ok, %{synced: true, experiment: %{last_sequence: 6}}} = CrucibleBridge.sync(conn, "run-1", @waited)
    assert {:ok, url} = CrucibleBridge.get_url(conn, "run-1")

    assert [{1, 1.0}, {2, 0.5}, {3, _}] = for(line <- lines(url), do: {line["step"], line["train/loss"]})
    assert {:ok, %{synced: true}} = CrucibleBridge.close_experiment(conn, "run-1", @waited)
    assert {:error, %Error{reason: "EXPERIMENT_CLOSED"}} = CrucibleBridge.log_metrics(conn, "run-1", rows)
    assert {:error, %Error{field: "rows[0].step"}} = CrucibleBridge.log_metrics(conn, "run-1", [%{step: "x"}])
  end

  test "a logger for CrucibleTrain logs what is a number, and ends no training", %{conn: conn} do
    assert {:error, %Error{field: "experiment_id"}} = ExperimentLogger.init(conn: conn)
    assert {:ok, logger} = ExperimentLogger.init(conn: conn, experiment_id: "run-2", log_to: ["jsonl"])

    assert :ok = ExperimentLogger.log_hparams(logger, %{lr: 1.0e-4, betas: {0.9, 0.95}, from: self()})
    assert :ok = ExperimentLogger.log_metrics(logger, 0, %{"loss" => 1, note: "warm-up"})
    assert :ok = ExperimentLogger.log_metrics(logger, 1, %{note: "nothing to log"})
    assert :ok = ExperimentLogger.log_long_text(logger, "answer", "46")
    assert :ok = ExperimentLogger.sync(logger)
    assert [%{"step" => 0, "loss" => 1.0}] = lines(ExperimentLogger.get_url(logger))
    assert :ok = ExperimentLogger.close(logger)

    assert capture_log(fn -> assert :ok = ExperimentLogger.log_metrics(logger, 2, %{loss: 0.5}) end) =~
             "run-2 did not log metrics"
  end
end

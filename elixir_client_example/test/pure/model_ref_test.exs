defmodule CrucibleBridge.ModelRefTest do
  use ExUnit.Case, async: true

  @moduletag :capture_log

  alias CrucibleBridge.{Error, ModelRef}
  alias CrucibleBridge.Orchestrator.Model

  doctest ModelRef

  test "every spelling names one kind of model" do
    assert {:ok, {:embedded, "arithmetic@320"}} = ModelRef.parse("embedded:arithmetic@320")
    assert {:ok, {:local, %{path: "/models/a b"}}} = ModelRef.parse("local:/models/a b")
    assert {:ok, {:local, %{path: "runs/7"}}} = ModelRef.parse("runs/7")
    assert {:ok, {:hub, %{repo_id: "Qwen/Qwen3-0.6B"}}} = ModelRef.parse("hub:Qwen/Qwen3-0.6B")
    assert {:ok, {:openai, %{server: "vllm", model: "org/name"}}} = ModelRef.parse("openai:vllm/org/name")
    assert {:ok, {:tinker, %{base_model: "Qwen/Qwen3-8B"}}} = ModelRef.parse("tinker:Qwen/Qwen3-8B")
    assert {:ok, {:tinker, %{state_path: "tinker://r/weights/9"}}} = ModelRef.parse("tinker://r/weights/9")
  end

  test "options stand behind a question mark, and signs are spelled" do
    assert {:ok, {:local, fields}} = ModelRef.parse("local:a%3Fb?adapter=c%26d&device=cuda:0")
    assert fields == %{path: "a?b", adapter_path: "c&d", device: "cuda:0"}

    assert {:ok, {:local, %{path: "a", device: "cuda:0,cuda:1"}}} = ModelRef.parse("local:a?devices=cuda:0,cuda:1")

    assert {:ok, {:hub, %{repo_id: "o/n", revision: "step/100", dtype: "float16"}}} =
             ModelRef.parse("hub:o/n?revision=step/100&dtype=float16")

    assert {:ok, {:tinker, %{model_path: "tinker://r/weights/9", service: "two"}}} =
             ModelRef.parse("tinker://r/weights/9?kind=model&service=two")
  end

  test "what is spelled wrong names the field and creates nothing" do
    for text <- [
          "",
          "embedded:",
          "openai:x",
          "NoSuch:x",
          "local:a?b",
          "local:a?nosuch=1",
          "local:a?device=cpu&devices=cpu,cpu",
          "hub:o/n?split=test",
          "tinker://r?kind=x",
          "local:a?b=%GG"
        ] do
      assert {:error, %Error{reason: "INVALID_FIELD", field: "model", retryable: false}} = ModelRef.parse(text)
    end
  end

  test "a Kitchen session is saved by name, and its path is the model" do
    test = self()
    session = %{id: self(), service_client: self(), model: "m", config: %{}}

    save = fn ^session, name ->
      send(test, {:saved, name})
      {:ok, %{path: "tinker://r/sampler_weights/#{name}"}}
    end

    assert {:ok, {:tinker, %{model_path: "tinker://r/sampler_weights/step-4"}}} =
             ModelRef.resolve(session, save_weights: save, weights_name: "step-4")

    assert_received {:saved, "step-4"}
  end

  test "without a name two saves of a session have two" do
    session = %{id: self(), service_client: self()}
    save = fn _session, name -> {:ok, "tinker://r/sampler_weights/" <> name} end
    assert ModelRef.resolve(session, save_weights: save) != ModelRef.resolve(session, save_weights: save)
  end

  test "a save that fails in any way is an error that tells nothing of the session" do
    session = %{id: self(), service_client: self(), config: %{api_key: "tml-secret"}}

    for save <- [
          fn _, _ -> {:error, "tml-secret"} end,
          fn _, _ -> {:ok, %{path: nil}} end,
          fn _, _ -> raise "tml-secret" end,
          fn _, _ -> exit({:timeout, "tml-secret"}) end,
          fn _, _ -> Task.await(Task.async(fn -> exit("tml-secret") end)) end,
          fn _, _ -> Process.exit(self(), :kill) end
        ] do
      assert {:error, %Error{reason: "WEIGHTS_NOT_SAVED", retryable: true} = error} =
               ModelRef.resolve(session, save_weights: save)

      refute inspect(error) =~ "tml-secret"
    end
  end

  @tag skip:
         Code.ensure_loaded?(CrucibleKitchen.Adapters.Tinkex.TrainingClient) && "crucible_kitchen saves weights here"
  test "a session of Tinkex without anyone to save its weights says so" do
    assert {:error, %Error{field: "save_weights"}} = ModelRef.resolve(%{id: self(), service_client: self()})
  end

  test "the option :model stands for what is given, or makes it of that" do
    assert {:ok, {:embedded, "a"}} = ModelRef.resolve(:whatever, model: "embedded:a")
    assert {:ok, {:embedded, "m"}} = ModelRef.resolve(%{model: "m"}, model: &("embedded:" <> &1.model))
  end

  test "what is no model is refused without being shown" do
    assert {:error, %Error{field: "model"} = error} = ModelRef.resolve(%{model: "m", api_key: "tml-secret"})
    refute inspect(error) =~ "tml-secret"
  end

  test "a model that stays here is held" do
    model = %Model{name: "m", forward: fn _ -> {:ok, []} end}
    assert {:ok, {:held, ^model}} = ModelRef.resolve(model)
  end
end

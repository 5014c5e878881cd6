defmodule CrucibleBridge.OptionsTest do
  use ExUnit.Case, async: true

  import ExUnit.CaptureLog

  alias CrucibleBridge.{Dataset, Error, ModelRef, Options}

  doctest Options

  test "an option that is given twice is named, also where it has the same value both times" do
    for value <- ["a", "b"] do
      assert {:error, %Error{reason: "INVALID_FIELD", field: "token", message: "is given twice"}} =
               Options.once(token: "a", timeout: 5, token: value)
    end

    assert Options.once(%{"token" => "a"}) == :ok
    assert Options.once([]) == :ok
  end

  test "a function that gives no value is an error of its option, which shows nothing of what it held" do
    for {failing, happened} <- [
          {fn -> Keyword.fetch!([api_key: "secret"], hd([:path])) end, "raised KeyError"},
          {fn -> raise "a plain reason" end, "raised RuntimeError"},
          {fn -> throw({:session, "secret"}) end, "threw"},
          {fn -> exit({:session, "secret"}) end, "exited"}
        ] do
      log =
        capture_log(fn ->
          assert {:error, %Error{reason: "INVALID_FIELD", field: "model"} = error} = Options.call("model", failing)
          assert Exception.message(error) =~ "model #{happened}"
          refute inspect(error) =~ "secret"
        end)

      assert log =~ "the option model #{happened}"
    end
  end

  test "an error of the bridge that a function raises is passed on" do
    error = Error.transport("no worker")
    assert Options.call("model", fn -> raise error end) == {:error, error}
  end

  @tag :capture_log
  test "a model that is chosen by a function that raises is an error" do
    assert {:error, %Error{field: "model"}} = ModelRef.resolve(:session, model: fn :session -> raise "no weights" end)
    assert ModelRef.resolve(:session, model: fn :session -> "embedded:a@1" end) == {:ok, {:embedded, "a@1"}}
    assert {:ok, {:inline, [_sample]}} = Dataset.read(fn -> [{"1+1=", 2}] end)
  end
end

defmodule CrucibleBridge.DatasetTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Dataset, Error}

  doctest Dataset

  defp samples(dataset, opts \\ []) do
    {:ok, {:inline, samples}} = Dataset.read(dataset, opts)
    samples
  end

  test "a data set that the worker has is named" do
    assert Dataset.read("jsonl:a/b.jsonl") == {:ok, {:jsonl, "a/b.jsonl"}}

    assert Dataset.read("hub:openai/gsm8k?split=test&input=question") ==
             {:ok, {:hub, "openai/gsm8k", %{"split" => "test", "input" => "question"}}}
  end

  test "files have formats and columns, and a question mark of a name is spelled" do
    assert Dataset.read("csv:q.csv") == {:ok, {:file, :csv, "q.csv", %{}}}
    assert Dataset.read("jsonl:what%3F 50%25.jsonl") == {:ok, {:jsonl, "what? 50%25.jsonl"}}

    assert Dataset.read("jsonl:q%3F.jsonl?input=question&target=a%26b") ==
             {:ok, {:file, :jsonl, "q?.jsonl", %{"input" => "question", "target" => "a&b"}}}

    assert Dataset.read("parquet:q.parquet?") == {:ok, {:file, :parquet, "q.parquet", %{}}}

    for text <- ["csv:a?input", "csv:a?=b", "csv:a?input=", "csv:"] do
      assert {:error, %Error{field: "dataset"}} = Dataset.read(text)
    end
  end

  test "handles of Kitchen and data sets of CrucibleDatasets are their items" do
    items = [%{id: "a", input: "1+1=", expected: "2"}]
    expected = samples(items)
    assert samples(%{id: "x", items: items, split: "test"}) == expected
    assert samples(%{id: "x", load_opts: [], type: :dataset, dataset: %{items: items}}) == expected
    assert samples(%{dataset: %{stream: Stream.map(items, & &1)}}) == expected
    assert samples(%{samples: items}) == expected
    assert samples(fn -> items end) == expected
    assert [%{id: "a", input: {:text, "1+1="}, targets: ["2"]}] = expected
  end

  test "fields are found by atoms and strings, the first that is there" do
    for item <- [
          %{"question" => "q", "answer" => "a"},
          %{prompt: "q", completion: "a"},
          %{input: "q", expected: %{answer: "a", reasoning: "r"}},
          %{instruction: "q", output: "a"}
        ] do
      assert [%{input: {:text, "q"}, targets: ["a"]}] = samples([item])
    end
  end

  test "options say which field is which, by name or by a function" do
    item = %{"q" => "1+1=", "a" => 2, "n" => 7}
    opts = [input_field: "q", target_field: &[&1["a"], "two"], id_field: "n"]
    assert [%{id: "7", input: {:text, "1+1="}, targets: ["2", "two"]}] = samples([item], opts)
  end

  test "numbers become texts as people write them" do
    assert [%{targets: ["72"]}] = samples([%{input: "q", expected: %{answer: 72.0}}])
    assert [%{targets: ["0.5"]}] = samples([%{input: "q", expected: 0.5}])
    assert [%{targets: ["-3"]}] = samples([{"q", -3}])
  end

  test "the index of a choice becomes its letter" do
    item = %{input: %{question: "which?", choices: ["a", "b", "c"]}, expected: 2}
    assert [%{input: {:text, "which?"}, choices: ["a", "b", "c"], targets: ["C"], choice_labels: []}] = samples([item])

    ambiguous = %{question: "which group?", choices: ["B", "A", "O", "AB"], answer: 0}
    assert [%{targets: ["A"], choice_labels: ["A", "B", "C", "D"]}] = samples([ambiguous])
    assert [%{targets: ["C"], choice_labels: []}] = samples([%{ambiguous | answer: 2}])
    assert {:error, %Error{field: "dataset[0].target"}} = Dataset.read([%{item | expected: 3}])
  end

  test "a target may stand behind a mark" do
    assert [%{targets: ["1,460"]}] = samples([{"q", "some reasoning\n#### 1,460\n"}], target_after: "####")
  end

  test "messages are a conversation, with roles and contents in any of their forms" do
    messages = [%{role: "system", content: "s"}, %{"role" => :user, "content" => [%{type: "text", text: "u"}]}]
    assert [%{input: {:conversation, [{"system", "s"}, {"user", "u"}]}}] = samples([%{messages: messages}])
    assert {:error, %Error{field: "dataset[0].input"}} = Dataset.read([%{messages: [%{role: "user"}]}])
  end

  test "a datum is handed on as it is" do
    datum = %{model_input: [1, 2], loss_fn_inputs: %{"weights" => [0, 1]}}
    assert [%{input: {:datum, ^datum}, targets: [], id: ""}] = samples([datum])
  end

  test "metadata keeps texts, numbers and atoms" do
    item = %{input: "q", metadata: %{level: 3, subject: :algebra, nested: %{}, none: nil}}
    assert [%{metadata: %{"level" => "3", "subject" => "algebra"} = metadata}] = samples([item])
    assert map_size(metadata) == 2
  end

  test "no more of a stream is read than the limit" do
    endless = Stream.iterate(0, &(&1 + 1)) |> Stream.map(&{"#{&1}", &1})
    assert length(samples(endless, limit: 3)) == 3
  end

  test "the item that cannot be read is named by its index" do
    assert {:error, %Error{field: "dataset[1]", reason: "INVALID_FIELD"}} = Dataset.read([{"q", "a"}, :nonsense])
    assert {:error, %Error{field: "dataset[0]"}} = Dataset.read([%{nothing: "known"}])
    assert {:error, %Error{field: "dataset[0].target"}} = Dataset.read([%{input: "q", target: self()}])
    assert {:error, %Error{field: "dataset"}} = Dataset.read(42)
    assert {:error, %Error{field: "dataset"}} = Dataset.read(%{id: "handle"})
  end
end

defmodule CrucibleBridge.MessagesTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.{Dataset, Error}
  alias CrucibleBridge.Wire.Messages

  test "messages keep images and calls of tools" do
    image = %{data: <<1>>, format: "png"}
    call = %{name: "add", arguments: "{}", id: "c1"}

    messages = [
      %{role: :user, content: [%{text: "u"}, image]},
      %{role: :assistant, content: "", tool_calls: [call]},
      %{role: :tool, content: "2", tool_call_id: "c1"}
    ]

    assert {:ok, {:inline, [%{input: {:conversation, read}}]}} = Dataset.read([%{messages: messages}])

    assert {:ok, %{messages: [user, assistant, tool]}} = Messages.conversation(read, "messages")
    assert %{content: "", parts: [%{part: {:text, "u"}}, %{part: {:image, %{data: <<1>>, format: "png"}}}]} = user
    assert %{role: "assistant", tool_calls: [%{name: "add", arguments: "{}", id: "c1"}]} = assistant
    assert %{content: "2", tool_call_id: "c1"} = tool
  end

  test "what is no message is named" do
    for {message, field} <- [
          {%{role: "user", content: [%{tokens: [1]}]}, "m[0].content[0]"},
          {%{role: "user", content: 3}, "m[0].content"},
          {%{role: "assistant", content: "", tool_calls: [%{id: "x"}]}, "m[0].tool_calls[0]"},
          {%{content: "x"}, "m[0]"}
        ] do
      assert {:error, %Error{field: ^field}} = Messages.conversation([message], "m")
    end
  end
end

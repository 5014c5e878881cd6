defmodule CrucibleBridge.ReasonTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.Reason

  doctest Reason

  test "kinds and messages are told, and nothing that something was called with" do
    for {reason, told} <- [
          {:closed, "closed"},
          {{:error, {:shutdown, :econnrefused}}, "error: shutdown: econnrefused"},
          {%RuntimeError{message: "no"}, "RuntimeError: no"},
          {%{message: String.duplicate("x", 301)}, inspect(String.duplicate("x", 300))},
          {%{message: <<255>>}, inspect(<<255>>)},
          {"tml-secret", "a text"},
          {{"tml-secret", 1}, "{...}"},
          {%URI{userinfo: "tml-secret"}, "a URI"},
          {%{key: "tml-secret"}, "a term"},
          {["tml-secret"], "a term"}
        ] do
      assert Reason.describe(reason) == told
    end
  end
end

defmodule CrucibleBridge.SnakepitErrorTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.SnakepitAdapter

  @context %{
    "code" => "INVALID_ARGUMENT",
    "reason" => "INVALID_FIELD",
    "field" => "items[2].answer",
    "retryable" => false,
    "tool_name" => "grade_math",
    "number" => 4
  }

  test "what a tool refused keeps its code, reason, field and facts, however deep Snakepit packs it" do
    python = %{message: "items[2].answer is empty", context: @context}

    for error <- [python, %{category: :worker, message: "Request failed", details: %{reason: python}}] do
      told = SnakepitAdapter.error(error)
      assert {told.code, told.reason, told.field} == {:invalid_argument, "INVALID_FIELD", "items[2].answer"}
      assert Exception.message(told) == "items[2].answer is empty"
      refute told.retryable
      assert told.details == %{"tool_name" => "grade_math"}
    end
  end

  test "an error that may pass says when to try again" do
    context = %{"code" => "RESOURCE_EXHAUSTED", "reason" => "QUEUE_FULL", "retryable" => true, "retry_after_ms" => 250}
    told = SnakepitAdapter.error(%{message: "the queue is full", context: context})
    assert {told.code, told.retryable, told.retry_after_ms} == {:resource_exhausted, true, 250}
  end

  test "a code that this version does not know is unknown" do
    assert SnakepitAdapter.error(%{message: "x", context: %{"code" => "NEW_CODE"}}).code == :unknown
  end

  test "a worker that went is a broken connection, and may be asked again" do
    error = %{category: :worker, message: "Request failed", details: %{reason: "Worker shutting down"}}
    told = SnakepitAdapter.error(error)
    assert {told.reason, told.retryable} == {"TRANSPORT", true}
    assert told.message == "Request failed: Worker shutting down"
  end

  test "a timeout of Snakepit's own is one" do
    told = SnakepitAdapter.error(%{category: :timeout, message: "Pool execute timed out", details: %{}})
    assert {told.code, told.message} == {:deadline_exceeded, "Pool execute timed out"}
  end
end

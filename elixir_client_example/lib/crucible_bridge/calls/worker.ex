defmodule CrucibleBridge.Calls.Worker do
  @moduledoc false
  # WorkerService; documented at CrucibleBridge.

  alias CrucibleBridge.{Calls, V1}

  def info(conn, opts), do: Calls.unary(conn, %V1.GetInfoRequest{}, opts, :worker)
  def drain(conn, opts), do: Calls.unary(conn, %V1.DrainRequest{}, opts, :interrupted)
end

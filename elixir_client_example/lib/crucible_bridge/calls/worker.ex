defmodule CrucibleBridge.Calls.Worker do
  @moduledoc false
  # WorkerService; documented at CrucibleBridge.

  alias CrucibleBridge.{Connection, V1, Wire}
  alias V1.WorkerService.Stub

  def info(conn, opts) do
    with {:ok, reply} <- Connection.call(conn, Stub, :get_info, %V1.GetInfoRequest{}, opts) do
      {:ok, Wire.decode(reply.worker)}
    end
  end

  def drain(conn, opts) do
    with {:ok, reply} <- Connection.call(conn, Stub, :drain, %V1.DrainRequest{}, opts), do: {:ok, reply.interrupted}
  end
end

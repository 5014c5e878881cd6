defmodule CrucibleBridge.TestModelServer do
  @moduledoc """
  An OpenAI-compatible server that says what a function says to a prompt.

      url = CrucibleBridge.TestModelServer.start(fn _prompt -> "46" end)
      worker = CrucibleBridge.TestWorker.start(args: ["--openai-server", "scripted=" <> url])

  Every model of it, such as `"openai:scripted/any"`, is that function. It ends with the test that started it.
  """

  import ExUnit.Callbacks, only: [start_supervised!: 1]

  @doc "Listens on any free port of this machine, and says where."
  @spec start((String.t() -> String.t())) :: String.t()
  def start(answer) do
    {:ok, listener} =
      :gen_tcp.listen(0, [:binary, packet: :http_bin, active: false, ip: {127, 0, 0, 1}, reuseaddr: true])

    {:ok, port} = :inet.port(listener)
    accepting = start_supervised!({Task, fn -> accept(listener, answer) end})
    :ok = :gen_tcp.controlling_process(listener, accepting)
    "http://127.0.0.1:#{port}/v1"
  end

  defp accept(listener, answer) do
    {:ok, socket} = :gen_tcp.accept(listener)
    serving = spawn_link(fn -> receive(do: (:go -> serve(socket, answer))) end)
    :ok = :gen_tcp.controlling_process(socket, serving)
    send(serving, :go)
    accept(listener, answer)
  end

  # One request a connection.
  defp serve(socket, answer) do
    {:ok, {:http_request, method, _target, _version}} = :gen_tcp.recv(socket, 0)
    length = length_of_body(socket, 0)
    :ok = :inet.setopts(socket, packet: :raw)
    body = if length > 0, do: socket |> :gen_tcp.recv(length) |> elem(1) |> Jason.decode!(), else: %{}
    json = method |> reply(body, answer) |> Jason.encode!()

    head =
      "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: #{byte_size(json)}"

    :ok = :gen_tcp.send(socket, [head, "\r\n\r\n", json])
    :gen_tcp.close(socket)
  end

  defp length_of_body(socket, length) do
    case :gen_tcp.recv(socket, 0) do
      {:ok, {:http_header, _, :"Content-Length", _, value}} -> length_of_body(socket, String.to_integer(value))
      {:ok, {:http_header, _, _, _, _}} -> length_of_body(socket, length)
      {:ok, :http_eoh} -> length
    end
  end

  defp reply(:POST, %{"messages" => messages}, answer),
    do: answered(%{message: said(answer.(List.last(messages)["content"]))})

  defp reply(:POST, %{"prompt" => prompt}, answer), do: answered(%{text: answer.(prompt)})
  defp reply(:GET, _body, _answer), do: %{data: []}

  defp said(text), do: %{role: "assistant", content: text}

  defp answered(choice) do
    %{
      choices: [Map.merge(%{index: 0, finish_reason: "stop"}, choice)],
      usage: %{prompt_tokens: 7, completion_tokens: 3}
    }
  end
end

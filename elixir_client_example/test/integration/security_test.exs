defmodule CrucibleBridge.SecurityTest do
  use ExUnit.Case, async: false

  @moduletag :integration
  @moduletag :capture_log

  alias CrucibleBridge.{Connection, Error, TestWorker}

  @token "a-token-that-nobody-guesses"

  setup_all do
    folder = Path.join(System.tmp_dir!(), "crucible-elixir-pem-#{System.pid()}")
    File.mkdir_p!(folder)
    on_exit(fn -> File.rm_rf!(folder) end)
    pem = certificates(folder)
    token_file = Path.join(folder, "token")
    File.write!(token_file, @token <> "\n")
    File.chmod!(token_file, 0o600)
    connect = [token: @token, tls: [cacertfile: pem.ca]]
    args = ["--token-file", token_file, "--tls-cert", pem.cert, "--tls-key", pem.key]
    %{worker: TestWorker.start(args: args, connect: connect), pem: pem, token_file: token_file}
  end

  for adapter <- [:gun, :mint] do
    describe "#{adapter}:" do
      @describetag adapter: adapter

      test "a call with the token over TLS is answered, a stream as well", %{adapter: adapter} = context do
        for token <- [[token: @token], [token: fn -> @token end], [token_file: context.token_file]] do
          conn = connect(context, [adapter: adapter, tls: [cacertfile: context.pem.ca]] ++ token)
          assert {:ok, %{version: _}} = CrucibleBridge.info(conn)
          assert {:ok, events} = CrucibleBridge.subscribe(conn, until_now: true)
          assert [{:ok, _batch} | _] = Enum.to_list(events)
        end
      end

      test "no token and a wrong one are told apart, and not repeated", %{adapter: adapter} = context do
        for {token, reason} <- [{[], "MISSING_TOKEN"}, {[token: "wrong-token"], "WRONG_TOKEN"}] do
          conn = connect(context, [adapter: adapter, tls: [cacertfile: context.pem.ca]] ++ token)

          assert {:error, %Error{code: :unauthenticated, reason: ^reason, retryable: false} = error} =
                   CrucibleBridge.info(conn)

          refute inspect(error) =~ "wrong-token"
        end
      end

      test "a worker whose certificate nobody trusted signed is not spoken to", %{adapter: adapter} = context do
        conn = connect(context, adapter: adapter, token: @token, tls: [cacertfile: context.pem.other_ca])
        assert {:error, %Error{code: :unavailable, reason: "TRANSPORT"} = error} = CrucibleBridge.info(conn)
        refute inspect(error) =~ @token
      end

      test "a certificate of another name is refused", %{adapter: adapter} = context do
        port = context.worker.address |> String.split(":") |> List.last()

        conn =
          connect(context,
            address: "localhost:" <> port,
            adapter: adapter,
            token: @token,
            tls: [cacertfile: context.pem.ca]
          )

        assert {:error, %Error{code: :unavailable, reason: "TRANSPORT"}} = CrucibleBridge.info(conn)
      end
    end
  end

  # The operators' page, as it stands: its commands make the files, and its options connect.
  for adapter <- [:gun, :mint] do
    test "#{adapter}: the page's token and certificate serve a client that trusts its authority", _context do
      folder =
        Path.join(System.tmp_dir!(), "crucible-elixir-page-#{System.unique_integer([:positive])}-#{System.pid()}")

      File.mkdir_p!(folder)
      on_exit(fn -> File.rm_rf!(folder) end)
      {commands, options} = page()
      {output, status} = System.cmd("sh", ["-e", "-c", commands], cd: folder, stderr_to_stdout: true)
      assert status == 0, output

      file = &Path.join(folder, &1)
      args = ["--token-file", file.("token"), "--tls-cert", file.("cert.pem"), "--tls-key", file.("key.pem")]
      tls = Keyword.update!(options[:tls], :cacertfile, file)
      connect = [token_file: file.(options[:token_file]), tls: tls, adapter: unquote(adapter)]
      worker = TestWorker.start(args: args, connect: connect)

      {:ok, conn} = Connection.start_link([name: nil, address: worker.address] ++ connect)
      assert {:ok, %{version: _}} = CrucibleBridge.info(conn)

      {:ok, other} =
        Connection.start_link([name: nil, address: worker.address] ++ Keyword.put(connect, :tls, other(tls)))

      assert {:error, %Error{reason: "TRANSPORT"}} = CrucibleBridge.info(other)
    end
  end

  defp other(tls), do: Keyword.put(tls, :server_name_indication, ~c"other")

  defp page do
    text = File.read!(Path.expand("../../../docs/operating.md", __DIR__))
    [_before, section] = String.split(text, "### A token and a certificate", parts: 2)
    [commands | _] = Regex.run(~r/^(?:    .*\n)+/m, section)
    [code] = Regex.run(~r/```elixir\n(.*?)```/s, section, capture: :all_but_first)
    {{Connection, options}, _binding} = Code.eval_string(code)
    {commands, options}
  end

  test "neither the state of a connection, nor its child's specification, shows what TLS was given", context do
    tls = [cacertfile: context.pem.ca, password: ~c"a-passphrase"]
    conn = connect(context, token: @token, tls: tls)
    {:ok, _info} = CrucibleBridge.info(conn)
    {:ok, channel} = Connection.channel(conn)

    for shown <- [:sys.get_state(conn), :sys.get_status(conn), channel, Connection.child_spec(tls: tls)] do
      refute inspect(shown, structs: false, limit: :infinity) =~ "a-passphrase"
    end

    assert %{start: {Connection, :start_link, [opts]}} =
             Connection.child_spec(name: nil, address: context.worker.address, token: @token, tls: tls)

    assert {:ok, child} = Connection.start_link(opts)
    assert {:ok, _info} = CrucibleBridge.info(child)
  end

  test "neither the state of a connection, nor its child's specification, nor a crash shows the token", context do
    {:ok, conn} = Connection.start_link([name: nil] ++ context.worker.connect)
    {:ok, _info} = CrucibleBridge.info(conn)
    refute inspect(:sys.get_state(conn), structs: false, limit: :infinity) =~ @token
    refute inspect(:sys.get_status(conn), structs: false, limit: :infinity) =~ @token
    refute inspect(Connection.child_spec(context.worker.connect), limit: :infinity) =~ @token

    log =
      ExUnit.CaptureLog.capture_log(fn ->
        Process.flag(:trap_exit, true)
        :sys.replace_state(conn, &%{&1 | channel: nil, link: nil, not_before: nil})
        assert catch_exit(CrucibleBridge.info(conn))
        assert_receive {:EXIT, ^conn, _reason}
      end)

    assert log =~ "terminating"
    refute log =~ @token
  end

  defp connect(context, opts) do
    {:ok, conn} = Connection.start_link(Keyword.merge([name: nil, address: context.worker.address], opts))
    conn
  end

  # An authority, a certificate of it for 127.0.0.1, and an authority that has signed nothing.
  defp certificates(folder) do
    path = &Path.join(folder, &1)
    subject = fn name -> ["-subj", "/CN=#{name}"] end
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

    for name <- ["ca", "other"] do
      openssl(
        ["req", "-x509", "-days", "2", "-keyout", path.(name <> ".key"), "-out", path.(name <> ".pem")] ++
          key ++ subject.(name)
      )
    end

    openssl(["req", "-keyout", path.("worker.key"), "-out", path.("worker.csr")] ++ key ++ subject.("worker"))
    File.write!(path.("extensions"), "subjectAltName=IP:127.0.0.1\n")

    openssl(
      ~w(x509 -req -days 2 -CAcreateserial) ++
        ["-in", path.("worker.csr"), "-CA", path.("ca.pem"), "-CAkey", path.("ca.key")] ++
        ["-extfile", path.("extensions"), "-out", path.("worker.pem")]
    )

    %{ca: path.("ca.pem"), other_ca: path.("other.pem"), cert: path.("worker.pem"), key: path.("worker.key")}
  end

  defp openssl(args), do: {_output, 0} = System.cmd("openssl", args, stderr_to_stdout: true)
end

defmodule CrucibleBridge.Connection.TargetTest do
  use ExUnit.Case, async: true

  alias CrucibleBridge.Connection.Target
  alias CrucibleBridge.Error

  doctest Target

  test "what is no address is refused" do
    for text <- [
          "localhost",
          "localhost:0",
          "localhost:65536",
          "::1:50051",
          "a b:1",
          "unix:",
          "http://a:1",
          ":1",
          "a:1\n"
        ] do
      assert {:error, %Error{field: "address"}} = Target.new(address: text)
    end
  end

  test "an option that is given twice is named as that, and is not shown" do
    assert {:error, %Error{field: "token", message: "is given twice"} = error} = Target.new(token: "one", token: "two")
    refute inspect(error) =~ "one"
    assert {:error, %Error{field: "tls", message: "is given twice"}} = Target.new(tls: [], address: "a:1", tls: [])
  end

  test "a token is what a header can carry, and is never shown" do
    for token <- ["", "two words", "line\n", "umlaut-ü"] do
      assert {:error, %Error{field: "token"} = error} = Target.new(token: token)
      refute token != "" and Exception.message(error) =~ token
    end

    {:ok, target} = Target.new(token: "secret-token")
    assert Target.metadata(target) == {:ok, %{"authorization" => "Bearer secret-token"}}
    refute inspect(target, structs: false) =~ "secret-token"
    assert {:error, %Error{field: "token"}} = Target.new(token: "a", token_file: "/b")
  end

  @tag :capture_log
  test "a function that gives a token or an address, and fails, is an error that does not show what it held" do
    {:ok, target} = Target.new(token: fn -> raise "secret-token" end)
    assert {:error, %Error{field: "token"} = error} = Target.metadata(target)
    refute inspect(error) =~ "secret-token"

    for find <- [fn -> raise "broken" end, fn -> exit(:broken) end, fn -> nil end, fn -> {:ok, 5} end] do
      {:ok, target} = Target.new(address: find)
      assert {:error, %Error{}} = Target.located(target)
    end
  end

  test "what TLS is given is never shown" do
    for tls <- [[password: ~c"passphrase"], fn -> [password: ~c"passphrase"] end] do
      {:ok, target} = Target.new(tls: tls)
      refute inspect(target, structs: false) =~ "passphrase"
    end
  end

  test "a token's file is read at each call, so that a new token counts" do
    path = Path.join(System.tmp_dir!(), "crucible-elixir-token-#{System.pid()}-#{System.unique_integer([:positive])}")
    on_exit(fn -> File.rm(path) end)
    {:ok, target} = Target.new(token_file: path)

    assert {:error, %Error{field: "token_file", message: "cannot be read: no such file or directory"}} =
             Target.metadata(target)

    for token <- ["first", "second"] do
      File.write!(path, token <> "\n")
      assert Target.metadata(target) == {:ok, %{"authorization" => "Bearer " <> token}}
    end
  end

  test "an option of another kind is refused by its name" do
    for {option, value} <- [adapter: :hackney, tls: "yes", connect_timeout: 0, tokn: "misspelt"] do
      field = Atom.to_string(option)
      assert {:error, %Error{field: ^field}} = Target.new([{option, value}])
    end
  end
end

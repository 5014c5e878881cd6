defmodule CrucibleBridge.Orchestrator.Verifier do
  @moduledoc """
  A grader as a module, of the shape that is proposed for Kitchen as `Crucible.Verifier`: a module of that behaviour is one.

      defmodule Sums do
        @behaviour CrucibleBridge.Orchestrator.Verifier

        @impl true
        def verify(%{input: {:text, question}}, answer) do
          {:ok, %{passed: Sums.right?(question, answer), reason: "compared as numbers"}}
        end
      end

  The input is the sample, `t:CrucibleBridge.Orchestrator.Grader.sample/0`; the output is the model's answer. What else may
  be returned stands at `CrucibleBridge.Orchestrator.Grader`.
  """

  @callback verify(input :: term(), output :: term()) ::
              {:ok, %{required(:passed) => boolean(), optional(:reason) => String.t()}} | {:error, term()}
end

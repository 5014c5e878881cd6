defmodule CrucibleBridge.V1.ExactComparison do
  @moduledoc """
  As what exact_match compares.
  """

  use Protobuf, enum: true, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :EXACT_COMPARISON_UNSPECIFIED, 0
  field :EXACT_COMPARISON_TEXT, 1
  field :EXACT_COMPARISON_NUMBER, 2
  field :EXACT_COMPARISON_LIST, 3
  field :EXACT_COMPARISON_JSON, 4
end

defmodule CrucibleBridge.V1.GradeItem do
  @moduledoc """
  A response or an answer, with its targets.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :candidate, 0

  field :id, 1, type: :string
  field :response, 2, type: :bytes, oneof: 0
  field :answer, 3, type: :bytes, oneof: 0
  field :targets, 4, repeated: true, type: :string
end

defmodule CrucibleBridge.V1.Grade do
  @moduledoc """
  The grade of an item.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :id, 1, type: :string
  field :verdict, 2, type: CrucibleBridge.V1.Verdict, enum: true
  field :score, 3, proto3_optional: true, type: :double
  field :extracted, 4, type: :string
  field :extraction, 5, type: :string
  field :method, 6, type: :string
  field :reason, 7, type: :string
  field :duration_ns, 8, type: :int64, json_name: "durationNs"
  field :problem, 9, type: CrucibleBridge.V1.Problem
end

defmodule CrucibleBridge.V1.MathPolicy do
  @moduledoc """
  What counts as equivalent. Absent fields have the defaults said here.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :ordered_lists, 1, proto3_optional: true, type: :bool, json_name: "orderedLists"
  field :rounding_digits, 2, proto3_optional: true, type: :int32, json_name: "roundingDigits"
  field :percent_lenient, 3, proto3_optional: true, type: :bool, json_name: "percentLenient"
  field :units_optional, 4, proto3_optional: true, type: :bool, json_name: "unitsOptional"
  field :equation_value, 5, proto3_optional: true, type: :bool, json_name: "equationValue"
  field :interval_or_pair, 6, proto3_optional: true, type: :bool, json_name: "intervalOrPair"
  field :require_reduced, 7, proto3_optional: true, type: :bool, json_name: "requireReduced"
  field :degrees, 8, proto3_optional: true, type: :bool
  field :rename_variables, 9, proto3_optional: true, type: :bool, json_name: "renameVariables"
  field :tuple_or_set, 10, proto3_optional: true, type: :bool, json_name: "tupleOrSet"
  field :log_is_natural, 20, proto3_optional: true, type: :bool, json_name: "logIsNatural"
  field :delta_value, 21, proto3_optional: true, type: :bool, json_name: "deltaValue"
  field :math_in_prose, 22, proto3_optional: true, type: :bool, json_name: "mathInProse"

  field :integration_constants, 23,
    proto3_optional: true,
    type: :bool,
    json_name: "integrationConstants"

  field :chemical_formulas, 24, proto3_optional: true, type: :bool, json_name: "chemicalFormulas"
  field :vector_notations, 25, proto3_optional: true, type: :bool, json_name: "vectorNotations"
  field :chinese_words, 26, proto3_optional: true, type: :bool, json_name: "chineseWords"
  field :dates_and_times, 27, proto3_optional: true, type: :bool, json_name: "datesAndTimes"
  field :regional_numerals, 28, proto3_optional: true, type: :bool, json_name: "regionalNumerals"
  field :unit_names, 29, proto3_optional: true, type: :bool, json_name: "unitNames"
  field :fold_base_letters, 30, proto3_optional: true, type: :bool, json_name: "foldBaseLetters"
  field :expand_dots, 31, proto3_optional: true, type: :bool, json_name: "expandDots"
  field :log_abs_optional, 40, proto3_optional: true, type: :bool, json_name: "logAbsOptional"
end

defmodule CrucibleBridge.V1.GradeMathRequest do
  @moduledoc """
  Math answers to grade.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :items, 1, repeated: true, type: CrucibleBridge.V1.GradeItem
  field :policy, 2, type: CrucibleBridge.V1.MathPolicy
end

defmodule CrucibleBridge.V1.GradeMathResponse do
  @moduledoc """
  Their grades.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :grades, 1, repeated: true, type: CrucibleBridge.V1.Grade
  field :policy_version, 2, type: :string, json_name: "policyVersion"
end

defmodule CrucibleBridge.V1.ExtractAnswerRequest do
  @moduledoc """
  Responses to extract answers from.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :responses, 1, repeated: true, type: :bytes
end

defmodule CrucibleBridge.V1.ExtractAnswerResponse do
  @moduledoc """
  The answers.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :answers, 1, repeated: true, type: CrucibleBridge.V1.ExtractedAnswer
end

defmodule CrucibleBridge.V1.ExtractedAnswer do
  @moduledoc """
  An answer.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :answer, 1, type: :string
  field :extraction, 2, type: :string
  field :problem, 3, type: CrucibleBridge.V1.Problem
  field :reason, 4, type: :string
end

defmodule CrucibleBridge.V1.ScoreOptions do
  @moduledoc """
  How Score compares.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :scorer, 0

  field :exact_match, 1, type: CrucibleBridge.V1.TextScorer, json_name: "exactMatch", oneof: 0
  field :contains, 2, type: CrucibleBridge.V1.TextScorer, oneof: 0
  field :regex, 3, type: CrucibleBridge.V1.RegexScorer, oneof: 0
  field :numeric, 4, type: CrucibleBridge.V1.NumericScorer, oneof: 0
  field :f1, 5, type: CrucibleBridge.V1.TextScorer, oneof: 0
  field :bleu, 6, type: CrucibleBridge.V1.TextScorer, oneof: 0
  field :rouge, 7, type: CrucibleBridge.V1.TextScorer, oneof: 0

  field :multiple_choice, 8,
    type: CrucibleBridge.V1.ChoiceScorer,
    json_name: "multipleChoice",
    oneof: 0

  field :format, 10, type: CrucibleBridge.V1.FormatScorer, oneof: 0
  field :threshold, 9, proto3_optional: true, type: :double
  field :grader, 11, type: :string
  field :grader_options, 12, type: Google.Protobuf.Struct, json_name: "graderOptions"
end

defmodule CrucibleBridge.V1.TextScorer do
  @moduledoc """
  Options of text comparison.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :case_sensitive, 1, type: :bool, json_name: "caseSensitive"
  field :normalize_whitespace, 2, type: :bool, json_name: "normalizeWhitespace"
  field :strip_punctuation, 3, type: :bool, json_name: "stripPunctuation"
  field :compare, 4, proto3_optional: true, type: CrucibleBridge.V1.ExactComparison, enum: true
  field :ordered_lists, 5, type: :bool, json_name: "orderedLists"
end

defmodule CrucibleBridge.V1.RegexScorer do
  @moduledoc """
  Options of regular expressions: RE2, which does not backtrack, so that no expression takes long.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :full, 1, type: :bool
end

defmodule CrucibleBridge.V1.NumericScorer do
  @moduledoc """
  Options of numbers: right if |answer - target| <= absolute_tolerance + relative_tolerance * |target|.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :absolute_tolerance, 1, type: :double, json_name: "absoluteTolerance"
  field :relative_tolerance, 2, type: :double, json_name: "relativeTolerance"
end

defmodule CrucibleBridge.V1.ChoiceScorer do
  @moduledoc """
  Options of choices.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :choices, 1, repeated: true, type: :string
end

defmodule CrucibleBridge.V1.FormatScorer do
  @moduledoc """
  What form a response must have.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :form, 0

  field :boxed, 1, type: :bool, oneof: 0
  field :marks, 2, type: CrucibleBridge.V1.Marks, oneof: 0
  field :json_schema, 3, type: :string, json_name: "jsonSchema", oneof: 0
end

defmodule CrucibleBridge.V1.Marks do
  @moduledoc """
  Marks in order.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :marks, 1, repeated: true, type: :string
end

defmodule CrucibleBridge.V1.ScoreRequest do
  @moduledoc """
  Answers to score.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :items, 1, repeated: true, type: CrucibleBridge.V1.GradeItem
  field :options, 2, type: CrucibleBridge.V1.ScoreOptions
end

defmodule CrucibleBridge.V1.ScoreResponse do
  @moduledoc """
  Their grades.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :grades, 1, repeated: true, type: CrucibleBridge.V1.Grade
end

defmodule CrucibleBridge.V1.CodeItem do
  @moduledoc """
  A program to run against tests.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :id, 1, type: :string
  field :response, 2, type: :bytes
  field :prefix, 3, type: :string
  field :tests, 4, repeated: true, type: CrucibleBridge.V1.CodeTest
  field :problem_id, 5, type: :string, json_name: "problemId"
end

defmodule CrucibleBridge.V1.CodeTest do
  @moduledoc """
  A test of a program.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  oneof :test, 0

  field :assertions, 1, type: :string, oneof: 0
  field :stdio, 2, type: CrucibleBridge.V1.StdioTest, oneof: 0
  field :call, 3, type: CrucibleBridge.V1.CallTest, oneof: 0

  field :input_output, 4,
    type: CrucibleBridge.V1.InputOutputTests,
    json_name: "inputOutput",
    oneof: 0
end

defmodule CrucibleBridge.V1.StdioTest do
  @moduledoc """
  A program's input and output. The program must end by itself, with exit status 0; it ends after its threads and exit
  functions.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :stdin, 1, type: :string
  field :stdout, 2, type: :string
  field :comparison, 3, type: CrucibleBridge.V1.OutputComparison
end

defmodule CrucibleBridge.V1.OutputComparison do
  @moduledoc """
  How a program's output, or the value of a call, is compared with what is expected.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :by_token, 1, type: :bool, json_name: "byToken"
  field :absolute_tolerance, 2, type: :double, json_name: "absoluteTolerance"
  field :relative_tolerance, 3, type: :double, json_name: "relativeTolerance"
end

defmodule CrucibleBridge.V1.InputOutputTests do
  @moduledoc """
  Tests as APPS and data sets of its form have them, in their column `input_output`. Each input with its output is a test,
  run by itself, passed or not, and counted by max_code_tests (GetInfo).
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :json, 1, type: :string
  field :comparison, 2, type: CrucibleBridge.V1.OutputComparison
end

defmodule CrucibleBridge.V1.CallTest do
  @moduledoc """
  A function call.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :function, 1, type: :string
  field :arguments_json, 2, type: :string, json_name: "argumentsJson"
  field :expected_json, 3, type: :string, json_name: "expectedJson"
  field :comparison, 4, type: CrucibleBridge.V1.OutputComparison
end

defmodule CrucibleBridge.V1.CodeLimits do
  @moduledoc """
  Bounds of a program in each of its tests. A program that exceeds one fails the test.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :timeout_ms, 1, proto3_optional: true, type: :int32, json_name: "timeoutMs"
  field :memory_mb, 2, proto3_optional: true, type: :int32, json_name: "memoryMb"
  field :output_bytes, 3, proto3_optional: true, type: :int32, json_name: "outputBytes"
end

defmodule CrucibleBridge.V1.GradeCodeRequest do
  @moduledoc """
  Programs to grade.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :items, 1, repeated: true, type: CrucibleBridge.V1.CodeItem
  field :language, 2, type: :string
  field :limits, 3, type: CrucibleBridge.V1.CodeLimits
  field :k, 4, repeated: true, type: :int32
  field :image, 5, type: :string
end

defmodule CrucibleBridge.V1.GradeCodeResponse do
  @moduledoc """
  Their grades.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :grades, 1, repeated: true, type: CrucibleBridge.V1.Grade
  field :problems, 2, repeated: true, type: CrucibleBridge.V1.ProblemCounts
  field :metrics, 3, type: CrucibleBridge.V1.Metrics
end

defmodule CrucibleBridge.V1.ExtractCodeRequest do
  @moduledoc """
  Responses to extract programs from.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :responses, 1, repeated: true, type: :bytes
  field :names, 2, repeated: true, type: :string
  field :language, 3, type: :string
end

defmodule CrucibleBridge.V1.ExtractCodeResponse do
  @moduledoc """
  The programs.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :programs, 1, repeated: true, type: CrucibleBridge.V1.ExtractedProgram
end

defmodule CrucibleBridge.V1.ExtractedProgram do
  @moduledoc """
  A program.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :program, 1, type: :string
  field :extraction, 2, type: :string
  field :problem, 3, type: CrucibleBridge.V1.Problem
  field :reason, 4, type: :string
end

defmodule CrucibleBridge.V1.ProblemCounts do
  @moduledoc """
  The counts of one problem's samples.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :problem_id, 1, type: :string, json_name: "problemId"
  field :samples, 2, type: :int32
  field :correct, 3, type: :int32
  field :unscored, 4, type: :int32
end

defmodule CrucibleBridge.V1.RubricCriterion do
  @moduledoc """
  A criterion by which answers are judged.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :name, 1, type: :string
  field :description, 2, type: :string
  field :weight, 3, proto3_optional: true, type: :double
  field :min, 4, proto3_optional: true, type: :double
  field :max, 5, proto3_optional: true, type: :double
end

defmodule CrucibleBridge.V1.RubricItem do
  @moduledoc """
  A response to judge, or two of them.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :id, 1, type: :string
  field :question, 2, type: :string
  field :response, 3, type: :bytes
  field :references, 4, repeated: true, type: :string
  field :other, 5, proto3_optional: true, type: :bytes
  field :prior, 6, type: CrucibleBridge.V1.Verdict, enum: true
end

defmodule CrucibleBridge.V1.GradeRubricRequest do
  @moduledoc """
  Responses for a judge.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :judge, 1, type: CrucibleBridge.V1.ModelRef
  field :items, 2, repeated: true, type: CrucibleBridge.V1.RubricItem
  field :criteria, 3, repeated: true, type: CrucibleBridge.V1.RubricCriterion
  field :threshold, 4, proto3_optional: true, type: :double
  field :sampling, 5, type: CrucibleBridge.V1.SamplingParams
  field :renderer, 6, type: :string
  field :limits, 7, type: CrucibleBridge.V1.BatchLimits
end

defmodule CrucibleBridge.V1.CriterionScore do
  @moduledoc """
  The judgement of one criterion.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :name, 1, type: :string
  field :score, 2, type: :double
  field :reason, 3, type: :string
  field :clamped, 4, type: :bool
end

defmodule CrucibleBridge.V1.RubricGrade do
  @moduledoc """
  The grade of an item by a judge.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :grade, 1, type: CrucibleBridge.V1.Grade
  field :criteria, 2, repeated: true, type: CrucibleBridge.V1.CriterionScore
  field :prompt_tokens, 3, proto3_optional: true, type: :int64, json_name: "promptTokens"
  field :completion_tokens, 4, proto3_optional: true, type: :int64, json_name: "completionTokens"
end

defmodule CrucibleBridge.V1.GradeRubricResponse do
  @moduledoc """
  What became of them.
  """

  use Protobuf, protoc_gen_elixir_version: "0.15.0", syntax: :proto3

  field :grades, 1, repeated: true, type: CrucibleBridge.V1.RubricGrade
  field :prompt_tokens, 2, proto3_optional: true, type: :int64, json_name: "promptTokens"
  field :completion_tokens, 3, proto3_optional: true, type: :int64, json_name: "completionTokens"
  field :judge_fingerprint, 4, type: :string, json_name: "judgeFingerprint"
  field :usage, 5, type: CrucibleBridge.V1.Usage
end

defmodule CrucibleBridge.V1.GradingService.Service do
  @moduledoc """
  Grades answers. Nothing is recorded: repeat a call that failed. Batches of 256 to 1,024 items are fast; a call
  whose deadline passes is lost as a whole. Health says NOT_SERVING until the processes that grade are warm; a call
  that comes before waits for them.
  """

  use GRPC.Service, name: "crucible_bridge.v1.GradingService", protoc_gen_elixir_version: "0.15.0"

  rpc :GradeMath, CrucibleBridge.V1.GradeMathRequest, CrucibleBridge.V1.GradeMathResponse

  rpc :ExtractAnswer,
      CrucibleBridge.V1.ExtractAnswerRequest,
      CrucibleBridge.V1.ExtractAnswerResponse

  rpc :Score, CrucibleBridge.V1.ScoreRequest, CrucibleBridge.V1.ScoreResponse

  rpc :GradeCode, CrucibleBridge.V1.GradeCodeRequest, CrucibleBridge.V1.GradeCodeResponse

  rpc :ExtractCode, CrucibleBridge.V1.ExtractCodeRequest, CrucibleBridge.V1.ExtractCodeResponse

  rpc :GradeRubric, CrucibleBridge.V1.GradeRubricRequest, CrucibleBridge.V1.GradeRubricResponse
end

defmodule CrucibleBridge.V1.GradingService.Stub do
  use GRPC.Stub, service: CrucibleBridge.V1.GradingService.Service
end

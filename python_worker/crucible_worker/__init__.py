"""The worker: evaluates models, and reports the results.

Packages, from the outside in; each imports only those below it:

- `cli`: the command line. `testing`: a worker for the tests of users.
- `server`: builds, starts and drains a worker.
- `services`: one file for each service of the protos. `snakepit`: the same calls as tools of a pool.
  `interceptors`: run around every call. `telemetry`: logs.
- `config`: the settings of a worker.
- `runs`: evaluations from their acceptance to their end; journal, owners, plans, data sets, events.
- `evaluators`: how samples are queried and judged; one file each. `reports`: reports of evaluations.
- `grading`, `metrics`, `rendering`, `backends`: right or wrong, numbers, tokens, models.
- `embedded`, `limits`: the models that ship with the worker, and every bound with its default.

Types, events and errors are those of `crucible_bridge`.
"""

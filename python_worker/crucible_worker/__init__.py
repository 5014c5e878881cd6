"""The worker: evaluates models, and says so.

Where to look, from the outside in; each imports what stands below it alone:

- `cli`: the command line. `testing`: a worker for the tests of others.
- `server`: a worker put together, started, drained.
- `services`: one file for each service of the protos. `snakepit`: the same calls as tools of a pool.
  `interceptors`: what every call passes on its way. `telemetry`: logs.
- `config`: what a worker is told.
- `runs`: evaluations from their acceptance to their end; journal, owners, plans, data sets, events.
- `evaluators`: what is asked and how it is judged; one file each. `reports`: what is written about it.
- `grading`, `metrics`, `rendering`, `backends`: right or wrong, numbers, tokens, models.
- `embedded`, `limits`: the models that ship with it, and every bound with its default.

Types, events and errors are those of `crucible_bridge`.
"""

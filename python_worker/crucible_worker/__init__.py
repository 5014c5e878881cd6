"""The worker: evaluates models, and reports the results.

Packages, from the outside in; each imports only those below it:

- `cli`: the command line. `testing`: a worker for the tests of users.
- `server`: builds, starts and drains a worker.
- `rpc`: one file for each service of the protos, and what runs around each call. `snakepit`: the same calls as tools of
  a pool. `web`: the live page. `telemetry`: logs.
- `config`: the settings of a worker.
- `evaluations`: all evaluations of a journal, as the packages above see them.
- `planning`: plans of runs that train, early stopping, followed folders. `experiments`: what runs log.
- `analysis`: comparisons and gates.
- `engine`: an evaluation from its acceptance to its end.
- `inference`: calls of models, retried and metered. `datasets`: samples of files, tables and the hub.
- `history`: runs, and what is kept of evaluations. `events`: streams of the log. `journal`: the records of all of it.
- `evaluators`: how samples are queried and judged; one file each. `reports`: reports of evaluations.
- `grading`, `metrics`, `rendering`, `backends`: right or wrong, numbers, tokens, models.
- `children`: processes that the worker starts. `embedded`: the models that ship with it.
- `util`: what no package owns, such as `util.limits`, every bound with its default.

Types, events and errors are those of `crucible_bridge`.
"""

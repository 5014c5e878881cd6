"""One file for each proto service, and the layers between gRPC and all of them: logs, errors, tokens, admission."""

from crucible_worker.rpc.calls import Calls
from crucible_worker.rpc.chain import Interceptor

__all__ = ["Calls", "Interceptor"]

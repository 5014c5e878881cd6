"""The layers between gRPC and every service: logs, error mapping, authentication, admission, deadline."""

from crucible_worker.interceptors.calls import Calls
from crucible_worker.interceptors.chain import Interceptor

__all__ = ["Calls", "Interceptor"]

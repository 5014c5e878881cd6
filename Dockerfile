# A worker in a container: docs/docker.md says how to run it.
#
#   docker build --target light -t crucible-bridge:light .    models behind servers, metrics, grading; no PyTorch
#   docker build --target full -t crucible-bridge:full .      local and embedded models too: every extra but inspect and trackers

# Any image of Debian's kind with Python 3.11 or later and its pip.
ARG BASE_IMAGE=python:3.11-slim-bookworm
# Whom the worker runs as. It is the id of the first user of most machines: files of mode 0600 that such a user mounts,
# tokens and keys, are then readable.
ARG WORKER_UID=1000

FROM ${BASE_IMAGE} AS runtime
ARG WORKER_UID
# What programs that are graded run in.
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
RUN useradd --uid "${WORKER_UID}" --user-group --no-create-home --home-dir /var/lib/crucible \
        --shell /usr/sbin/nologin worker \
    && install --directory --owner=worker --group=worker --mode=0700 \
        /var/lib/crucible /run/crucible /var/cache/huggingface
ENV PATH=/opt/crucible/bin:${PATH} \
    # The environment belongs to root, and compiled all it has when it was made.
    PYTHONDONTWRITEBYTECODE=1 \
    CRUCIBLE_STATE_DIR=/var/lib/crucible \
    HF_HOME=/var/cache/huggingface
WORKDIR /var/lib/crucible
EXPOSE 50051
# Reads where the worker listens from the same variables as the worker: set those, not options, where it is not 50051.
HEALTHCHECK --interval=10s --timeout=10s --start-period=10s --retries=3 \
    CMD ["crucible-worker", "health", "--service", "crucible_bridge.v1.EvaluationService"]
ENTRYPOINT ["crucible-worker"]
CMD ["serve"]

# Pip learns of other indexes by PIP_EXTRA_INDEX_URL, which the history keeps, or by a pip.conf as a secret, which nothing
# does.
FROM ${BASE_IMAGE} AS pip
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

FROM pip AS wheel
COPY pyproject.toml README.md LICENSE ./
COPY bridge bridge
COPY python_worker python_worker
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM pip AS light-libraries
ARG PIP_EXTRA_INDEX_URL
ARG LIGHT_EXTRAS="openai postgres text tinker"
COPY pyproject.toml constraints.txt docker/requirements.py ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=cache,target=/root/.cache/pip \
    python -m venv --without-pip /opt/crucible \
    && python requirements.py ${LIGHT_EXTRAS} > requirements.txt \
    && pip --python /opt/crucible install --constraint constraints.txt --requirement requirements.txt

FROM light-libraries AS full-libraries
ARG PIP_EXTRA_INDEX_URL
ARG FULL_EXTRAS="datasets frames local lora openai postgres ray text tinker web"
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=cache,target=/root/.cache/pip \
    python requirements.py ${FULL_EXTRAS} > requirements.txt \
    && pip --python /opt/crucible install --constraint constraints.txt --requirement requirements.txt

FROM runtime AS light
ARG WORKER_UID
COPY --from=light-libraries /opt/crucible /opt/crucible
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    pip --python /opt/crucible install --no-cache-dir --no-index --no-deps /wheels/*.whl
# By number: Kubernetes' runAsNonRoot believes no name.
USER ${WORKER_UID}

FROM runtime AS full
ARG WORKER_UID
COPY --from=full-libraries /opt/crucible /opt/crucible
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    pip --python /opt/crucible install --no-cache-dir --no-index --no-deps /wheels/*.whl
# By number: Kubernetes' runAsNonRoot believes no name.
USER ${WORKER_UID}

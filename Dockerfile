# The serving image of a stack, made by the stages that make a host: deploys/image.py runs inside.
#
#   rackpin image build STACK            prepares the context, serves the wheels, builds
#   rackpin image context STACK DIR      only prepares it; then any BuildKit builds it (docs/image.md)
#
# The context is mounted while the stages run, so neither the tool nor a wheel is in any layer.
# The address of the wheels comes as a secret: it isn't one, but it is no part of what is built, so
# another address must not build again.
# Whatever depends on the stack (ENV, labels) is written at the mark below when it is prepared.
ARG BASE
FROM ${BASE}

ARG STACK
ARG BASE_DIGEST
ARG PYTHON_PACKAGE=python3

SHELL ["/bin/sh", "-euc"]
RUN --mount=type=bind,target=/rackpin \
    --mount=type=secret,id=wheelhouse \
    --mount=type=tmpfs,target=/tmp \
    --mount=type=tmpfs,target=/var/lib/apt/lists \
    --mount=type=tmpfs,target=/var/cache/apt \
    export DEBIAN_FRONTEND=noninteractive; \
    if ! [ -x /rackpin/tool/pyinfra ]; then \
      echo "no prepared context: use the command rackpin image context STACK DIR" >&2; exit 1; \
    fi; \
    apt-get -q -o APT::Update::Error-Mode=any update; \
    apt-get -q -y --no-install-recommends install "${PYTHON_PACKAGE}"; \
    cd /tmp; \
    RACKPIN_STACK="${STACK}" RACKPIN_WHEELHOUSE="$(cat /run/secrets/wheelhouse)" \
      /rackpin/tool/pyinfra -y /rackpin/inventories/image.py /rackpin/deploys/image.py; \
    test -s /opt/rackpin/current/.complete; \
    if ldconfig -p | grep -E 'libcuda\.so|libnvidia-ml\.so'; then \
      echo "a driver library is in the image and would hide the host's (F100): take another base" >&2; \
      exit 1; \
    fi; \
    ldconfig -p | grep -q 'libibverbs\.so\.1'; \
    rm -rf /var/log/apt /var/log/dpkg.log /opt/rackpin/tools

# rackpin: ENV and LABEL of the stack
LABEL org.opencontainers.image.base.digest="${BASE_DIGEST}"

USER rackpin
WORKDIR /var/lib/rackpin/home
# The first completion of a large model may take half an hour from a cold start.
HEALTHCHECK --interval=30s --timeout=120s --start-period=30m --retries=3 \
  CMD ["/opt/rackpin/current/bin/python", "/usr/local/lib/rackpin/vllm-ready", "--once"]
ENTRYPOINT ["/opt/rackpin/current/bin/python", "-m", "vllm.entrypoints.openai.api_server"]

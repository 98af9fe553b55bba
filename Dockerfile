# The images of Headrace's stages; docs/deployment.md says how they are used.
#   docker build --target cpu-stage -t headrace-cpu-stage .      edge, preprocess, schedule, postprocess; simulated engine
#   docker build --target inference -t headrace-inference .      vLLM on CPUs, with the bundled model
#   docker build --target inference-gpu -t headrace-inference .  vLLM on CUDA
# Where the folder wheels/ has wheels (`make wheels`), only these are installed, and no package registry is asked.
# For the classic builder, too: it runs every stage above its target, so what is larger comes later.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
ARG INFERENCE_BASE=vllm/vllm-openai:v0.32.0

# ---- what all images for CPUs have: a user without rights, settings of a container, no tool to build anything with
FROM ${PYTHON_IMAGE} AS runtime
RUN groupadd --gid 10001 headrace \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp headrace \
 # A new volume takes its owner from the folder that it is mounted on.
 && for role in nats edge preprocess schedule inference postprocess operator observer system tenants; do \
        install -d -o headrace -g headrace -m 0700 /headrace/secrets /headrace/secrets/$role; done \
 && install -d -o headrace -g headrace -m 0700 /headrace/jetstream /headrace/jetstream/1 /headrace/jetstream/2 \
        /headrace/jetstream/3 /headrace/models
LABEL org.opencontainers.image.title="Headrace" \
      org.opencontainers.image.licenses="Apache-2.0"
# The root file system may be read-only: what is written goes to /tmp. Each port is the container's own.
ENV PATH=/headrace/package/bin:/headrace/venv/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HEADRACE_HEALTH_HOST=0.0.0.0 \
    HEADRACE_HEALTH_PORT=9464 \
    HEADRACE_EDGE_HOST=0.0.0.0
WORKDIR /tmp
EXPOSE 8000 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-S", "-c", \
    "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['HEADRACE_HEALTH_PORT'] + '/live')"]
ENTRYPOINT ["headrace"]
CMD ["--help"]

# ---- the dependencies, then Headrace itself in a folder of its own: a change of the code installs no package again
FROM ${PYTHON_IMAGE} AS cpu-stage-build
WORKDIR /headrace/requirements
COPY pyproject.toml constraints.txt install/overrides-cpu.txt install/image.sh wheel[s] ./
RUN sh image.sh dependencies
COPY README.md LICENSE pyproject.toml headrace.py /headrace/source/
COPY schemas /headrace/source/schemas
COPY broker /headrace/source/broker
COPY stages /headrace/source/stages
COPY load /headrace/source/load
RUN sh image.sh package

FROM runtime AS cpu-stage
LABEL org.opencontainers.image.description="Headrace's CPU stages: edge, preprocess, schedule, postprocess"
COPY --from=cpu-stage-build /headrace/venv /headrace/venv
COPY --from=cpu-stage-build /headrace/package /headrace/package
USER 10001:10001

# ---- vLLM for CPUs
FROM ${PYTHON_IMAGE} AS inference-build
RUN apt-get update -qq && apt-get install -qqy --no-install-recommends libnuma1
WORKDIR /headrace/requirements
COPY pyproject.toml constraints.txt install/overrides-cpu.txt install/image.sh wheel[s] ./
RUN sh image.sh dependencies cpu
COPY stages/inference/bundled_model.py ./
RUN sh image.sh model

FROM runtime AS inference
LABEL org.opencontainers.image.description="Headrace's inference stage: vLLM on CPUs, with SmolLM2-135M-Instruct"
RUN apt-get update -qq && apt-get install -qqy --no-install-recommends libnuma1 && rm -rf /var/lib/apt/lists/*
COPY --from=inference-build /headrace/venv /headrace/venv
COPY --from=cpu-stage-build /headrace/package /headrace/package
USER 10001:10001
CMD ["stage", "inference"]

# ---- vLLM for CUDA. Its own image brings Python, torch and vLLM along: only what these lack is added, in their versions.
# Not tried where this project is tested, which has no such image.
FROM ${INFERENCE_BASE} AS inference-gpu
LABEL org.opencontainers.image.title="Headrace" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="Headrace's inference stage: vLLM on CUDA"
WORKDIR /headrace/requirements
COPY pyproject.toml constraints.txt install/overrides-cpu.txt install/image.sh wheel[s] ./
RUN sh image.sh dependencies-beside
COPY --from=cpu-stage-build /headrace/package /headrace/package
ENV PYTHONPATH=/headrace/package \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HEADRACE_HEALTH_HOST=0.0.0.0 \
    HEADRACE_HEALTH_PORT=9464
WORKDIR /tmp
USER 10001:10001
EXPOSE 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 CMD ["python3", "-S", "-c", \
    "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['HEADRACE_HEALTH_PORT'] + '/live')"]
ENTRYPOINT ["python3", "-m", "stages.cli"]
CMD ["stage", "inference"]

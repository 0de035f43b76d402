# SkyPart with its default model, which runs in ONNX Runtime. Linted by the tests, not built by them: there is no Docker daemon.
#   docker build -t skypart:0.3.0 .
#   docker build --build-arg EXTRAS=[ray,milvus,s3] -t skypart:0.3.0-scale .      # for deploy/, see docs/scale.md
#   docker build --build-arg EXTRAS=[train] -t skypart:0.3.0-train .             # with the CPU build of PyTorch
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/maps:/data" skypart:0.3.0 serve town.skyindex --host 0.0.0.0
# The first stage builds the wheel, with the page's map library from npm; the second one installs it.
FROM python:3.11-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends npm \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY constraints.txt pyproject.toml setup.py MANIFEST.in README.md LICENSE NOTICE ./
COPY recipes recipes
COPY src src
RUN pip install --no-cache-dir -c constraints.txt build==1.6.1 && python -m build --wheel --outdir /dist .

FROM python:3.11-slim-bookworm
ARG EXTRAS=""
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 skypart
COPY --from=build /dist /dist
COPY constraints.txt /dist/
RUN pip install --no-cache-dir -c /dist/constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu \
        "$(echo /dist/*.whl)$EXTRAS" \
    && rm -rf /dist
ENV PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 SKYPART_CACHE=/home/skypart/cache
USER 10001
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["tini", "--", "skypart"]
CMD ["--help"]

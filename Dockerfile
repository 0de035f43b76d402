# SkyPart with the CPU build of PyTorch. Build: docker build -t skypart .
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
RUN useradd --create-home --uid 1000 skypart
COPY --from=build /dist /dist
COPY constraints.txt /dist/
RUN pip install --no-cache-dir torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu \
    && pip install --no-cache-dir -c /dist/constraints.txt /dist/*.whl \
    && rm -rf /dist
USER 1000
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["skypart"]
CMD ["--help"]

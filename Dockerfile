# One image for web, worker, beat and watch; docker-compose.yml says which command each runs.
# Bases with a tag, for building by hand; a release names them by digest (`make release`).
ARG NODE_IMAGE=node:22-slim
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${NODE_IMAGE} AS front-end
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts --omit=dev --omit=optional

FROM ${PYTHON_IMAGE} AS packages
# Files as Parquet need Arrow, 170 MB: --build-arg PARQUET=yes.
ARG PARQUET=no
COPY requirements.txt requirements-parquet.txt ./
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps \
    -r requirements.txt $(test "${PARQUET}" = no || echo "-r requirements-parquet.txt") \
    && /opt/venv/bin/pip uninstall --yes --quiet pip
# What packages bring and the portal never opens: their tests and headers, Arrow's network server,
# a second copy of Plotly for notebooks, and what botocore knows of services other than storage and
# sign-in. All others stay: Arrow loads them at its start.
RUN cd /opt/venv/lib/python3.*/site-packages \
    && find . -type d -name tests -prune -exec rm -rf {} + \
    && find botocore/data -mindepth 1 -maxdepth 1 -type d ! -name s3 ! -name "sso*" ! -name sts \
    ! -name signin -exec rm -rf {} + \
    && rm -rf plotly/labextension plotly/package_data/datasets plotly/package_data/*.js \
    pyarrow/include pyarrow/src pyarrow/libarrow_flight.so.* pyarrow/libarrow_python_flight.so* \
    pyarrow/_flight.*.so

FROM ${PYTHON_IMAGE}
ARG VERSION=unreleased
LABEL org.opencontainers.image.title=gpuportal org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.licenses=Apache-2.0
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin portal \
    && install -d -o portal -g portal /var/lib/gpuportal /var/lib/gpuportal-exports
WORKDIR /srv/gpuportal
COPY --from=packages /opt/venv /opt/venv
COPY --from=front-end /build/node_modules node_modules
COPY manage.py gunicorn.conf.py LICENSE ./
COPY scripts/healthcheck.py scripts/
COPY gpuportal gpuportal
COPY templates templates
COPY static static
COPY apps apps
# As production serves them: compressed, under names of their content. There are no secrets while
# an image is built; the key is one for this line alone, and nothing is signed with it.
RUN GPUPORTAL_ENV=production GPUPORTAL_ALLOWED_HOSTS=build \
    GPUPORTAL_SECRET_KEY="$(python -c 'import secrets; print(secrets.token_urlsafe(64))')" \
    python manage.py collectstatic --noinput --verbosity 0 \
    && python -m compileall -q apps gpuportal
USER 10001
EXPOSE 8000
CMD ["gunicorn", "gpuportal.wsgi", "--bind", "0.0.0.0:8000", "--workers", "2", "--threads", "4", \
     "--worker-tmp-dir", "/dev/shm", "--no-control-socket"]

# Two images, neither of which runs as root:
#   docker build -t seqclf .                        everything, ready for a GPU: PyTorch's wheels bring CUDA and cuDNN,
#                                                   the host brings the driver (docker run --gpus all)
#   docker build --target predict -t seqclf-predict .    prediction on CPUs, without PyTorch: packages of 480 MB
#
#   docker run --gpus all -v "$PWD":/work seqclf                                    trains on the built-in data
#   docker run -v "$PWD":/work seqclf seqclf.train data=files data.train=train.parquet data.label=label
#   docker run -v "$PWD":/work seqclf-predict bundle=runs/… input=new.parquet output=scores.parquet
FROM python:3.12-slim AS base

ENV PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

RUN useradd --create-home --uid 1000 seqclf && mkdir /work && chown seqclf /work
WORKDIR /work

FROM python:3.12-slim AS wheels
RUN pip install --no-cache-dir build
COPY pyproject.toml README.md LICENSE /src/
COPY conf /src/conf
COPY scripts/build_release.py /src/scripts/
COPY seqclf /src/seqclf
RUN python /src/scripts/build_release.py /wheels

FROM base AS predict
RUN --mount=from=wheels,source=/wheels,target=/wheels \
    pip install "$(echo /wheels/seqclf_runtime-*.whl)[cpu]"
USER 1000
ENTRYPOINT ["seqclf", "predict"]
CMD ["--help"]

FROM base AS train
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN --mount=from=wheels,source=/wheels,target=/wheels \
    pip install --find-links /wheels "$(echo /wheels/seqclf-[0-9]*.whl)[tensorboard,mlflow,sweep,joblib]"
USER 1000
ENTRYPOINT ["python", "-m"]
CMD ["seqclf.train"]

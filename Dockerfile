# GPU-ready: PyTorch's wheels bring CUDA and cuDNN, the host brings the driver (docker run --gpus all).
#   docker build -t seqclf .
#   docker run --gpus all -v "$PWD":/work seqclf                                    trains on the built-in data
#   docker run -v "$PWD":/work seqclf seqclf.train data=files data.train=train.parquet data.label=label
#   docker run -v "$PWD":/work seqclf seqclf.predict bundle=runs/… input=new.parquet output=scores.parquet
FROM python:3.12-slim

ENV PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

RUN useradd --create-home --uid 1000 seqclf && mkdir /work && chown seqclf /work

COPY pyproject.toml README.md LICENSE /src/
COPY conf /src/conf
COPY seqclf /src/seqclf
RUN pip install "/src[tensorboard,mlflow,sweep,joblib]" && rm -rf /src

USER 1000
WORKDIR /work
ENTRYPOINT ["python", "-m"]
CMD ["seqclf.train"]

# syntax=docker/dockerfile:1
# Two images from one file, each a single static binary on an empty base:
#   docker build --target operator -t metrics-backend/operator:dev .
#   docker build --target serving  -t metrics-backend/serving:dev  .
# `make release` makes the same images for amd64 and arm64 without a container engine.
FROM --platform=$BUILDPLATFORM golang:1.27.4 AS build
ARG TARGETOS=linux
ARG TARGETARCH=amd64
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY api ./api
COPY cmd ./cmd
COPY config/crd ./config/crd
COPY controllers ./controllers
COPY internal ./internal
COPY serving ./serving
COPY hack/ldflags.sh ./hack/ldflags.sh
# Where the sources come from, for /version; the context holds no repository.
ARG GIT_COMMIT=
ARG GIT_TREE_STATE=
ARG BUILD_DATE=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "$(VERSION=$VERSION sh hack/ldflags.sh)" -o /out/ ./cmd/operator ./cmd/serving

# The user is numeric so that the kubelet can check runAsNonRoot.
FROM scratch AS operator
COPY --from=build /out/operator /operator
USER 65532:65532
ENTRYPOINT ["/operator"]

FROM scratch AS serving
COPY --from=build /out/serving /serving
USER 65532:65532
ENTRYPOINT ["/serving"]

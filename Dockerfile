# Slipway's server. This file is not built in CI, and nobody has tried it on
# every platform: read it before you rely on it.
#
#   docker build --tag slipway .
#   docker run --publish 8080:8080 --volume slipway:/var/lib/slipway \
#     --security-opt seccomp=unconfined --security-opt systempaths=unconfined \
#     --env SLIPWAY_GITHUB_APP_ID --env SLIPWAY_GITHUB_SLUG --env SLIPWAY_GITHUB_PRIVATE_KEY \
#     --env SLIPWAY_GITHUB_WEBHOOK_SECRETS --env ANTHROPIC_API_KEY slipway
#
# The two security options let bubblewrap make the namespaces in which agents
# run. Where they are not allowed, set SLIPWAY_SANDBOX=landlock.
#
# Builds need the toolchains of your repositories: derive an image that has them.

FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -o /slipway ./cmd/slipway

FROM node:22.21.1-bookworm-slim AS claude
ARG TARGETARCH=amd64
ARG CLAUDE_VERSION=2.1.329
WORKDIR /claude
RUN platform=$(echo "$TARGETARCH" | sed s/amd64/x64/) \
    && npm pack --silent "@anthropic-ai/claude-code-linux-$platform@$CLAUDE_VERSION" \
    && tar -xzf ./*.tgz --strip-components=1 package/claude

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap ca-certificates git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home slipway \
    && install --directory --owner slipway --mode 0700 /var/lib/slipway
COPY --from=build /slipway /usr/local/bin/slipway
COPY --from=claude /claude/claude /usr/local/bin/claude
USER slipway
ENV SLIPWAY_STATE_DIR=/var/lib/slipway SLIPWAY_LISTEN=0.0.0.0:8080
VOLUME /var/lib/slipway
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/slipway"]
CMD ["serve"]

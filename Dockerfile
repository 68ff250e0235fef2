# Slipway's server, from what make image-inputs has put into image/: nothing is
# fetched here, and each piece was checked.
#
#   make image-inputs
#   docker build --network=none --tag slipway .
#   docker run --publish 8080:8080 --volume slipway:/var/lib/slipway \
#     --security-opt seccomp=unconfined --security-opt systempaths=unconfined \
#     --env SLIPWAY_GITHUB_APP_ID --env SLIPWAY_GITHUB_SLUG --env SLIPWAY_GITHUB_PRIVATE_KEY \
#     --env SLIPWAY_GITHUB_WEBHOOK_SECRETS --env ANTHROPIC_API_KEY slipway
#
# The two security options let bubblewrap make the namespaces in which agents
# run. Where they are not allowed, set SLIPWAY_SANDBOX=landlock.
#
# The base is pinned by its version. To pin it by content too, which this file
# does not know, look the digest up where you trust it:
#   --build-arg BASE=debian:12.12-slim@sha256:…
#
# Builds need the toolchains of your repositories: derive an image that has them.
ARG BASE=debian:12.12-slim
FROM ${BASE}
RUN --mount=type=bind,source=image/debs,target=/debs \
    DEBIAN_FRONTEND=noninteractive dpkg --install /debs/*.deb \
    && useradd --uid 10001 --create-home slipway \
    && install --directory --owner slipway --mode 0700 /var/lib/slipway
COPY --chmod=0755 image/slipway image/claude /usr/local/bin/
USER 10001
ENV SLIPWAY_STATE_DIR=/var/lib/slipway SLIPWAY_LISTEN=0.0.0.0:8080
VOLUME /var/lib/slipway
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/slipway"]
CMD ["serve"]

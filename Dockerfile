# docker build -t flowgate .
# install -Dm644 examples/plain.yaml conf/gateway.yaml    # and name your service in it
# docker run --rm -p 8080:8080 -v "$PWD/conf:/etc/flowgate:ro" flowgate
#
# The gateway.yaml at the top of the repository does not start so: it listens on the container's loopback, and has a
# development certificate made where nothing can be written. For TLS, mount certificates that user 65532 may read,
# or for `acme` a volume that it may write: -v flowgate:/var/lib/flowgate (docs/certificates.md).
#
# Mount the folder of gateway.yaml, not the file: editors and ConfigMaps replace a file, and a mounted file stays the old
# one. A container's loopback is its own: give `admin: { listen: 0.0.0.0:9901, token_file: FILE }` if something outside asks for health or
# metrics, and publish that port only inside.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN packaging/build program

# The same glibc as the build, no shell, uid 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/package/flowgate /usr/local/bin/flowgate
WORKDIR /etc/flowgate
EXPOSE 8080 8443
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/flowgate"]
CMD ["run", "-c", "/etc/flowgate/gateway.yaml"]

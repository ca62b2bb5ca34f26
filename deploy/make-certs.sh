#!/bin/sh
# Makes what deploy/compose.yaml needs: an authority and a secret for the cluster, a certificate for each node, a token
# for the HTTP API, data folders, and .env with the user that all of it belongs to.
#
# Uses the binary that $TIDEGATE names, else the image `tidegate` (built when missing). Leaves alone what is there:
# remove deploy/run to begin anew.
set -eu
umask 077

cd "$(dirname "$0")"
nodes="eu-1 us-1 ap-1"

# The nodes run as whoever runs this, who then can read their keys; for root, as the image's own user.
owner="$(id -u):$(id -g)"
[ "$(id -u)" != 0 ] || owner=65532:65532

tidegate() {
    if [ -n "${TIDEGATE:-}" ]; then
        "$TIDEGATE" "$@"
    else
        docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD/run:$PWD/run" tidegate "$@"
    fi
}

if [ -e run ]; then
    echo "deploy/run is there already: nothing made. Remove it to begin anew." >&2
    exit 1
fi
if [ -z "${TIDEGATE:-}" ] && ! docker image inspect tidegate >/dev/null 2>&1; then
    docker build --file Dockerfile --tag tidegate ..
fi

mkdir -p run/authority
tidegate cert ca --out "$PWD/run/authority"
token="$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')"
for node in $nodes; do
    mkdir -p "run/$node/tls" "run/$node/data"
    tidegate cert node "$node" --ca "$PWD/run/authority" --out "$PWD/run/$node/tls"
    # A node gets the authority's certificate and the cluster's secret, never the authority's key.
    cp run/authority/ca.pem run/authority/cluster.secret "run/$node/tls/"
    echo "$token" >"run/$node/tls/token"
    [ "$owner" = "$(id -u):$(id -g)" ] || chown -R "$owner" "run/$node"
done
echo "TIDEGATE_USER=$owner" >.env

echo "made deploy/run and deploy/.env; keep run/authority/ca.key away from the nodes"
echo "next: docker compose -f deploy/compose.yaml up --build"

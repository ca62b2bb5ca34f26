#!/bin/sh
# Reserve an estimate, then settle: reserve_and_settle.sh URL USER ESTIMATE ACTUAL
# With TIDEGATE_TOKEN set, sends it. Exit code 3: denied.
set -eu
url=$1 user=$2 estimate=$3 actual=$4

# ask OPERATION COST: puts the answer into $answer and its status into $status.
ask() {
    answer=$(curl -sS -w '\n%{http_code}' -H 'Content-Type: application/json' \
        ${TIDEGATE_TOKEN:+-H "Authorization: Bearer $TIDEGATE_TOKEN"} \
        -d "{\"limit\":\"model/tokens\",\"key\":\"$user\",\"cost\":$2}" "$url/v1/$1")
    status=${answer##*
}
}

# field NAME: the first number of that name.
field() {
    printf '%s' "$answer" | sed -n "s/.*\"results\":\[{[^]]*\"$1\":\([0-9]*\).*/\1/p"
}

ask check "$estimate"
case $status in
    200) ;;
    429)
        retry=$(printf '%s' "$answer" | sed -n 's/.*"allowed":false,"retry_after_ms":\([0-9]*\).*/\1/p')
        if [ -n "$retry" ]; then echo "denied: try again in $retry ms"; else echo "denied: never"; fi
        exit 3
        ;;
    *) echo "$answer" >&2; exit 1 ;;
esac

# Here the model is asked, and what it took is known.

if [ "$actual" -lt "$estimate" ]; then
    ask refund $((estimate - actual))
elif [ "$actual" -gt "$estimate" ]; then
    ask debit $((actual - estimate))
fi
[ "$status" = 200 ] || { echo "$answer" >&2; exit 1; }
echo "settled: $(field remaining) of $(field quota) tokens remain"

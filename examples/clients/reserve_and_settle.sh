#!/bin/sh
# Reserve an estimate, then settle: reserve_and_settle.sh URL USER ESTIMATE ACTUAL
# With TIDEGATE_TOKEN set, sends it. Exit code 3: denied.
set -eu
if [ $# -ne 4 ] || [ -z "$3" ] || [ -z "$4" ]; then echo "URL USER ESTIMATE ACTUAL" >&2; exit 2; fi
case $3$4 in *[!0-9]*) echo "ESTIMATE and ACTUAL are whole numbers" >&2; exit 2 ;; esac
url=$1 estimate=$3 actual=$4
user=$(printf '%s' "$2" | sed 's/[\\"]/\\&/g')

# ask OPERATION COST: puts the answer into $answer and its status into $status.
ask() {
    # The token goes in by standard input: arguments are for all to see.
    answer=$(printf '%s' "${TIDEGATE_TOKEN:+header = \"Authorization: Bearer $TIDEGATE_TOKEN\"}" |
        curl -sS --config - --max-time 5 -w '\n%{http_code}' -H 'Content-Type: application/json' \
            -d "{\"limit\":\"model/tokens\",\"key\":\"$user\",\"cost\":$2}" "$url/v1/$1") || exit 1
    status=$(printf '%s' "$answer" | tail -n 1)
    answer=$(printf '%s' "$answer" | sed '$d')
}

fail() {
    printf '%s: %s\n' "$status" "$answer" >&2
    exit 1
}

ask 'check?denied=429' "$estimate"
case $status in
    200) ;;
    429)
        retry=$(printf '%s' "$answer" | sed -n 's/.*"allowed":false,"retry_after_ms":\([0-9]*\),"delay_ms":[0-9]*,"results".*/\1/p')
        if [ -n "$retry" ]; then echo "denied: try again in $retry ms"; else echo "denied: never"; fi
        exit 3
        ;;
    *) fail ;;
esac

# Here the model is asked, and what it took is known.

if [ "$actual" -lt "$estimate" ]; then
    ask refund $((estimate - actual))
elif [ "$actual" -gt "$estimate" ]; then
    ask debit $((actual - estimate))
fi
[ "$status" = 200 ] || fail
remain=$(printf '%s' "$answer" | sed -n 's/.*"quota":\([0-9]*\),"remaining":\([0-9]*\).*/\2 of \1/p')
[ -n "$remain" ] || fail
echo "settled: $remain tokens remain"

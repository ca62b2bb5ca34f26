#!/usr/bin/env python3
"""Reserve an estimate, then settle: reserve_and_settle.py URL USER ESTIMATE ACTUAL

With TIDEGATE_TOKEN set, sends it. Exit code 3: denied. Python's own library is enough.
"""

import json
import os
import sys
import urllib.error
import urllib.request


def ask(url, operation, user, cost):
    """The answer of the node; a denial (429) is one too."""
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("TIDEGATE_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    body = json.dumps({"limit": "model/tokens", "key": user, "cost": cost}).encode()
    request = urllib.request.Request(f"{url}/v1/{operation}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        answer = error.read().decode(errors="replace")
        if error.code == 429:
            return json.loads(answer)
        sys.exit(f"{error.code}: {answer}")


def main():
    url, user, estimate, actual = sys.argv[1:]
    estimate, actual = int(estimate), int(actual)
    if min(estimate, actual) < 0:
        sys.exit("ESTIMATE and ACTUAL are whole numbers")
    answer = ask(url, "check?denied=429", user, estimate)
    if not answer["allowed"]:
        retry = answer["retry_after_ms"]
        print("denied: never" if retry is None else f"denied: try again in {retry} ms")
        sys.exit(3)

    # Here the model is asked, and what it took is known.

    if actual < estimate:
        answer = ask(url, "refund", user, estimate - actual)
    elif actual > estimate:
        answer = ask(url, "debit", user, actual - estimate)
    result = answer["results"][0]
    print(f"settled: {result['remaining']} of {result['quota']} tokens remain")


if __name__ == "__main__":
    main()

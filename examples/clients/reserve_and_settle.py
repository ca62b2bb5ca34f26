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
        answer = json.load(error)
        if error.code == 429:
            return answer
        sys.exit(f"{error.code}: {answer['detail']}")


def main():
    url, user = sys.argv[1:3]
    estimate, actual = map(int, sys.argv[3:5])
    answer = ask(url, "check", user, estimate)
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


main()

// Reserve an estimate, then settle: node reserve_and_settle.mjs URL USER ESTIMATE ACTUAL
// With TIDEGATE_TOKEN set, sends it. Exit code 3: denied. Node 18 or later, nothing to install.

const [url, user, ...tokens] = process.argv.slice(2);
const [estimate, actual] = tokens.map(Number);
if (tokens.length !== 2 || !tokens.every((word) => /^[0-9]+$/.test(word))) {
  console.error("URL USER ESTIMATE ACTUAL");
  process.exit(2);
}

/** The answer of the node; a denial (429) is one too. */
async function ask(operation, cost) {
  const token = process.env.TIDEGATE_TOKEN;
  const response = await fetch(`${url}/v1/${operation}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) },
    body: JSON.stringify({ limit: "model/tokens", key: user, cost }),
    signal: AbortSignal.timeout(5000),
  });
  if (response.ok || response.status === 429) return response.json();
  throw new Error(`${response.status}: ${await response.text()}`);
}

let answer = await ask("check?denied=429", estimate);
if (answer.allowed) {
  // Here the model is asked, and what it took is known.

  if (actual < estimate) answer = await ask("refund", estimate - actual);
  else if (actual > estimate) answer = await ask("debit", actual - estimate);
  const { remaining, quota } = answer.results[0];
  console.log(`settled: ${remaining} of ${quota} tokens remain`);
} else {
  const retry = answer.retry_after_ms;
  console.log(retry === null ? "denied: never" : `denied: try again in ${retry} ms`);
  process.exitCode = 3;
}

//! What the document says of each operation.

use serde_json::{Map, Value, json};

use super::super::decide::needs_token;
use super::super::{MAX_BATCH, MAX_HELD, MAX_HOLD};
use crate::engine::Op;

/// What may go wrong, by status, in the order of the document.
const PROBLEMS: [(u16, &str); 11] = [
    (400, "It cannot be read; the detail names the field or parameter."),
    (401, "The bearer token is missing or wrong."),
    (404, "No limit has this name."),
    (408, "The body did not arrive in time."),
    (409, "A configuration file defines this limit: change it there."),
    (412, "The limit is not as `If-Match` or `If-None-Match` has it."),
    (413, "The body is larger than `http.max_body`."),
    (415, "The body is not `application/json`."),
    (429, "Denied."),
    (503, "The node cannot answer now."),
    (507, "There is no room for it."),
];

/// What may go wrong with any body.
const OF_BODIES: [u16; 4] = [400, 408, 413, 415];

/// An operation in the making.
struct Told(Map<String, Value>);

impl Told {
    fn new(id: &str, tag: &str, summary: &str) -> Self {
        let Value::Object(told) = json!({
            "operationId": id, "tags": [tag], "summary": summary, "parameters": [], "responses": {},
        }) else {
            unreachable!("it is written as an object")
        };
        // A handler may fail in any.
        Self(told).problems(&[503])
    }

    fn describe(mut self, text: &str) -> Self {
        self.0.insert("description".into(), text.into());
        self
    }

    fn parameters<const N: usize>(mut self, parameters: [Value; N]) -> Self {
        self.0.insert("parameters".into(), Value::Array(parameters.into()));
        self
    }

    /// The JSON body that it needs.
    fn body(mut self, schema: &str, examples: Value) -> Self {
        let content = json!({ "application/json": { "schema": reference(schema), "examples": examples } });
        self.0.insert("requestBody".into(), json!({ "required": true, "content": content }));
        self.problems(&OF_BODIES)
    }

    fn token(mut self) -> Self {
        self.0.insert("security".into(), json!([{ "token": [] }, {}]));
        self.problems(&[401])
    }

    fn answer(self, status: &str, answer: Value) -> Self {
        let mut told = self;
        let responses = told.0.get_mut("responses").and_then(Value::as_object_mut).expect("new puts an object there");
        responses.insert(status.to_owned(), answer);
        told
    }

    fn problems(self, statuses: &[u16]) -> Self {
        statuses.iter().fold(self, |told, status| {
            let (_, text) = PROBLEMS.iter().find(|(known, _)| known == status).expect("a status of the table");
            let mut answer = response(text, "application/problem+json", "Problem");
            if *status == 401 {
                let scheme = json!({ "schema": { "type": "string" }, "description": "Which token." });
                answer["headers"] = json!({ "WWW-Authenticate": scheme });
            }
            told.answer(&status.to_string(), answer)
        })
    }

    fn end(self) -> Value {
        Value::Object(self.0)
    }
}

pub(super) fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn response(description: &str, media_type: &str, schema: &str) -> Value {
    json!({ "description": description, "content": { media_type: { "schema": reference(schema) } } })
}

fn json_response(description: &str, schema: &str) -> Value {
    response(description, "application/json", schema)
}

/// An answer with headers.
fn with_headers(mut response: Value, headers: Value) -> Value {
    response["headers"] = headers;
    response
}

fn query(name: &str, required: bool, schema: Value, description: &str) -> Value {
    json!({ "name": name, "in": "query", "required": required, "schema": schema, "description": description })
}

fn flag(name: &str, description: &str) -> Value {
    query(name, false, json!({ "type": "boolean", "default": false }), description)
}

fn explain() -> Value {
    flag("explain", "Each result also tells the definition in force for its key, and who used what.")
}

/// The headers that tell of limits, each when a limit that is not in shadow mode had a say.
fn rate_limit_headers() -> Value {
    let text = |description: &str| json!({ "schema": { "type": "string" }, "description": description });
    let number =
        |description: &str| json!({ "schema": { "type": "integer", "minimum": 0 }, "description": description });
    json!({
        "RateLimit-Policy": text("Each limit with its quota `q` and window `w` in seconds (draft-ietf-httpapi-ratelimit-headers)."),
        "RateLimit": text("Each limit with what remains, `r`, and the seconds `t` until there is more."),
        "X-RateLimit-Limit": number("The quota of the limit that speaks for the answer."),
        "X-RateLimit-Remaining": number("What remains of it."),
        "X-RateLimit-Reset": number("Seconds until all of it is there again."),
    })
}

fn denial_headers() -> Value {
    let mut headers = rate_limit_headers();
    let text = "Seconds until the same request is admitted; not there when it never is.";
    headers["Retry-After"] = json!({ "schema": { "type": "integer", "minimum": 0 }, "description": text });
    headers
}

fn asks() -> Value {
    json!({
        "one": { "summary": "One limit", "value": { "limit": "per-user", "key": "ann", "cost": 1 } },
        "several": {
            "summary": "Several, all or nothing",
            "value": { "checks": [{ "limit": "per-user", "key": "ann" }, { "limit": "api", "key": "ann", "cost": 5 }] },
        },
        "described": {
            "summary": "Whatever limits are for it",
            "value": { "descriptors": { "ip": "203.0.113.7", "user": "ann", "route": "POST /login" } },
        },
    })
}

/// `/v1/check` and the like.
pub(in crate::api) fn ask(op: Op) -> Value {
    let (summary, text) = match op {
        Op::Check => ("Decide, and take the cost", "All limits admit, or nothing is taken."),
        Op::Peek => ("Decide as a check would", "Nothing is taken."),
        Op::Debit => ("Take the cost without deciding", "Also beyond the limit: then the key waits until it is paid."),
        Op::Refund => ("Give back what was taken too much", "Up to what counts of the key now, newest first."),
        Op::Reset => ("Give the full allowance back", "In every region. Costs are ignored."),
    };
    let told = Told::new(op.as_str(), "decisions", summary).describe(text).body("Request", asks()).problems(&[404]);
    // What takes without deciding is never denied.
    let headers = if needs_token(op) { rate_limit_headers() } else { denial_headers() };
    let answer = with_headers(json_response("The answer.", "Answer"), headers);
    match op {
        Op::Check => check(told, answer),
        _ if needs_token(op) => told.token().parameters([explain()]).answer("200", answer).end(),
        _ => told.parameters([explain()]).answer("200", answer).end(),
    }
}

/// A denial has a status of its own, which may be any that blames the client.
fn check(told: Told, mut answer: Value) -> Value {
    let denied = json!({ "type": "integer", "anyOf": [{ "const": 200 }, { "minimum": 400, "maximum": 499 }] });
    let wait = format!(
        "Hold an admitted answer until its turn in a queue has come: at most {} s, and at most {MAX_HELD} at once.",
        MAX_HOLD.as_secs()
    );
    let of_denial = |description: &str, schema: Value| {
        let content = json!({ "application/problem+json": { "schema": schema } });
        json!({ "description": description, "content": content, "headers": denial_headers() })
    };
    let either = json!({ "anyOf": [reference("Denial"), reference("Problem")] });
    // `denied=200`.
    answer["content"]["application/problem+json"] = json!({ "schema": reference("Denial") });
    let mut told = told.answer("200", answer).parameters([
        query("denied", false, denied, "The status of a denial, instead of the node's `http.denied_status`."),
        explain(),
        flag("wait", &wait),
    ]);
    // Those that `denied` may choose.
    for (status, text) in PROBLEMS.iter().filter(|(status, _)| [400, 404, 408, 413, 415].contains(status)) {
        told = told.answer(&status.to_string(), of_denial(text, either.clone()));
    }
    told.answer("429", of_denial("Denied.", reference("Denial")))
        .answer("4XX", of_denial("Denied, under the status that was asked for.", reference("Denial")))
        .end()
}

/// `/v1/batch`.
pub(in crate::api) fn batch() -> Value {
    let example = json!({ "requests": [
        { "limit": "per-user", "key": "ann" },
        { "op": "refund", "limit": "model/tokens", "key": "ann", "cost": 120 },
    ] });
    let summary = format!("Up to {MAX_BATCH} requests, each decided by itself, in order");
    Told::new("batch", "decisions", &summary)
        .describe(
            "Debits, refunds and resets need the token. One that is malformed fails all, before anything is taken.",
        )
        .parameters([explain()])
        .body("Batch", json!({ "two": { "value": example } }))
        .token()
        .answer(
            "200",
            json_response("An answer for each; a problem for one that names no limit there is.", "BatchAnswer"),
        )
        .end()
}

/// `GET /v1/usage`.
pub(in crate::api) fn usage_by_query() -> Value {
    Told::new("usageByQuery", "decisions", "Who used what of a key")
        .describe("Keys in URLs end in access logs: POST keeps them out.")
        .parameters([
            query("limit", true, super::schemas::limit(), "The limit."),
            query("key", true, reference("Key"), "The key."),
        ])
        .answer("200", json_response("What is known.", "Usage"))
        .problems(&[400, 404])
        .end()
}

/// `POST /v1/usage`.
pub(in crate::api) fn usage_by_body() -> Value {
    Told::new("usageByBody", "decisions", "Who used what of a key")
        .body("UsageRequest", json!({ "one": { "value": { "limit": "per-user", "key": "ann" } } }))
        .answer("200", json_response("What is known.", "Usage"))
        .problems(&[404])
        .end()
}

/// `GET /v1/limits`.
pub(in crate::api) fn all_limits() -> Value {
    Told::new("limits", "limits", "All limits in force")
        .answer("200", json_response("Each as it would be written, where it is from, and its tag.", "Limits"))
        .problems(&[400])
        .end()
}

fn etag() -> Value {
    json!({ "schema": { "type": "string" }, "description": "Of the definition, for `If-Match`; the same on every node." })
}

fn named() -> Value {
    let text = "The limit. A slash in it may be written as it is, or `%2F`.";
    json!({ "name": "name", "in": "path", "required": true, "schema": reference("LimitName"), "description": text })
}

fn preconditions() -> [Value; 2] {
    let header = |name: &str, description: &str| {
        let schema = json!({ "type": "string", "pattern": "^(\\*|\"[0-9a-f]{16}\"(, \"[0-9a-f]{16}\")*)$" });
        json!({ "name": name, "in": "header", "required": false, "schema": schema, "description": description })
    };
    [
        header("If-Match", "Only if it is still as one of these tags, or (`*`) there at all."),
        header("If-None-Match", "Only if it is as none of these tags, or (`*`) not there."),
    ]
}

/// `GET /v1/limits/{name}`.
pub(in crate::api) fn one_limit() -> Value {
    let source = json!({ "schema": { "enum": ["file", "api"] }, "description": "Who defines it." });
    let answer = json_response("As it would be written.", "Limit");
    Told::new("limit", "limits", "One limit")
        .parameters([named()])
        .answer("200", with_headers(answer, json!({ "ETag": etag(), "Tidegate-Source": source })))
        .problems(&[400, 404])
        .end()
}

/// `PUT /v1/limits/{name}`.
pub(in crate::api) fn put_limit() -> Value {
    let done = |text: &str| with_headers(json_response(text, "Limit"), json!({ "ETag": etag() }));
    let example = json!({ "limit": 5000, "window": "1h", "key": "{user}", "when": { "plan": "paid" } });
    let [matches, none_matches] = preconditions();
    Told::new("putLimit", "limits", "Make or change a limit, in the whole cluster")
        .describe("The whole definition: what it leaves out is at its default. What was used stays used.")
        .parameters([named(), matches, none_matches])
        .body("WrittenLimit", json!({ "one": { "value": example } }))
        .token()
        .answer("200", done("It was changed."))
        .answer("201", done("It was made."))
        .problems(&[409, 412, 507])
        .end()
}

/// `DELETE /v1/limits/{name}`.
pub(in crate::api) fn delete_limit() -> Value {
    let [matches, none_matches] = preconditions();
    Told::new("deleteLimit", "limits", "Delete a limit, in the whole cluster")
        .parameters([named(), matches, none_matches])
        .token()
        .answer("204", json!({ "description": "It is deleted." }))
        .problems(&[400, 404, 409, 412, 507])
        .end()
}

/// `GET /v1/cluster`.
pub(in crate::api) fn cluster() -> Value {
    Told::new("cluster", "node", "The cluster as this node sees it")
        .answer(
            "200",
            json_response("Members, this node first, and limits that are not the same everywhere.", "Cluster"),
        )
        .problems(&[400])
        .end()
}

/// `GET /healthz`.
pub(in crate::api) fn healthz() -> Value {
    Told::new("health", "node", "Whether all is well")
        .describe("Always 200: a degraded node still decides.")
        .answer("200", json_response("`ok`, or `degraded` with reasons.", "Health"))
        .problems(&[400])
        .end()
}

/// `GET /readyz`.
pub(in crate::api) fn readyz() -> Value {
    Told::new("ready", "node", "Whether to send requests here")
        .answer("200", json_response("It is ready.", "Health"))
        .problems(&[400])
        .end()
}

/// `GET /metrics`.
pub(in crate::api) fn metrics() -> Value {
    let text = json!({ "text/plain; version=0.0.4; charset=utf-8": { "schema": { "type": "string" } } });
    Told::new("metrics", "node", "Figures for Prometheus")
        .answer("200", json!({ "description": "The text format of Prometheus.", "content": text }))
        .problems(&[400])
        .end()
}

/// `GET /openapi.json`.
pub(in crate::api) fn openapi() -> Value {
    let content = json!({ "application/json": { "schema": { "type": "object" } } });
    Told::new("openapi", "node", "This document")
        .answer("200", json!({ "description": "OpenAPI 3.1.", "content": content }))
        .problems(&[400])
        .end()
}

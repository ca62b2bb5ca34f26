//! The shapes of requests and answers. Bounds are the constants in force; tests hold what is answered against this.

use serde_json::{Map, Value, json};

use super::definition;
use super::operations::reference;
use crate::api::MAX_BATCH;
use crate::api::document::QUOTA_EXCEEDED;
use crate::engine::{MAX_ASKS, MAX_KEY_BYTES, Op, Reason};
use crate::limits::{FIELD_PATTERN, MAX_DESCRIPTORS, MAX_VALUE_BYTES};

/// An object that has these fields and no others, all of them but the `optional` ones.
pub(super) fn object(description: &str, fields: Value, optional: &[&str]) -> Value {
    let names = fields.as_object().into_iter().flat_map(Map::keys);
    let required: Vec<_> = names.filter(|name| !optional.contains(&name.as_str())).collect();
    json!({
        "type": "object", "description": description, "required": required, "properties": fields,
        "additionalProperties": false,
    })
}

/// A schema with a word on it.
pub(super) fn told(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

fn whole() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn flag() -> Value {
    json!({ "type": "boolean" })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// Whole, or null.
fn maybe_whole(description: &str) -> Value {
    json!({ "type": ["integer", "null"], "minimum": 0, "description": description })
}

/// All of them, by name.
pub(super) fn all() -> Value {
    let mut all = definition::all();
    all.extend(requests());
    all.extend(answers());
    all.extend(of_keys());
    all.extend(of_the_node());
    Value::Object(all)
}

fn cost() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX, "default": 1, "description": "Tokens." })
}

/// A limit as a request names it: a name that no limit can have is one that none has.
pub(super) fn limit() -> Value {
    told(text(), "The name of a limit; 404 when there is none.")
}

/// The forms of a request, with what else stands in each.
fn forms(more: &Value) -> [Value; 3] {
    let named = json!({ "limit": limit(), "key": reference("Key"), "cost": cost() });
    let check = object("A limit and a key of it.", named.clone(), &["cost"]);
    let checks = json!({ "type": "array", "items": check, "minItems": 1, "maxItems": MAX_ASKS });
    let described = json!({ "descriptors": reference("Descriptors"), "cost": cost() });
    let form = |description: &str, mut fields: Value| {
        for (name, schema) in more.as_object().into_iter().flatten() {
            fields[name] = schema.clone();
        }
        object(description, fields, &["cost", "op"])
    };
    [
        form("One limit.", named),
        form("Several limits, all or nothing.", json!({ "checks": checks })),
        form("What the request is: every limit whose conditions hold counts it.", described),
    ]
}

fn requests() -> Map<String, Value> {
    let op =
        json!({ "enum": Op::ALL.map(Op::as_str), "default": Op::Check.as_str(), "description": "What is to be done." });
    let requests = json!({
        "type": "array", "minItems": 1, "maxItems": MAX_BATCH, "items": { "oneOf": forms(&json!({ "op": op })) },
    });
    fields(json!({
        "Key": {
            "type": "string", "minLength": 1, "maxLength": MAX_KEY_BYTES,
            "description": format!("Who is limited: 1 to {MAX_KEY_BYTES} bytes of UTF-8."),
        },
        "Descriptors": {
            "type": "object", "maxProperties": MAX_DESCRIPTORS,
            "propertyNames": { "pattern": FIELD_PATTERN },
            "additionalProperties": { "type": "string", "maxLength": MAX_VALUE_BYTES },
            "description": format!("Up to {MAX_DESCRIPTORS} fields; an empty value says as little as none."),
        },
        "Request": { "oneOf": forms(&json!({})) },
        "Batch": object("Requests that are decided one after the other.", json!({ "requests": requests }), &[]),
        "UsageRequest": object("Which key.", json!({ "limit": limit(), "key": reference("Key") }), &[]),
    }))
}

/// The fields of an answer, also of one that is a problem document.
fn of_answer() -> Map<String, Value> {
    fields(json!({
        "allowed": told(flag(), "Whether every limit that is not in shadow mode admitted."),
        "retry_after_ms": maybe_whole("When the same request is admitted; null: it was, or it never is."),
        "delay_ms": told(whole(), "How long to wait before acting on an admission (leaky_bucket with a queue)."),
        "results": told(list(reference("Result")), "One for each limit that had a say, in the order of the request."),
    }))
}

fn answers() -> Map<String, Value> {
    let mut denial = fields(json!({
        "type": { "const": QUOTA_EXCEEDED },
        "title": text(),
        "status": { "type": "integer", "anyOf": [{ "const": 200 }, { "minimum": 400, "maximum": 499 }] },
        "violated-policies": told(list(reference("LimitName")), "The limits that denied."),
    }));
    denial.extend(of_answer());
    let each = json!({ "anyOf": [reference("Answer"), reference("Problem")] });
    let problem = json!({
        "type": { "const": "about:blank" },
        "title": text(),
        "status": { "type": "integer", "minimum": 400, "maximum": 599 },
        "detail": told(text(), "What was wrong, in which field, and what would be right."),
    });
    let denial = object("A check that is denied (draft-ietf-httpapi-ratelimit-headers).", Value::Object(denial), &[]);
    fields(json!({
        "Answer": object("What was decided.", Value::Object(of_answer()), &[]),
        "Denial": denial,
        "Result": result(),
        "Explained": object("What it was decided from.", json!({
            "definition": told(reference("Limit"), "The definition in force for this key."),
            "used": told(whole(), "Tokens used."),
            "replicas": list(reference("Replica")),
        }), &[]),
        "BatchAnswer": object("Answers in the order of the requests.", json!({ "answers": list(each) }), &[]),
        "Problem": object("What could not be served, and why (RFC 9457).", problem, &[]),
    }))
}

fn result() -> Value {
    let reasons: Vec<Value> = Reason::ALL.iter().map(|reason| reason.as_str().into()).chain([Value::Null]).collect();
    let fields = json!({
        "limit": reference("LimitName"),
        "key": told(text(), "The key it was counted under."),
        "allowed": told(flag(), "Whether this limit admitted."),
        "would_deny": told(flag(), "Only of a limit in shadow mode: whether it would have denied."),
        "reason": { "enum": reasons, "description": "Why it did not admit." },
        "quota": told(whole(), "The most tokens at once."),
        "remaining": told(whole(), "How many requests of cost 1 would be admitted now."),
        "retry_after_ms": maybe_whole("When this limit admits the same request; null: it did, or it never does."),
        "reset_after_ms": told(whole(), "When nothing counts any more."),
        "delay_ms": told(whole(), "How long to wait for the turn in this limit's queue."),
        "explain": told(reference("Explained"), "Only with `explain=true`."),
    });
    object("One limit's own answer.", fields, &["would_deny", "explain"])
}

fn of_keys() -> Map<String, Value> {
    let replica = json!({
        "node": text(),
        "region": { "type": ["string", "null"], "description": "Null: this node does not know it." },
        "generation": told(whole(), "Which life of the node."),
        "used": told(whole(), "Tokens it counted."),
        "stale_ms": maybe_whole("How old the newest complete knowledge of it is; null: of a former life."),
    });
    let usage = json!({
        "limit": reference("LimitName"),
        "key": told(text(), "The key it is counted under."),
        "used": told(whole(), "Tokens used."),
        "remaining": told(whole(), "How many requests of cost 1 would be admitted now."),
        "replicas": list(reference("Replica")),
    });
    fields(json!({
        "Replica": object("What one life of a node counted.", replica, &[]),
        "Usage": object("What is known of a key.", usage, &[]),
    }))
}

fn of_the_node() -> Map<String, Value> {
    let member = json!({
        "name": text(),
        "region": text(),
        "generation": told(whole(), "Which life of it."),
        "state": { "enum": ["self", "connected", "unreachable", "clock_beyond_skew"] },
        "rtt_ms": maybe_whole("Round trip of the link; null: it is this node, or not connected."),
        "lag_ms": maybe_whole("How old the newest complete knowledge of it is."),
        "clock_offset_ms": { "type": ["integer", "null"], "description": "Its clock minus this node's." },
        "backlog": told(whole(), "Own chunks that it has not acknowledged."),
    });
    let difference = json!({ "limit": reference("LimitName"), "nodes": list(text()) });
    let health = json!({ "status": { "enum": ["ok", "degraded", "ready"] }, "reasons": list(text()) });
    fields(json!({
        "Member": object("A node.", member, &[]),
        "LimitDifference": object("A limit that those nodes have otherwise than this one.", difference, &[]),
        "Cluster": object("The cluster.", json!({
            "members": list(reference("Member")),
            "limits_differ": list(reference("LimitDifference")),
        }), &[]),
        "Health": object("How the node is.", health, &["reasons"]),
    }))
}

/// The fields of an object.
pub(super) fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

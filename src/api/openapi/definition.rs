//! The shape of a limit's definition.

use serde_json::{Map, Value, json};

use super::operations::reference;
use super::schemas::{fields, object, told};
use crate::limits::{
    Algorithm, FIELD_PATTERN, LimitName, MAX_CONDITIONS, MAX_GLOB_BYTES, MAX_LIMIT, MAX_OVERRIDES, MAX_SLOTS,
    MAX_TEMPLATE_BYTES, MAX_TEXTS, MAX_VALUE_BYTES,
};

/// A window as it may be written.
const WINDOW: &str = "^([0-9]+(ms|s|m|h|d)|day|week|month|year)$";
const DURATION: &str = "^[0-9]+(ms|s|m|h|d)$";
/// Fields that are there in every answer.
const ALWAYS_TOLD: [&str; 5] = ["name", "algorithm", "limit", "window", "consistency"];
/// Fields in which null is no way to say nothing.
const NEVER_NULL: [&str; 5] = ["name", "limit", "window", "when", "overrides"];

fn tokens(least: u64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": MAX_LIMIT })
}

fn form(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": pattern })
}

fn words(words: &[&str]) -> Value {
    json!({ "enum": words })
}

/// By name.
pub(super) fn all() -> Map<String, Value> {
    let in_force = definition();
    let names = || in_force.keys().map(String::as_str);
    let mut written = in_force.clone();
    for (_, schema) in written.iter_mut().filter(|(name, _)| !NEVER_NULL.contains(&name.as_str())) {
        nullable(schema);
    }
    let mut listed = in_force.clone();
    listed.extend(fields(json!({
        "source": { "enum": ["file", "api"], "description": "Who defines it." },
        "etag": told(json!({ "type": "string" }), "Of the definition, for `If-Match`."),
    })));
    let may_lack: Vec<_> = names().filter(|name| !matches!(*name, "limit" | "window")).collect();
    let unset: Vec<_> = names().filter(|name| !ALWAYS_TOLD.contains(name)).collect();
    let written = object("A limit as it may be written.", Value::Object(written), &may_lack);
    let listed = object("A limit in force, where it is from, and its tag.", Value::Object(listed), &unset);
    let in_force = object("A limit in force, as it could be written.", Value::Object(in_force.clone()), &unset);
    fields(json!({
        "LimitName": { "type": "string", "pattern": LimitName::PATTERN },
        "Limit": in_force,
        "WrittenLimit": written,
        "ListedLimit": listed,
        "Limits": object("All limits in force.", json!({
            "limits": { "type": "array", "items": reference("ListedLimit") },
        }), &[]),
        "Override": own(),
        "Condition": condition(json!({ "not": reference("PlainCondition") }), "Of one field."),
        "PlainCondition": condition(json!({}), "Of one field; not the opposite of another."),
    }))
}

/// One key's own.
fn own() -> Value {
    let mut own = json!({
        "key": reference("Key"),
        "limit": tokens(0),
        "window": told(form(WINDOW), "That of the limit when absent."),
        "burst": told(tokens(1), "That of the limit when absent."),
    });
    nullable(&mut own["window"]);
    nullable(&mut own["burst"]);
    object("One key's own allowance.", own, &["window", "burst"])
}

/// Lets null through, which in what is written is as good as not there.
fn nullable(schema: &mut Value) {
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    } else if let Some(of_type) = schema.get_mut("type") {
        *of_type = json!([of_type.take(), "null"]);
    }
}

fn definition() -> Map<String, Value> {
    let bits = |most: u8| json!({ "type": "integer", "minimum": 1, "maximum": most });
    fields(json!({
        "name": told(reference("LimitName"), "May be left to the path."),
        "algorithm": told(words(&Algorithm::NAMES), "`sliding_window` when absent."),
        "limit": told(tokens(0), "Tokens per window."),
        "window": told(form(WINDOW), "A duration, or with `align = calendar` a period."),
        "slots": told(
            json!({ "type": "integer", "minimum": 1, "maximum": MAX_SLOTS }),
            "`sliding_window`: how many sub-windows; two weighted counters when absent.",
        ),
        "align": told(words(&["epoch", "calendar"]), "`fixed_window`: what windows begin with."),
        "time_zone": told(json!({ "type": "string" }), "With `align = calendar`: whose midnight, an IANA name."),
        "burst": told(tokens(1), "A bucket's capacity."),
        "queue": told(form(DURATION), "`leaky_bucket`: the longest that a request may be made to wait."),
        "enforce": told(words(&["deny", "shadow"]), "`shadow`: it counts and never denies."),
        "consistency": told(words(&["eventual"]), "How it is kept in agreement."),
        "max_keys": told(
            json!({ "type": "integer", "minimum": 1, "maximum": i64::MAX }),
            "The most keys that a node itself spends on.",
        ),
        "on_full": told(words(&["allow", "deny"]), "What a new key is answered when there is no room for it."),
        "key": told(
            json!({ "type": "string", "minLength": 1, "maxLength": MAX_TEMPLATE_BYTES }),
            "A template of the key of requests that describe themselves, e.g. `{user}:{route}`.",
        ),
        "key_type": told(words(&["text", "ip"]), "`ip`: addresses are counted by prefix."),
        "ipv4_prefix": told(bits(32), "`key_type = ip`: leading bits that are counted together."),
        "ipv6_prefix": told(bits(128), "`key_type = ip`: leading bits that are counted together."),
        "when": {
            "type": "object", "maxProperties": MAX_CONDITIONS, "propertyNames": { "pattern": FIELD_PATTERN },
            "additionalProperties": reference("Condition"),
            "description": "By field, what must hold of a request that describes itself.",
        },
        "overrides": {
            "type": "array", "maxItems": MAX_OVERRIDES, "items": reference("Override"),
            "description": "Keys that have their own allowance.",
        },
    }))
}

/// One text or several; or one of the kinds, to which come `more`.
fn condition(more: Value, description: &str) -> Value {
    let text = |most: usize| json!({ "type": "string", "minLength": 1, "maxLength": most });
    let texts = |most: usize| {
        let several = json!({ "type": "array", "items": text(most), "minItems": 1, "maxItems": MAX_TEXTS });
        json!({ "anyOf": [text(most), several] })
    };
    let mut kinds = fields(json!({
        "equals": text(MAX_VALUE_BYTES),
        "one_of": texts(MAX_VALUE_BYTES),
        "prefix": texts(MAX_VALUE_BYTES),
        "glob": texts(MAX_GLOB_BYTES),
        "cidr": texts(MAX_VALUE_BYTES),
        "present": { "type": "boolean" },
    }));
    kinds.extend(fields(more));
    let kinds = json!({
        "type": "object", "minProperties": 1, "maxProperties": 1, "properties": kinds, "additionalProperties": false,
    });
    json!({ "anyOf": [texts(MAX_VALUE_BYTES), kinds], "description": description })
}

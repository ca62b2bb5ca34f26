//! The shape of a limit's definition.

use serde_json::{Map, Value, json};

use super::operations::reference;
use super::schemas::{FIELD_PATTERN, fields, object, told};
use crate::limits::{
    MAX_CONDITIONS, MAX_GLOB_BYTES, MAX_LIMIT, MAX_OVERRIDES, MAX_SLOTS, MAX_TEMPLATE_BYTES, MAX_TEXTS,
};

/// A window as it may be written.
const WINDOW: &str = "^([0-9]+(ms|s|m|h|d)|day|week|month|year)$";
const DURATION: &str = "^[0-9]+(ms|s|m|h|d)$";

/// A field that may also be null, which is as good as not there.
fn maybe(mut schema: Value, description: &str) -> Value {
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    } else if let Some(of_type) = schema.get_mut("type") {
        *of_type = json!([of_type.take(), "null"]);
    }
    told(schema, description)
}

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
    let definition = definition();
    let mut listed = definition.clone();
    listed.extend(fields(json!({
        "source": { "enum": ["file", "api"], "description": "Who defines it." },
        "etag": told(json!({ "type": "string" }), "Of the definition, for `If-Match`."),
    })));
    let mut optional: Vec<&str> = definition.keys().map(String::as_str).collect();
    optional.retain(|name| !matches!(*name, "limit" | "window"));
    let own = json!({
        "key": reference("Key"),
        "limit": tokens(0),
        "window": maybe(form(DURATION), "That of the limit when absent."),
        "burst": maybe(tokens(1), "That of the limit when absent."),
    });
    let limit = object("A limit's definition.", Value::Object(definition.clone()), &optional);
    let listed = object("A limit in force.", Value::Object(listed), &optional);
    fields(json!({
        "LimitName": { "type": "string", "pattern": "^[A-Za-z0-9._:/-]{1,64}$" },
        "Limit": limit,
        "ListedLimit": listed,
        "Limits": object("All limits in force.", json!({
            "limits": { "type": "array", "items": reference("ListedLimit") },
        }), &[]),
        "Override": object("One key's own allowance.", own, &["window", "burst"]),
        "Condition": condition(),
    }))
}

fn definition() -> Map<String, Value> {
    let bits = |most: u8| json!({ "type": "integer", "minimum": 1, "maximum": most });
    let algorithms = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket"];
    fields(json!({
        "name": told(reference("LimitName"), "May be left to the path."),
        "algorithm": maybe(words(&algorithms), "`sliding_window` when absent."),
        "limit": told(tokens(0), "Tokens per window."),
        "window": told(form(WINDOW), "A duration, or with `align = calendar` a period."),
        "slots": maybe(
            json!({ "type": "integer", "minimum": 1, "maximum": MAX_SLOTS }),
            "`sliding_window`: how many sub-windows; two weighted counters when absent.",
        ),
        "align": maybe(words(&["epoch", "calendar"]), "`fixed_window`: what windows begin with."),
        "time_zone": maybe(json!({ "type": "string" }), "With `align = calendar`: whose midnight, an IANA name."),
        "burst": maybe(tokens(1), "A bucket's capacity."),
        "queue": maybe(form(DURATION), "`leaky_bucket`: the longest that a request may be made to wait."),
        "enforce": maybe(words(&["deny", "shadow"]), "`shadow`: it counts and never denies."),
        "consistency": maybe(words(&["eventual"]), "How it is kept in agreement."),
        "max_keys": maybe(
            json!({ "type": "integer", "minimum": 1, "maximum": i64::MAX }),
            "The most keys that a node itself spends on.",
        ),
        "on_full": maybe(words(&["allow", "deny"]), "What a new key is answered when there is no room for it."),
        "key": maybe(
            json!({ "type": "string", "minLength": 1, "maxLength": MAX_TEMPLATE_BYTES }),
            "A template of the key of requests that describe themselves, e.g. `{user}:{route}`.",
        ),
        "key_type": maybe(words(&["text", "ip"]), "`ip`: addresses are counted by prefix."),
        "ipv4_prefix": maybe(bits(32), "`key_type = ip`: leading bits that are counted together."),
        "ipv6_prefix": maybe(bits(128), "`key_type = ip`: leading bits that are counted together."),
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

/// One text or several; or one of the kinds.
fn condition() -> Value {
    let texts = |most: usize| {
        let text = json!({ "type": "string", "maxLength": most });
        json!({ "anyOf": [text, { "type": "array", "items": text, "minItems": 1, "maxItems": MAX_TEXTS }] })
    };
    let value = crate::limits::MAX_VALUE_BYTES;
    let kinds = json!({
        "equals": { "type": "string", "maxLength": value },
        "one_of": texts(value),
        "prefix": texts(value),
        "glob": texts(MAX_GLOB_BYTES),
        "cidr": texts(value),
        "present": { "type": "boolean" },
        "not": reference("Condition"),
    });
    let kinds = json!({
        "type": "object", "minProperties": 1, "maxProperties": 1, "properties": kinds, "additionalProperties": false,
    });
    json!({ "anyOf": [texts(value), kinds], "description": "Of one field." })
}

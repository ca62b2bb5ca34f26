//! `If-Match` and `If-None-Match` (RFC 9110, section 13.1): changes that hold only of what the caller has seen.

use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::problem::Problem;
use crate::limits::{Limit, LimitSpec};

/// The most tags in one header.
const MAX_TAGS: usize = 32;

/// What must hold of a limit for it to be changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Precondition {
    matches: Option<Tags>,
    none_matches: Option<Tags>,
}

#[derive(Debug, PartialEq, Eq)]
enum Tags {
    /// `*`
    Any,
    /// Each with its quotes.
    Listed(Vec<String>),
}

/// The tag of a limit: equal where the definitions are, on every node.
pub(super) fn etag(limit: &Limit) -> String {
    format!("\"{:016x}\"", LimitSpec::fingerprint(limit))
}

/// The header of a tag.
pub(super) fn etag_header(limit: &Limit) -> HeaderValue {
    HeaderValue::try_from(etag(limit)).expect("quotes and hex digits are visible ASCII")
}

impl Precondition {
    /// Reads it from a request's headers.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        Ok(Self { matches: Tags::read(headers, IF_MATCH)?, none_matches: Tags::read(headers, IF_NONE_MATCH)? })
    }

    /// Whether it holds of the limit that is there now, if any.
    pub(super) fn holds(&self, limit: Option<&Limit>) -> bool {
        let matches = self.matches.as_ref().is_none_or(|tags| tags.include(limit));
        matches && self.none_matches.as_ref().is_none_or(|tags| !tags.include(limit))
    }
}

impl Tags {
    fn read(headers: &HeaderMap, name: HeaderName) -> Result<Option<Self>, Problem> {
        let wrong = || {
            let like = "`*` or a list of tags as answers tell them in `ETag`, e.g. \"00c0ffee00c0ffee\"";
            Problem::bad_request(format_args!("the header `{name}` is {like}"))
        };
        let mut tags = Vec::new();
        for value in headers.get_all(&name) {
            for tag in value.to_str().map_err(|_| wrong())?.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
                let quoted = tag.len() >= 2 && tag.starts_with('"') && tag.ends_with('"');
                if !(quoted || tag == "*" || tag.starts_with("W/\"")) || tags.len() == MAX_TAGS {
                    return Err(wrong());
                }
                tags.push(tag.to_owned());
            }
        }
        match tags.iter().any(|tag| tag == "*") {
            _ if !headers.contains_key(&name) => Ok(None),
            true if tags.len() == 1 => Ok(Some(Self::Any)),
            false if !tags.is_empty() => Ok(Some(Self::Listed(tags))),
            _ => Err(wrong()),
        }
    }

    /// A weak tag is never that of a limit: what is written must be compared strongly.
    fn include(&self, limit: Option<&Limit>) -> bool {
        let Some(limit) = limit else { return false };
        match self {
            Self::Any => true,
            Self::Listed(tags) => tags.contains(&etag(limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(tokens: i64) -> Limit {
        let spec =
            LimitSpec { name: "a".into(), limit: Some(tokens), window: Some("1s".into()), ..LimitSpec::default() };
        spec.check().unwrap()
    }

    fn read(headers: &[(HeaderName, &str)]) -> Result<Precondition, Problem> {
        let mut map = HeaderMap::new();
        headers.iter().for_each(|(name, value)| _ = map.append(name, HeaderValue::from_str(value).unwrap()));
        Precondition::read(&map)
    }

    #[test]
    fn changes_hold_of_what_was_seen() {
        let (seen, other) = (limit(5), limit(6));
        let tag = etag(&seen);
        let several = format!("\"x\", {tag}");
        for (name, value, of_seen, of_other, of_none) in [
            (IF_MATCH, "*", true, true, false),
            (IF_MATCH, tag.as_str(), true, false, false),
            (IF_MATCH, several.as_str(), true, false, false),
            (IF_MATCH, &format!("W/{tag}"), false, false, false),
            (IF_NONE_MATCH, "*", false, false, true),
            (IF_NONE_MATCH, tag.as_str(), false, true, true),
        ] {
            let precondition = read(&[(name.clone(), value)]).unwrap();
            let holds = [Some(&seen), Some(&other), None].map(|limit| precondition.holds(limit));
            assert_eq!(holds, [of_seen, of_other, of_none], "{name} {value}");
        }
        assert!([Some(&seen), None].iter().all(|limit| read(&[]).unwrap().holds(*limit)));
        let lines = read(&[(IF_MATCH, "\"x\""), (IF_MATCH, &tag)]).unwrap();
        assert!(lines.holds(Some(&seen)));
        for bad in ["", "5", "\"", "*, \"x\"", "\"x\"; \"y\"x"] {
            assert!(read(&[(IF_MATCH, bad)]).is_err(), "{bad}");
        }
    }
}

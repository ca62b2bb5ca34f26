//! What a request says of itself, for limits that choose by it: `{"ip":"..","user":"..","plan":"free"}`.

use std::borrow::Cow;

/// The most fields of a request.
pub const MAX_DESCRIPTORS: usize = 32;
/// The longest name of a field, bytes.
pub const MAX_FIELD_BYTES: usize = 64;
/// The longest value of a field, bytes.
pub const MAX_VALUE_BYTES: usize = 1024;

/// What a name of a field is, as a regular expression.
pub const FIELD_PATTERN: &str = "^[A-Za-z0-9_-]{1,64}$";

/// What the name of a field is made of.
pub(super) const FIELD_FORM: &str = "1 to 64 of A-Z a-z 0-9 _ and -";

/// The fields of a request, each once. An empty value says as little as a field that is not there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Descriptors<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// What is wrong with a field of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct DescriptorError {
    /// Its name.
    pub field: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl DescriptorError {
    pub(super) fn new(field: &str, problem: impl Into<String>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }
}

impl<'a> Descriptors<'a> {
    /// Adds a field.
    ///
    /// # Errors
    /// When its name is none or is there already, its value is too long, or there are [`MAX_DESCRIPTORS`] already.
    pub fn add(&mut self, field: Cow<'a, str>, value: Cow<'a, str>) -> Result<(), DescriptorError> {
        let wrong = |problem: String| Err(DescriptorError::new(&field, problem));
        if !is_field(&field) {
            return wrong(format!("this is no name of a field: {FIELD_FORM}"));
        }
        if value.len() > MAX_VALUE_BYTES {
            return wrong(format!("a value has at most {MAX_VALUE_BYTES} bytes, this one {}", value.len()));
        }
        if self.0.len() == MAX_DESCRIPTORS {
            return wrong(format!("a request has at most {MAX_DESCRIPTORS} fields"));
        }
        if self.0.iter().any(|(known, _)| *known == field) {
            return wrong("is there twice".to_owned());
        }
        self.0.push((field, value));
        Ok(())
    }

    /// The value of a field; None when it says nothing.
    pub fn get(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == field).map(|(_, value)| &**value).filter(|value| !value.is_empty())
    }
}

/// Whether a text can be the name of a field.
pub(super) fn is_field(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    (1..=MAX_FIELD_BYTES).contains(&text.len()) && text.bytes().all(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_bounded_and_there_once() {
        let mut all = Descriptors::default();
        all.add("user".into(), "42".into()).unwrap();
        all.add("plan".into(), "".into()).unwrap();
        assert_eq!((all.get("user"), all.get("plan"), all.get("ip")), (Some("42"), None, None));
        let long = "x".repeat(MAX_VALUE_BYTES + 1);
        for (field, value, says) in [
            ("user", "43", "twice"),
            ("", "x", "no name"),
            ("a.b", "x", "no name"),
            ("ip", long.as_str(), "at most 1024 bytes"),
        ] {
            let error = all.add(field.into(), value.into()).unwrap_err();
            assert!(error.problem.contains(says) && error.field == field, "{error}");
        }
        for number in 2..MAX_DESCRIPTORS {
            all.add(format!("f{number}").into(), "x".into()).unwrap();
        }
        assert!(all.add("more".into(), "x".into()).unwrap_err().problem.contains("at most 32 fields"));
    }
}

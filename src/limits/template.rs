//! Key templates: `{user}:{route}` says of which fields of a request its key is made.
//!
//! Different values never give the same key: with two fields and more, `%` and every character that stands between
//! fields is written `%XX` in a value, so that what stands there bare is never part of one; and two fields never touch.

use std::fmt;

use super::descriptors::{Descriptors, FIELD_FORM, is_field};

/// The longest template, bytes.
pub const MAX_TEMPLATE_BYTES: usize = 256;
/// The most fields in one.
pub const MAX_TEMPLATE_FIELDS: usize = 8;

/// A template that was found valid.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    text: String,
    parts: Vec<Part>,
    /// The characters that a value may not bring in bare; empty where a value can be mistaken for nothing else.
    escaped: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Literal(String),
    Field(String),
}

impl KeyTemplate {
    /// Reads a template: text with `{field}` in it. `{{` and `}}` stand for braces.
    ///
    /// # Errors
    /// What is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !(1..=MAX_TEMPLATE_BYTES).contains(&text.len()) {
            return Err(format!("a template has 1 to {MAX_TEMPLATE_BYTES} bytes, e.g. \"{{user}}\""));
        }
        let parts = split(text)?;
        let fields = parts.iter().filter(|part| matches!(part, Part::Field(_))).count();
        if fields > MAX_TEMPLATE_FIELDS {
            return Err(format!("{text:?} has {fields} fields: at most {MAX_TEMPLATE_FIELDS}"));
        }
        if let Some([Part::Field(a), Part::Field(b)]) =
            parts.windows(2).find(|pair| pair.iter().all(|part| matches!(part, Part::Field(_))))
        {
            return Err(format!("nothing stands between {{{a}}} and {{{b}}}: write e.g. \"{{{a}}}:{{{b}}}\""));
        }
        let literals: String = parts
            .iter()
            .filter_map(|part| if let Part::Literal(text) = part { Some(text.as_str()) } else { None })
            .collect();
        if literals.contains('%') {
            return Err(format!("{text:?} has a \"%\", which marks what is escaped in keys: use another character"));
        }
        let escaped = if fields > 1 { literals + "%" } else { String::new() };
        Ok(Self { text: text.to_owned(), parts, escaped })
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its field, if it is that and nothing else.
    pub fn only_field(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [Part::Field(field)] => Some(field),
            _ => None,
        }
    }

    /// The key of a request; None when it lacks a field.
    pub fn key_of(&self, request: &Descriptors<'_>) -> Option<String> {
        let mut key = String::with_capacity(self.text.len());
        for part in &self.parts {
            match part {
                Part::Literal(text) => key.push_str(text),
                Part::Field(field) => self.push_value(&mut key, request.get(field)?),
            }
        }
        Some(key)
    }

    fn push_value(&self, key: &mut String, value: &str) {
        for character in value.chars() {
            if self.escaped.contains(character) {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    key.push_str(&format!("%{byte:02X}"));
                }
            } else {
                key.push(character);
            }
        }
    }
}

impl fmt::Debug for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

fn split(text: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut literal) = (Vec::new(), String::new());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match character {
            '{' | '}' if rest.clone().next() == Some(character) => {
                rest.next();
                literal.push(character);
            }
            '{' => {
                let (field, after) =
                    rest.as_str().split_once('}').ok_or("a \"{\" has no \"}\": write \"{{\" for a brace")?;
                if !is_field(field) {
                    return Err(format!("{field:?} is no name of a field: {FIELD_FORM}"));
                }
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(Part::Field(field.to_owned()));
                rest = after.chars();
            }
            '}' => return Err("a \"}\" has no \"{\": write \"}}\" for a brace".to_owned()),
            plain => literal.push(plain),
        }
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request<'a>(fields: &[(&'a str, &'a str)]) -> Descriptors<'a> {
        let mut all = Descriptors::default();
        fields.iter().for_each(|(field, value)| all.add((*field).into(), (*value).into()).unwrap());
        all
    }

    fn key(template: &str, fields: &[(&str, &str)]) -> Option<String> {
        KeyTemplate::parse(template).unwrap().key_of(&request(fields))
    }

    #[test]
    fn keys_are_made_of_fields() {
        let fields = [("user", "a:b%"), ("route", "POST /login"), ("plan", "")];
        assert_eq!(key("{user}", &fields).as_deref(), Some("a:b%"));
        assert_eq!(key("user:{user}", &fields).as_deref(), Some("user:a:b%"));
        assert_eq!(key("{user}:{route}", &fields).as_deref(), Some("a%3Ab%25:POST /login"));
        assert_eq!(key("{{{user}}}", &fields).as_deref(), Some("{a:b%}"));
        assert_eq!(key("everybody", &[]).as_deref(), Some("everybody"));
        assert_eq!(key("{user}é{route}", &[("user", "é"), ("route", "x")]).as_deref(), Some("%C3%A9éx"));
        assert_eq!((key("{plan}", &fields), key("{user}:{ip}", &fields)), (None, None));
        assert_ne!(key("{a}_{b}", &[("a", "a"), ("b", "b_c")]), key("{a}_{b}", &[("a", "a_b"), ("b", "c")]),);
    }

    #[test]
    fn what_is_no_template_is_told() {
        for (text, says) in [
            ("", "1 to 256 bytes"),
            ("{user", "has no \"}\""),
            ("user}", "has no \"{\""),
            ("{}", "\"\" is no name"),
            ("{a b}", "\"a b\" is no name"),
            ("{a}{b}", "nothing stands between {a} and {b}"),
            ("{a}%{b}", "\"%\""),
            ("{a}-{b}-{c}-{d}-{e}-{f}-{g}-{h}-{i}", "9 fields"),
        ] {
            let error = KeyTemplate::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    proptest! {
        /// Also where what stands between fields looks like an escape.
        #[test]
        fn different_values_never_collide(
            between in "[A-F0-9:_a]{1,3}",
            one in ("[A-F0-9:_a%é]{1,5}", "[A-F0-9:_a%é]{1,5}"),
            other in ("[A-F0-9:_a%é]{1,5}", "[A-F0-9:_a%é]{1,5}"),
        ) {
            let template = format!("{{a}}{between}{{b}}");
            let key = |(a, b): &(String, String)| key(&template, &[("a", a), ("b", b)]);
            prop_assert_eq!(one == other, key(&one) == key(&other));
        }
    }
}

//! Query strings.

use axum::http::Uri;

use super::problem::Problem;

/// The parameters of a request: only known ones, each once.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the query of `uri`. A parameter that is not `known` is refused: a mistyped one would be without effect.
    pub(super) fn read(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        let mut pairs = Vec::<(String, String)>::new();
        let written = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        for pair in written {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = decode(name) else {
                return Err(Problem::bad_request(format_args!("the query parameter {name:?} is not UTF-8 as %XX")));
            };
            if !known.contains(&name.as_str()) {
                let known = match known {
                    [] => "this route takes none".to_owned(),
                    known => format!("this route takes `{}`", known.join("`, `")),
                };
                return Err(Problem::bad_request(format_args!("unknown query parameter `{name}`; {known}")));
            }
            if pairs.iter().any(|pair| pair.0 == name) {
                return Err(Problem::bad_request(format_args!("the query parameter `{name}` is there twice")));
            }
            let Some(value) = decode(value) else {
                let problem = format!("the value of the query parameter `{name}` is not UTF-8 as %XX");
                return Err(Problem::bad_request(problem));
            };
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// Whether a parameter is `true`; one that is not there is not.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.value(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Problem::bad_request(format_args!("the query parameter `{name}` is `true` or `false`"))),
        }
    }

    /// The value of a parameter.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str())
    }
}

/// `%XX` and `+` as forms have them. None for what is no UTF-8: guessing would name another key.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Query, Problem> {
        Query::read(&format!("/v1/usage?{query}").parse().unwrap(), &["limit", "key"])
    }

    #[test]
    fn decodes() {
        let query = read("limit=a%2Fb&key=1+2%2b3%C3%A9&").unwrap();
        assert_eq!((query.value("limit"), query.value("key")), (Some("a/b"), Some("1 2+3é")));
        assert_eq!(read("key").unwrap().value("key"), Some(""));
    }

    #[test]
    fn refuses() {
        for (query, says) in [
            ("kee=1", "unknown query parameter `kee`"),
            ("key=1&key=2", "`key` is there twice"),
            ("explain=true", "unknown query parameter `explain`"),
            ("key=%C3", "`key` is not UTF-8"),
            ("key=%G0", "`key` is not UTF-8"),
            ("key=%2", "`key` is not UTF-8"),
        ] {
            let problem = format!("{:?}", read(query).unwrap_err());
            assert!(problem.contains(says), "{query}: {problem}");
        }
    }
}

//! Environment variables that override single fields: `TIDEGATE_GOSSIP__TLS__CA_FILE` is `gossip.tls.ca_file`.

use std::ffi::OsString;

use super::problem::{Place, Problems};

/// What such a variable begins with.
const PREFIX: &str = "TIDEGATE_";
/// What the command line reads itself.
const NO_FIELDS: [&str; 1] = ["TIDEGATE_URL"];

/// A variable that sets a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Override {
    pub(super) name: String,
    pub(super) path: Vec<String>,
    pub(super) value: String,
}

/// The overrides among `variables`, by name. Whether there are such fields shows when the fields are read.
pub(super) fn overrides(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    problems: &Problems,
) -> Vec<Override> {
    let mut overrides: Vec<Override> =
        variables.into_iter().filter_map(|(name, value)| parse(name.to_str()?, value, problems)).collect();
    overrides.sort_by(|a, b| a.name.cmp(&b.name));
    overrides
}

fn parse(name: &str, value: OsString, problems: &Problems) -> Option<Override> {
    let path = name.strip_prefix(PREFIX)?;
    let wrong = |what: &str| problems.add(Place::Variable(name.to_owned()), String::new(), what);
    let Ok(value) = value.into_string() else {
        wrong("its value is not UTF-8");
        return None;
    };
    if NO_FIELDS.contains(&name) || is_service_link(path, &value) {
        return None;
    }
    if path.bytes().any(|b| b.is_ascii_lowercase()) {
        wrong("fields are written in capitals here, as TIDEGATE_NODE__NAME");
        return None;
    }
    let path = path.split("__").map(str::to_ascii_lowercase).collect();
    Some(Override { name: name.to_owned(), path, value })
}

/// Kubernetes tells every pod of a namespace of every service in it: one called `tidegate` or `tidegate-eu` must not
/// keep the nodes behind it from starting.
fn is_service_link(rest: &str, value: &str) -> bool {
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let of_service = |part: &str| rest == part || rest.ends_with(&format!("_{part}"));
    let of_port = || {
        let words: Vec<&str> = rest.split('_').collect();
        let is_port = |three: &[&str]| {
            three[0] == "PORT" && three[1].parse::<u16>().is_ok() && ["TCP", "UDP", "SCTP"].contains(&three[2])
        };
        words.windows(3).any(is_port)
    };
    of_service("SERVICE_HOST") || rest.contains("SERVICE_PORT") || (of_service("PORT") && is_url) || of_port()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(variables: &[(&str, &str)]) -> (Vec<String>, usize) {
        let problems = Problems::default();
        let variables = variables.iter().map(|(n, v)| (OsString::from(n), OsString::from(v)));
        let found = overrides(variables, &problems);
        (found.iter().map(|o| o.path.join(".")).collect(), problems.count())
    }

    #[test]
    fn names_become_paths() {
        let (found, wrong) = paths(&[
            ("PATH", "/bin"),
            ("TIDEGATE_SHUTDOWN_TIMEOUT", "1s"),
            ("TIDEGATE_GOSSIP__TLS__CA_FILE", "ca.pem"),
            ("TIDEGATE_URL", "http://x"),
            ("TIDEGATE_node__name", "x"),
        ]);
        assert_eq!(found, ["gossip.tls.ca_file", "shutdown_timeout"]);
        assert_eq!(wrong, 1);
    }

    #[test]
    fn service_links_are_no_fields() {
        let (found, wrong) = paths(&[
            ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
            ("TIDEGATE_SERVICE_PORT_HTTP", "8080"),
            ("TIDEGATE_PORT", "tcp://10.0.0.1:8080"),
            ("TIDEGATE_EU_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("TIDEGATE_EU_PORT_7400_UDP", "udp://10.0.0.1:7400"),
            ("TIDEGATE_PORT_NUMBER", "8080"),
        ]);
        assert_eq!(found, ["port_number"]);
        assert_eq!(wrong, 0);
    }
}

//! Whom a limit counts: which requests it is for, and the key of each.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::address::Prefixes;
use super::descriptors::{DescriptorError, Descriptors, FIELD_FORM, is_field};
use super::spec::{LimitSpec, SpecError, error};
use super::template::KeyTemplate;
use super::when::{MAX_CONDITIONS, Test};

/// Which requests a limit is for and under which key it counts them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keying {
    /// The key of a request that describes itself; None: the limit counts only requests that name it and their key.
    pub template: Option<KeyTemplate>,
    /// All of them must hold.
    pub when: BTreeMap<String, Test>,
    /// Keys are IP addresses, counted by prefix.
    pub address: Option<Prefixes>,
}

impl Keying {
    /// The key under which a request is counted; None when the limit is not for it.
    ///
    /// # Errors
    /// A field that is to be an address and is none.
    pub fn key_of(&self, request: &Descriptors<'_>) -> Result<Option<String>, DescriptorError> {
        let Some(template) = &self.template else { return Ok(None) };
        if !self.when.iter().all(|(field, test)| test.holds(request.get(field))) {
            return Ok(None);
        }
        let Some(key) = template.key_of(request) else { return Ok(None) };
        match (&self.address, template.only_field()) {
            (Some(prefixes), Some(field)) => {
                prefixes.fold(&key).map(Some).map_err(|problem| DescriptorError::new(field, problem))
            }
            _ => Ok(Some(key)),
        }
    }

    /// The key under which a request is counted that names `key`.
    ///
    /// # Errors
    /// Why it is no key of this limit.
    pub fn fold<'a>(&self, key: &'a str) -> Result<Cow<'a, str>, String> {
        match &self.address {
            None => Ok(Cow::Borrowed(key)),
            Some(prefixes) => prefixes.fold(key).map(Cow::Owned),
        }
    }
}

impl LimitSpec {
    pub(super) fn checked_keying(&self) -> Result<Keying, SpecError> {
        let template = self.key.as_deref().map(KeyTemplate::parse).transpose().map_err(|what| error("key", what))?;
        let address = self.checked_address()?;
        if let (Some(template), Some(_)) = (&template, &address)
            && template.only_field().is_none()
        {
            let what = format!(
                "{:?} is no address: with `key_type = \"ip\"` write one field alone, e.g. \"{{ip}}\"",
                template.as_str()
            );
            return Err(error("key", what));
        }
        Ok(Keying { when: self.checked_when(template.is_some())?, template, address })
    }

    fn checked_when(&self, keyed: bool) -> Result<BTreeMap<String, Test>, SpecError> {
        if !self.when.is_empty() && !keyed {
            return Err(error("when", "needs `key`, a template of the key to count, e.g. `key = \"{user}\"`"));
        }
        if self.when.len() > MAX_CONDITIONS {
            return Err(error("when", format!("{} fields are too many: at most {MAX_CONDITIONS}", self.when.len())));
        }
        let condition = |(field, written): (&String, &serde_json::Value)| {
            if !is_field(field) {
                return Err(error("when", format!("{field:?} is no name of a field: {FIELD_FORM}")));
            }
            let test = Test::parse(written).map_err(|e| error(format!("when.{field}{}", e.path), e.problem))?;
            Ok((field.clone(), test))
        };
        self.when.iter().map(condition).collect()
    }

    fn checked_address(&self) -> Result<Option<Prefixes>, SpecError> {
        let is_ip = match self.key_type.as_deref() {
            None | Some("text") => false,
            Some("ip") => true,
            Some(other) => return Err(error("key_type", format!("{other:?} is neither \"text\" nor \"ip\""))),
        };
        let bits = |field: &'static str, written: Option<i64>, all: u8, default: u8| match written {
            None => Ok(default),
            Some(_) if !is_ip => Err(error(field, "only a limit with `key_type = \"ip\"` has one")),
            Some(bits) => u8::try_from(bits)
                .ok()
                .filter(|bits| (1..=all).contains(bits))
                .ok_or_else(|| error(field, format!("{bits} is out of bounds: 1 to {all}"))),
        };
        let Prefixes { v4, v6 } = Prefixes::default();
        let prefixes = Prefixes {
            v4: bits("ipv4_prefix", self.ipv4_prefix, 32, v4)?,
            v6: bits("ipv6_prefix", self.ipv6_prefix, 128, v6)?,
        };
        Ok(is_ip.then_some(prefixes))
    }

    /// Writes it.
    pub(super) fn with_keying(self, keying: &Keying) -> Self {
        Self {
            key: keying.template.as_ref().map(|template| template.as_str().to_owned()),
            key_type: keying.address.map(|_| "ip".to_owned()),
            ipv4_prefix: keying.address.map(|prefixes| prefixes.v4.into()),
            ipv6_prefix: keying.address.map(|prefixes| prefixes.v6.into()),
            when: keying.when.iter().map(|(field, test)| (field.clone(), test.written())).collect(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(change: impl FnOnce(&mut LimitSpec)) -> LimitSpec {
        let mut spec =
            LimitSpec { name: "l".into(), limit: Some(1), window: Some("1s".into()), ..LimitSpec::default() };
        change(&mut spec);
        spec
    }

    fn request<'a>(fields: &[(&'a str, &'a str)]) -> Descriptors<'a> {
        let mut all = Descriptors::default();
        fields.iter().for_each(|(field, value)| all.add((*field).into(), (*value).into()).unwrap());
        all
    }

    #[test]
    fn a_limit_is_for_requests_of_which_all_conditions_hold() {
        let spec = spec(|spec| {
            spec.key = Some("{user}:{route}".into());
            spec.when = [("plan", json!("free")), ("route", json!({"prefix": "POST "}))]
                .map(|(field, test)| (field.to_owned(), test))
                .into();
        });
        let limit = spec.check().unwrap();
        let key = |fields: &[(&str, &str)]| limit.keying.key_of(&request(fields)).unwrap();
        let (user, route, plan) = (("user", "7"), ("route", "POST /x"), ("plan", "free"));
        assert_eq!(key(&[user, route, plan]).as_deref(), Some("7:POST /x"));
        assert_eq!(key(&[user, route, ("plan", "paid")]), None);
        assert_eq!(key(&[user, ("route", "GET /x"), plan]), None);
        assert_eq!(key(&[route, plan]), None);
        assert_eq!(LimitSpec::of(&limit).check().unwrap(), limit);
    }

    #[test]
    fn addresses_are_counted_by_prefix_however_they_come() {
        let spec = spec(|spec| {
            (spec.key, spec.key_type, spec.ipv6_prefix) = (Some("{ip}".into()), Some("ip".into()), Some(56));
        });
        let keying = spec.check().unwrap().keying;
        let of = |ip| keying.key_of(&request(&[("ip", ip)]));
        assert_eq!(of("2001:db8:0:1ff::1").unwrap().as_deref(), Some("2001:db8:0:100::/56"));
        assert_eq!(keying.fold("2001:db8:0:1ff::1").as_deref(), Ok("2001:db8:0:100::/56"));
        let error = of("localhost").unwrap_err();
        assert!(error.field == "ip" && error.problem.starts_with("\"localhost\" is no IP address"), "{error}");
        assert_eq!(LimitSpec::of(&spec.check().unwrap()).check().unwrap().keying, keying);
    }

    #[test]
    fn what_is_wrong_names_its_field() {
        let when = |field: &str, test| [(field.to_owned(), test)].into();
        let with = |change: &dyn Fn(&mut LimitSpec)| spec(change).check().unwrap_err().field;
        assert_eq!(with(&|s| s.key = Some("{".into())), "key");
        assert_eq!(with(&|s| (s.key, s.key_type) = (Some("a:{ip}".into()), Some("ip".into()))), "key");
        assert_eq!(with(&|s| s.key_type = Some("uuid".into())), "key_type");
        assert_eq!(with(&|s| s.ipv4_prefix = Some(24)), "ipv4_prefix");
        assert_eq!(with(&|s| (s.key_type, s.ipv6_prefix) = (Some("ip".into()), Some(0))), "ipv6_prefix");
        assert_eq!(with(&|s| s.when = when("plan", json!("free"))), "when");
        assert_eq!(with(&|s| (s.key, s.when) = (Some("k".into()), when("a b", json!("x")))), "when");
        assert_eq!(
            with(&|s| (s.key, s.when) = (Some("k".into()), when("ip", json!({"cidr": ["x"]})))),
            "when.ip.cidr[0]"
        );
    }
}

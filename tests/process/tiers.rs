//! The worked policies of `examples/policies`, each asked over HTTP as its users would be.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::ground::{Served, write};
use crate::nodes::Asker;

/// A node with one of the policies; its port is its own, all else as it stands.
struct Policy {
    asker: Asker,
    _node: Served,
    _folder: tempfile::TempDir,
}

impl Policy {
    fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/policies").join(name);
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains("listen = \"127.0.0.1:8080\""), "{text}");
        let node = Served::start(&write(folder.path(), name, &text.replace("127.0.0.1:8080", "127.0.0.1:0")));
        Self { asker: Asker::new(&node), _node: node, _folder: folder }
    }

    async fn check(&self, descriptors: &Value) -> Value {
        let body = json!({"descriptors": descriptors});
        let answer = self.asker.client.post_json("/v1/check?denied=200", &body).await.unwrap();
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        answer.json().unwrap()
    }

    /// Checks until the first denial; how many were admitted, and by which limit under which key it was denied.
    async fn until_denied(&self, descriptors: &Value) -> (u64, String, String) {
        for admitted in 0..20_000 {
            let answer = self.check(descriptors).await;
            if answer["allowed"] == true {
                continue;
            }
            let results = answer["results"].as_array().unwrap();
            let by = results.iter().find(|result| result["allowed"] == false).unwrap();
            let text = |field: &str| by[field].as_str().unwrap().to_owned();
            return (admitted, text("limit"), text("key"));
        }
        panic!("{descriptors} is never denied");
    }

    /// Which limits a request counts for, and under which keys.
    async fn counted(&self, descriptors: &Value) -> Vec<(String, String)> {
        let answer = self.check(descriptors).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut all: Vec<_> = answer["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| (text(&result["limit"]), text(&result["key"])))
            .collect();
        all.sort();
        all
    }
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(limit, key)| ((*limit).to_owned(), (*key).to_owned())).collect()
}

fn denied(admitted: u64, limit: &str, key: &str) -> (u64, String, String) {
    (admitted, limit.to_owned(), key.to_owned())
}

#[tokio::test]
async fn strangers_are_limited_by_address() {
    let policy = Policy::start("anonymous.toml");
    assert_eq!(policy.until_denied(&json!({"ip": "203.0.113.7"})).await, denied(20, "anonymous", "203.0.113.7"));
    // The same address in another form, and another user's.
    assert_eq!(policy.until_denied(&json!({"ip": "::ffff:203.0.113.7"})).await.0, 0);
    assert_eq!(policy.counted(&json!({"ip": "203.0.113.7", "user": "ann"})).await, []);
    assert_eq!(policy.counted(&json!({"ip": "203.0.113.7", "api_key": "k"})).await, []);
    assert_eq!(policy.counted(&json!({"ip": "10.1.2.3"})).await, []);
    // One customer's network of IPv6 is one address.
    let network = "2001:db8:1:2::/64";
    assert_eq!(policy.counted(&json!({"ip": "2001:db8:1:2::1"})).await, pairs(&[("anonymous", network)]));
    let other_host = json!({"ip": "2001:db8:1:2:ffff::9", "user": ""});
    assert_eq!(policy.until_denied(&other_host).await, denied(19, "anonymous", network));
    assert_eq!(policy.check(&json!({"ip": "2001:db8:1:3::1"})).await["allowed"], true);
}

#[tokio::test]
async fn who_is_known_has_more() {
    let policy = Policy::start("authenticated.toml");
    let ann = [("free-plan/day", "ann"), ("per-user", "ann")];
    assert_eq!(policy.counted(&json!({"user": "ann", "plan": "trial"})).await, pairs(&ann));
    assert_eq!(policy.counted(&json!({"user": "bob", "plan": "paid"})).await, pairs(&[("per-user", "bob")]));
    let both = [("per-api-key", "k"), ("per-user", "bob")];
    assert_eq!(policy.counted(&json!({"user": "bob", "api_key": "k"})).await, pairs(&both));
    let (admitted, limit, key) = policy.until_denied(&json!({"user": "cleo", "plan": "paid"})).await;
    assert_eq!((limit.as_str(), key.as_str()), ("per-user", "cleo"));
    assert!(admitted >= 100, "{admitted} of a burst of 100");
}

#[tokio::test]
async fn routes_have_their_own() {
    let policy = Policy::start("routes.toml");
    let login = json!({"ip": "203.0.113.7", "route": "POST /login"});
    assert_eq!(policy.until_denied(&login).await, denied(5, "login", "203.0.113.7"));
    // With a user it is a write too: all or nothing.
    let of_user = json!({"ip": "203.0.113.7", "route": "POST /login", "user": "ann"});
    let refused = policy.check(&of_user).await;
    assert_eq!(refused["allowed"], false);
    assert_eq!(refused["results"].as_array().unwrap().len(), 2);

    // Nobody's key is taken for another's.
    let key = |user: &str, route: &str| json!({"user": user, "route": route});
    let a = policy.counted(&key("a", "POST b:/c")).await;
    let b = policy.counted(&key("a:POST b", "POST /c")).await;
    assert_eq!(a, pairs(&[("writes", "a:POST b%3A/c")]));
    assert_eq!(b, pairs(&[("writes", "a%3APOST b:POST /c")]));
    assert_eq!(policy.until_denied(&key("a", "POST b:/c")).await.0, 59);
    assert_eq!(policy.counted(&key("a", "GET /c")).await, []);

    // An export waits for its turn.
    let export = json!({"route": "GET /v1/tables/export"});
    assert_eq!(policy.check(&export).await["delay_ms"], 0);
    let second = policy.check(&export).await;
    let delay = second["delay_ms"].as_u64().unwrap();
    assert_eq!(second["allowed"], true);
    assert!(delay > 0 && delay <= 2000, "{second}");
    assert_eq!(policy.counted(&json!({"route": "GET /v1/tables/17/export"})).await, [], "* is one segment");
}

#[tokio::test]
async fn single_customers_have_their_own() {
    let policy = Policy::start("overrides.toml");
    let quota =
        async |customer: &str| policy.check(&json!({"customer": customer})).await["results"][0]["quota"].clone();
    assert_eq!(quota("anybody").await, 1000);
    assert_eq!(quota("acme").await, 5000);
    assert_eq!(policy.until_denied(&json!({"customer": "trial-17"})).await, denied(10, "per-customer", "trial-17"));
    assert_eq!(policy.until_denied(&json!({"customer": "mallory"})).await, denied(0, "per-customer", "mallory"));
    assert_eq!(policy.until_denied(&json!({"customer": "acme"})).await.0, 4999);
}

#[tokio::test]
async fn all_tiers_in_one_policy() {
    let policy = Policy::start("tiers.toml");
    let stranger = json!({"ip": "203.0.113.7", "route": "GET /"});
    assert_eq!(policy.until_denied(&stranger).await, denied(30, "anonymous", "203.0.113.7"));
    let free = json!({"ip": "203.0.113.7", "user": "ann", "plan": "free", "route": "GET /"});
    assert_eq!(policy.until_denied(&free).await, denied(60, "per-user/free", "ann"));
    let (admitted, limit, _) = policy.until_denied(&json!({"user": "bob", "plan": "paid"})).await;
    assert_eq!(limit, "per-user/paid");
    assert!(admitted >= 100);
    let (admitted, limit, _) = policy.until_denied(&json!({"user": "acme", "plan": "paid"})).await;
    assert_eq!(limit, "per-user/paid");
    assert!(admitted >= 1000);
    // Shadow: it tells, and denies nothing.
    let search = json!({"user": "cleo", "plan": "free", "route": "GET /search?q=x"});
    for n in 0..20 {
        let answer = policy.check(&search).await;
        assert_eq!(answer["allowed"], true);
        let results = answer["results"].as_array().unwrap();
        let shadow = results.iter().find(|result| result["limit"] == "search").unwrap();
        assert_eq!(shadow["would_deny"] == true, n >= 10, "{n}: {shadow}");
    }
}

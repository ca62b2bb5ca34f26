//! `cargo run --release --example access_log [LINES]`: a made access log, the same every time, as a trace that
//! `tidegate replay` decides. An hour of strangers, users of two plans, a scraper, somebody who guesses passwords from a
//! whole IPv6 network, and a customer who is busier than all others.

use std::io::{self, BufWriter, Write};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

const LINES: u64 = 1_000_000;
const START_NS: u64 = 1_800_000_000_000_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;
const USERS: f64 = 5_000.0;
const STRANGERS: u32 = 20_000;

fn main() -> io::Result<()> {
    let lines = std::env::args().nth(1).map_or(LINES, |lines| lines.parse().expect("LINES is a whole number"));
    let mut random = StdRng::seed_from_u64(1);
    let mut out = BufWriter::new(io::stdout().lock());
    for line in 0..lines {
        let at_ns = START_NS + (u128::from(HOUR_NS) * u128::from(line) / u128::from(lines)) as u64;
        let step = json!({"at_ns": at_ns, "op": "check", "descriptors": request(&mut random)});
        writeln!(out, "{step}")?;
    }
    out.flush()
}

/// Who asks for what.
fn request(random: &mut StdRng) -> Value {
    match random.random_range(0..1_000) {
        0..5 => guesser(random),
        5..15 => json!({"ip": "198.51.100.9", "route": route(random)}),
        15..25 => json!({"ip": "192.0.2.80", "user": "acme", "plan": "paid", "route": route(random)}),
        25..300 => {
            let stranger = random.random_range(0..STRANGERS).to_be_bytes();
            json!({"ip": format!("203.{}.{}.{}", stranger[1], stranger[2], stranger[3]), "route": route(random)})
        }
        _ => {
            // A few users are most of the traffic.
            let user = (USERS * random.random::<f64>().powi(4)) as u32;
            let plan = if user.is_multiple_of(5) { "paid" } else { "free" };
            json!({"ip": "192.0.2.1", "user": format!("user-{user}"), "plan": plan, "route": route(random)})
        }
    }
}

/// Another address each time, of one network.
fn guesser(random: &mut StdRng) -> Value {
    json!({"ip": format!("2001:db8:bad:1::{:x}", random.random_range(1..0xffff)), "route": "POST /login"})
}

fn route(random: &mut StdRng) -> &'static str {
    match random.random_range(0..100) {
        0..2 => "POST /login",
        2..30 => "GET /search",
        30..40 => "POST /orders",
        _ => "GET /items",
    }
}

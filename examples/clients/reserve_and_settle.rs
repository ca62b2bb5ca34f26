//! Reserve an estimate, then settle: `cargo run --example reserve_and_settle -- URL USER ESTIMATE ACTUAL`
//!
//! With `TIDEGATE_TOKEN` set, sends it. Exit code 3: denied.

use std::error::Error;
use std::process::ExitCode;

use serde_json::{Value, json};
use tidegate::client::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, user, estimate, actual] = words.as_slice() else { return Err("URL USER ESTIMATE ACTUAL".into()) };
    let (estimate, actual): (u32, u32) = (estimate.parse()?, actual.parse()?);
    let mut client = Client::new(url)?;
    if let Some(token) = std::env::var("TIDEGATE_TOKEN").ok().filter(|token| !token.is_empty()) {
        client = client.with_token(&token)?;
    }

    let mut answer = ask(&client, "check?denied=429", user, estimate).await?;
    if answer["allowed"] != true {
        match answer["retry_after_ms"].as_u64() {
            Some(retry) => println!("denied: try again in {retry} ms"),
            None => println!("denied: never"),
        }
        return Ok(ExitCode::from(3));
    }

    // Here the model is asked, and what it took is known.

    if actual < estimate {
        answer = ask(&client, "refund", user, estimate - actual).await?;
    } else if actual > estimate {
        answer = ask(&client, "debit", user, actual - estimate).await?;
    }
    let result = &answer["results"][0];
    println!("settled: {} of {} tokens remain", result["remaining"], result["quota"]);
    Ok(ExitCode::SUCCESS)
}

/// The answer of the node; a denial (429) is one too.
async fn ask(client: &Client, operation: &str, user: &str, cost: u32) -> Result<Value, Box<dyn Error>> {
    let body = json!({ "limit": "model/tokens", "key": user, "cost": cost });
    let answer = client.post_json(&format!("/v1/{operation}"), &body).await?;
    match answer.status.as_u16() {
        200 | 429 => Ok(answer.json()?),
        status => Err(format!("{status}: {}", String::from_utf8_lossy(&answer.body)).into()),
    }
}

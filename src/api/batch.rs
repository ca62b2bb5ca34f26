//! `/v1/batch`: many requests in one body, each decided by itself, answered in order.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use serde::Deserialize;
use serde::de::Deserializer;

use super::App;
use super::body::{self, Asked, Written};
use super::decide::{self, JSON};
use super::problem::Problem;
use super::query::Query;
use crate::engine::Op;
use crate::engine::spec::List;

/// The most requests in a batch.
pub const MAX_BATCH: usize = 1_000;

/// A batch as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requests<'a> {
    #[serde(borrow, deserialize_with = "requests")]
    requests: Vec<Written<'a>>,
}

fn requests<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Written<'de>>, D::Error> {
    from.deserialize_seq(List::new("requests", MAX_BATCH, "objects as `/v1/check` takes them"))
}

/// `POST /v1/batch`. A request that is malformed fails all of it, before anything is taken; one that names no limit there
/// is has a problem document for its answer.
pub(super) async fn handle(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let explain = Query::read(&head.uri, &["explain"])?.flag("explain")?;
    let _in_flight = app.in_flight()?;
    let body = app.read(&head.headers, body).await?;
    let all = parse(&body)?;
    if all.iter().any(|(op, _)| decide::needs_token(*op)) {
        app.authorise(&head.headers)?;
    }
    let mut answers = Vec::from(&b"{\"answers\":["[..]);
    for (index, (op, asked)) in all.iter().enumerate() {
        if index > 0 {
            answers.push(b',');
        }
        match app.decide(*op, asked, explain) {
            Ok(decided) => {
                answers.append(&mut decided.document(asked, None));
                app.count(*op, &decided);
            }
            Err(problem) => answers.append(&mut problem.document()),
        }
    }
    answers.extend_from_slice(b"]}");
    let mut response = Response::new(Body::from(answers));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(response)
}

/// What each request asks.
fn parse<'a>(body: &'a [u8]) -> Result<Vec<(Op, Asked<'a>)>, Problem> {
    let all = body::parse::<Requests<'_>>(body)?.requests;
    if all.is_empty() {
        return Err(Problem::bad_request(format_args!("`requests` is empty: a batch has 1 to {MAX_BATCH}")));
    }
    let form = |(index, written): (usize, Written<'a>)| {
        let op = written.op.unwrap_or(Op::Check);
        let no_form = |what| Problem::bad_request(format_args!("`requests[{index}]`: {what}"));
        let asked = written.form().map_err(no_form)?;
        asked.well_formed().map_err(|error| {
            let field = error.field(asked.listed());
            Problem::bad_request(format_args!("`requests[{index}].{field}`: {error}"))
        })?;
        Ok((op, asked))
    };
    all.into_iter().enumerate().map(form).collect()
}

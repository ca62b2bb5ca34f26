//! Every answer is one that the API promises: a check is 200 or 429 as its body says, and `Retry-After` is the body's
//! wait in whole seconds, rounded up; every request to a living node is answered; a stranger is told why it is one.

use crate::history::{History, Outcome};

pub fn broken(history: &History) -> Vec<String> {
    let last_start =
        |node| history.lives.iter().filter(|l| l.life.node == node).map(|l| l.process_ns).max().unwrap_or(0);
    let unanswered = history.requests.iter().filter(|r| r.outcome == Outcome::Unknown);
    // Only a node that died, and so lived on as another process, may owe an answer.
    let unanswered = unanswered.filter(|r| r.sent_ns >= last_start(r.life.node)).map(|r| {
        let (node, key) = (history.node_name(r.life.node), history.key_name(r.key));
        format!("{node} never answered a request for {key} sent at {} ms", r.sent_ns / 1_000_000)
    });
    history.wrong.iter().cloned().chain(unanswered).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{MS, quiet, request};
    use crate::history::{Life, LifeStart};

    #[test]
    fn no_answer_from_a_living_node() {
        let mut history = quiet();
        history.requests = vec![request(0, 10, 1, Outcome::Unknown)];
        assert_eq!(broken(&history).len(), 1);
        history.lives.push(LifeStart { life: Life { node: 0, number: 1 }, at_ns: 20 * MS, process_ns: 20 * MS });
        assert_eq!(broken(&history), Vec::<String>::new());
        history.wrong = vec!["500".into()];
        assert_eq!(broken(&history).len(), 1);
    }
}

//! Every answer is one that the API promises: a check is 200 or 429 as its body says, and `Retry-After` is the body's
//! wait in whole seconds, rounded up; and every request to a living node is answered.

use crate::history::{History, Outcome};

pub fn broken(history: &History) -> Vec<String> {
    let last_life = |node| history.probes.iter().filter(|p| p.life.node == node).map(|p| p.life.number).max();
    let unanswered = history.requests.iter().filter(|r| r.outcome == Outcome::Unknown);
    // Only a node that died, and so lived on as another, may owe an answer.
    let unanswered = unanswered.filter(|r| last_life(r.life.node).is_none_or(|last| r.life.number >= last)).map(|r| {
        let (node, key) = (history.node_name(r.life.node), history.key_name(r.key));
        format!("{node} never answered a request for {key} sent at {} ms", r.sent_ns / 1_000_000)
    });
    history.bad_answers.iter().cloned().chain(unanswered).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{probe, quiet, request};
    use crate::history::Life;

    #[test]
    fn no_answer_from_a_living_node() {
        let mut history = quiet();
        history.requests = vec![request(0, 10, 1, Outcome::Unknown)];
        history.probes = vec![probe(0, 20, &[])];
        assert_eq!(broken(&history).len(), 1);
        history.probes[0].life = Life { node: 0, number: 1 };
        assert_eq!(broken(&history), Vec::<String>::new());
        history.bad_answers = vec!["500".into()];
        assert_eq!(broken(&history).len(), 1);
    }
}

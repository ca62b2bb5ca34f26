//! `remaining` and `retry_after` are true: with nothing else arriving, what is said to remain is admitted, and a request
//! that waited as long as it was told is admitted, but not before.

use crate::history::{History, Trial};

pub fn broken(history: &History) -> Vec<String> {
    let tell = |trial: &Trial| {
        let wrong = wrong(trial)?;
        Some(format!("{} on {}: {wrong}", history.node_name(trial.node), history.key_name(trial.key)))
    };
    let mut found: Vec<String> = history.trials.iter().filter_map(tell).collect();
    let tried = history.schedule.keys.iter().filter(|key| key.tried_at.is_some()).count();
    if history.trials.len() != tried {
        found.push(format!("{} of {tried} trials came to an end", history.trials.len()));
    }
    found
}

fn wrong(trial: &Trial) -> Option<String> {
    if trial.admitted < trial.remaining {
        return Some(format!("{} were said to remain, {} were admitted", trial.remaining, trial.admitted));
    }
    let Some(ns) = trial.retry_after_ns else { return Some("no denial told a wait".to_owned()) };
    if trial.admitted_early == Some(true) {
        return Some(format!("told to wait {ns} ns, it would have been admitted before"));
    }
    (!trial.admitted_then).then(|| format!("denied after the {ns} ns it was told to wait"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::quiet;

    #[test]
    fn every_lie_is_found() {
        let mut history = quiet();
        assert_eq!(broken(&history).len(), 1);
        let good = Trial {
            remaining: 3,
            admitted: 4,
            retry_after_ns: Some(9),
            admitted_early: Some(false),
            admitted_then: true,
            ..Trial::default()
        };
        history.trials = vec![good];
        assert_eq!(broken(&history), Vec::<String>::new());
        let lies = [
            Trial { admitted: 2, ..good },
            Trial { retry_after_ns: None, ..good },
            Trial { admitted_early: Some(true), ..good },
            Trial { admitted_then: false, ..good },
        ];
        for lie in lies {
            history.trials = vec![lie];
            assert_eq!(broken(&history).len(), 1, "{lie:?}");
        }
    }
}

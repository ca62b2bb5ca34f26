//! What a running node takes over from changed files: limits, and its certificate.

use tracing::{error, info, warn};

use crate::config::{ConfigError, IdentityWatcher, LimitsWatcher, Reloaded};
use crate::node::Node;
use crate::transport::Identity;

/// Looks after the files of a node.
pub(super) struct Reload {
    /// None: there is no config file.
    pub(super) limits: Option<LimitsWatcher>,
    /// None: there is no cluster.
    pub(super) identity: Option<IdentityWatcher>,
}

/// What was found changed.
#[derive(Default)]
pub(super) struct Changes {
    limits: Option<Result<Reloaded, ConfigError>>,
    identity: Option<Result<Identity, ConfigError>>,
}

impl Reload {
    /// Looks at all files; `asked`: somebody wants to know, so the config file is read whether it changed or not.
    /// Blocks on the disk.
    pub(super) fn look(&mut self, asked: bool) -> Changes {
        let limits = self.limits.as_mut();
        Changes {
            limits: limits.and_then(|limits| if asked { Some(limits.reread()) } else { limits.look() }),
            identity: self.identity.as_mut().and_then(IdentityWatcher::look),
        }
    }

    /// Puts in force what was found, or says why not.
    pub(super) fn apply(&self, node: &Node, changes: Changes) {
        if let (Some(watcher), Some(limits)) = (&self.limits, changes.limits) {
            apply_limits(node, watcher, limits);
        }
        match (&self.identity, changes.identity) {
            (Some(watcher), Some(Ok(identity))) => match node.replace_identity(&identity) {
                Ok(()) => info!("{}: new connections use this certificate", watcher.file().display()),
                Err(problem) => error!("{}: {problem}; the certificate in use stays", watcher.file().display()),
            },
            (Some(_), Some(Err(problems))) => {
                say(&problems);
                error!("the certificate in use stays");
            }
            _ => {}
        }
    }
}

fn apply_limits(node: &Node, watcher: &LimitsWatcher, read: Result<Reloaded, ConfigError>) {
    let file = watcher.file().display();
    match read {
        Ok(Reloaded { limits, needs_restart }) => {
            info!("{file}: {} limits are in force", limits.len());
            for field in &needs_restart {
                warn!("{file}: {field} changed, which needs a restart");
            }
            node.install(limits);
            node.set_config_problem(None);
        }
        Err(problems) => {
            say(&problems);
            error!("{file}: the limits stay as they were");
            node.set_config_problem(Some(format!("{file} is bad, the limits stay as they were: {problems}")));
        }
    }
}

fn say(problems: &ConfigError) {
    for line in problems.to_string().lines() {
        error!("{line}");
    }
}

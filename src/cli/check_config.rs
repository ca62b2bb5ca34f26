//! `tidegate check-config`.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use super::table::{LIMIT_HEAD, limit_row, table};
use super::{Failure, print};
use crate::config::{Config, written_duration};
use crate::limits::{Limit, LimitSpec};

/// Reads a configuration as `serve` would, environment variables included, and says what it comes to.
pub(super) fn run(file: &Path) -> Result<(), Failure> {
    let config = Config::load(Some(file), std::env::vars_os())?;
    print(&summary(file, &config))
}

fn summary(file: &Path, config: &Config) -> String {
    let settings = &config.settings;
    let mut text = format!("{}: ok\n", file.display());
    let mut line = |name: &str, what: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<8}{what}");
    };
    line("node", format!("{} in region {}, data in {}", settings.name, settings.region, config.data_dir.display()));
    let token = if settings.http.token.is_some() { "with a token" } else { "without a token" };
    line("http", format!("{}, {token}", config.http_listen));
    match &settings.cluster {
        Some(cluster) if cluster.seeds.is_empty() => line("gossip", format!("{}, no seeds", cluster.listen)),
        Some(cluster) => line("gossip", format!("{}, seeds {}", cluster.listen, cluster.seeds.join(", "))),
        None => line("gossip", "none: a single node".to_owned()),
    }
    line("limits", settings.limits.len().to_string());
    if !settings.limits.is_empty() {
        let row = |limit: &Arc<Limit>| {
            let mut spec = LimitSpec::of(limit);
            if spec.align.is_none() {
                spec.window = Some(written_duration(limit.window_ns));
            }
            limit_row(spec)
        };
        text += &format!("\n{}", table(LIMIT_HEAD, settings.limits.iter().map(row)));
    }
    text
}

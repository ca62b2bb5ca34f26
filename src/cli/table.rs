//! Tables on standard output.

use crate::limits::LimitSpec;

/// What the columns of a limit are called.
pub(super) const LIMIT_HEAD: [&str; 6] = ["limit", "algorithm", "allows", "enforce", "key", "overrides"];

/// A limit as a row.
pub(super) fn limit_row(limit: LimitSpec) -> [String; 6] {
    let allows = allowance(&limit);
    let overrides = match limit.overrides.len() {
        0 => String::new(),
        n => n.to_string(),
    };
    let enforce = limit.enforce.unwrap_or_else(|| "deny".to_owned());
    [limit.name, limit.algorithm.unwrap_or_default(), allows, enforce, limit.key.unwrap_or_default(), overrides]
}

/// How much of it is how often, in words.
fn allowance(limit: &LimitSpec) -> String {
    let mut text = format!("{} per {}", limit.limit.unwrap_or_default(), limit.window.as_deref().unwrap_or_default());
    let parts = [
        limit.time_zone.as_ref().map(|zone| format!(" of {zone}")),
        limit.slots.map(|slots| format!(" in {slots} slots")),
        limit.burst.map(|burst| format!(", burst {burst}")),
        limit.queue.as_ref().map(|queue| format!(", queue {queue}")),
    ];
    text.extend(parts.into_iter().flatten());
    text
}

/// Rows below each other, columns as wide as their widest cell.
pub(super) fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let line = |row: &[String; N]| {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column)));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

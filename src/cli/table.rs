//! Tables on standard output.

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

//! The configuration: a TOML file and environment variables, checked into the settings of a node. Called by the command
//! line alone.
//!
//! Reading goes in two steps: [`draft`] reads the text, [`files`] opens what the text names. A reload takes the first
//! step only. All that is wrong is told at once, each with file, line and field.

mod draft;
mod environment;
mod files;
mod identity;
mod limits;
mod overrides;
mod problem;
mod section;
mod tree;
mod watch;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use files::read_token;
pub use identity::IdentityWatcher;
pub use problem::{ConfigError, Place, Problem};
pub use section::written_duration;
pub use watch::{LimitsWatcher, Reloaded};

use draft::Draft;
use environment::Override;
use problem::Problems;
use tree::Table;

use crate::limits::LimitSet;
use crate::node;

/// The largest configuration file, bytes.
const MAX_CONFIG_BYTES: u64 = 8 * 1024 * 1024;

/// What a node without a configuration file enforces.
const EXAMPLE: &str = "[[limits]]\nname = \"default\"\nlimit = 100\nwindow = \"60s\"\n";

/// All that `serve` needs to know.
pub struct Config {
    /// Of the node.
    pub settings: node::Settings,
    /// Where HTTP listens.
    pub http_listen: SocketAddr,
    /// Where the node keeps what it must not forget.
    pub data_dir: PathBuf,
    /// Follows the file's limits from the text that was read here; None when there is no file.
    pub limits_watcher: Option<LimitsWatcher>,
    /// Follows the files of the certificate; None without a cluster.
    pub identity_watcher: Option<IdentityWatcher>,
}

impl Config {
    /// Reads `file`, or takes the defaults and one example limit, and lays `variables` over it.
    pub fn load(
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let text = file.map_or_else(|| Ok(EXAMPLE.to_owned()), read_text)?;
        let problems = Problems::default();
        let overrides = environment::overrides(variables, &problems);
        let document = parse(file, &text)?;
        let written = document.settings();
        let draft = Draft::read(laid_over(document, &overrides, &problems), &problems);
        // What the text has wrong is told before any file that it names is touched.
        let draft = problems.none_or(file, draft)?;

        let problems = Problems::default();
        let base = file.and_then(Path::parent).unwrap_or(Path::new(""));
        let (http_listen, data_dir) = (draft.http.listen, files::resolve(base, &draft.data_dir));
        let opened = files::open(draft, base, &problems);
        let opened = problems.none_or(file, opened)?;
        let (settings, identity_watcher) = opened.expect("what could not be opened was reported");
        let limits_watcher = file.map(|file| LimitsWatcher::new(file.to_owned(), text, written, overrides));
        Ok(Self { settings, http_listen, data_dir, limits_watcher, identity_watcher })
    }
}

/// Reads the limits of a configuration, which may have nothing else. What else it has is checked as far as the text
/// alone tells, and left.
pub fn load_limits(file: &Path) -> Result<LimitSet, ConfigError> {
    read_again(file, &read_text(file)?, &[]).map(|(limits, _)| limits)
}

/// The limits of a whole configuration as `text` has it, and its other settings as written.
fn read_again(
    file: &Path,
    text: &str,
    overrides: &[Override],
) -> Result<(LimitSet, std::collections::BTreeMap<String, String>), ConfigError> {
    let document = parse(Some(file), text)?;
    let written = document.settings();
    let problems = Problems::default();
    let draft = Draft::read(laid_over(document, overrides, &problems), &problems);
    problems.none_or(Some(file), (draft.limits, written))
}

fn read_text(file: &Path) -> Result<String, ConfigError> {
    let bytes = files::read_bounded(file, MAX_CONFIG_BYTES).map_err(|what| ConfigError::whole(file, what))?;
    text_of(file, bytes)
}

fn text_of(file: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count();
        ConfigError::one(file, Place::Line(line), "this is not UTF-8, which TOML is written in")
    })
}

fn parse(file: Option<&Path>, text: &str) -> Result<Table, ConfigError> {
    Table::parse(text).map_err(|problem| ConfigError { file: file.map(Path::to_owned), problems: vec![problem] })
}

fn laid_over(mut document: Table, overrides: &[Override], problems: &Problems) -> Table {
    for variable in overrides {
        document.lay_over(variable, problems);
    }
    document
}

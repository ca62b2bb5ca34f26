//! The command line: what may be asked, and how an answer becomes an exit code.
//!
//! 0: fine. 1: the answer is no. 2: cannot start, bad configuration, bad usage.

mod cert;
mod check_config;
mod limits;
mod node;
mod reload;
mod replay;
mod serve;
mod status;
mod table;

use std::ffi::OsString;
use std::future::Future;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::ConfigError;
use crate::demo;

const EXIT_CODES: &str = "\
Exit codes:
  0  fine
  1  the answer is no: the demo's regions disagree, the node is not ready or refuses a limit
  2  cannot start, bad configuration, bad usage";

const SERVE: &str = "\
Signals:
  SIGHUP           reads the limits of the config again (a change of the file is seen without it)
  SIGTERM, SIGINT  answers what is in flight, tells peers and disk all it knows, ends; SIGINT once more: ends at once

Environment:
  TIDEGATE_NODE__NAME=...  and the like set single fields of the config
  RUST_LOG=...             what is logged to standard error [default: info], e.g. info,tidegate::gossip=debug";

const REPLAY: &str = "\
A line of the trace, with op one of check, peek, debit, refund, reset, cost 1 when it is left out, and at_ns never
falling:
  {\"at_ns\":1800000000000000000,\"op\":\"check\",\"checks\":[{\"limit\":\"login\",\"key\":\"alice\",\"cost\":1}]}
or, for the limits of the file to choose from by `when` and `key`:
  {\"at_ns\":1800000000000000000,\"op\":\"check\",\"descriptors\":{\"ip\":\"192.0.2.7\",\"route\":\"POST /login\"},\"cost\":1}
or, to change fields of a limit on the way:
  {\"at_ns\":1800000000000000000,\"op\":\"set_limit\",\"set\":{\"name\":\"login\",\"limit\":50}}
Each request is answered by a line of JSON; a line that is wrong is named and ends it.";

const LIMITS: &str = "\
What is changed here holds in every region within moments, survives restarts, and comes to nodes that are cut off once
they are back; of two changes the later holds. A limit that some node's configuration file defines is changed in that
file. `get` writes what `apply` reads:
  tidegate limits get login > login.toml
  tidegate limits apply login.toml";

/// One quota worldwide, decided locally.
#[derive(Parser)]
#[command(name = "tidegate", bin_name = "tidegate", version, propagate_version = true)]
#[command(arg_required_else_help = true, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a node; without a config: 127.0.0.1:8080, ./tidegate-data, one example limit, no peers
    #[command(after_help = SERVE)]
    Serve {
        /// The configuration (TOML)
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Stops when standard input ends, as SIGTERM would: so the demo's nodes cannot outlive it
        #[arg(long, hide = true)]
        exit_with_stdin: bool,
    },
    /// Runs a whole cluster on this machine, under load, and shows how it converges
    Demo(demo::Options),
    /// Makes and reads certificates
    #[command(subcommand)]
    Cert(cert::Command),
    /// Reads a config as serve would and names file, line and field of what is wrong
    CheckConfig {
        /// The configuration (TOML)
        file: PathBuf,
    },
    /// Decides a recorded trace (JSON lines) in virtual time
    #[command(after_help = REPLAY)]
    Replay {
        /// A TOML file of [[limits]] and [[overrides]]; all else in it is left out
        #[arg(long, value_name = "FILE")]
        limits: PathBuf,
        /// Prints who was denied, by limit and key, instead of the answers
        #[arg(long)]
        summary: bool,
        /// The trace; without it standard input
        trace: Option<PathBuf>,
    },
    /// The cluster as a node sees it; exit code 1 when it is not ready or cannot be reached
    Status(node::Node),
    /// Reads and changes the limits of a running node, and by it of the cluster
    #[command(after_help = LIMITS)]
    Limits {
        #[command(subcommand)]
        command: limits::Command,
    },
}

/// Why a command did not end well.
#[derive(Debug)]
struct Failure {
    code: u8,
    /// One line a thing that is wrong.
    message: String,
}

impl Failure {
    /// The answer is no.
    fn no(message: impl ToString) -> Self {
        Self { code: 1, message: message.to_string() }
    }

    /// It cannot be done.
    fn cannot(message: impl ToString) -> Self {
        Self { code: 2, message: message.to_string() }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::cannot(error)
    }
}

/// Does what `arguments`, the program's name first, ask for.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        // Help and version are errors to clap, and it knows which of its errors are none.
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match dispatch(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            for line in message.lines() {
                // Nobody is left to be told that this failed.
                let _ = writeln!(std::io::stderr(), "error: {line}");
            }
            ExitCode::from(code)
        }
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve { config, exit_with_stdin } => in_runtime(serve::serve(config.as_deref(), exit_with_stdin)),
        Command::Demo(options) => in_runtime(run_demo(options)),
        Command::Cert(command) => cert::run(&command),
        Command::CheckConfig { file } => check_config::run(&file),
        Command::Replay { limits, summary, trace } => replay::run(&limits, trace.as_deref(), summary),
        Command::Status(node) => in_runtime(status::status(node)),
        Command::Limits { command } => in_runtime(limits::run(command)),
    }
}

async fn run_demo(options: demo::Options) -> Result<(), Failure> {
    let verdict = demo::run(options).await.map_err(Failure::cannot)?;
    match verdict.exit_code() {
        0 => Ok(()),
        _ => Err(Failure::no("not as it should be: see the summary")),
    }
}

fn in_runtime(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::cannot(format!("the runtime does not start: {error}")))?;
    let result = runtime.block_on(command);
    // What still blocks somewhere must not keep the process from ending.
    runtime.shutdown_background();
    result
}

/// Writes to standard output. Who stopped reading it (`| head`) has seen enough: that is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::cannot(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

//! What the tests of the real binary share: running it, waiting for it, files for it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long anything may take before a test fails. No test waits for it to pass.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Between two looks at what is waited for.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The binary, with none of the caller's own settings.
pub fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end.
pub fn ended(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs the binary with `arguments` in `folder` to its end.
pub fn run(folder: &Path, arguments: &[&str]) -> Ended {
    ended(tidegate().current_dir(folder).args(arguments))
}

/// Waits until `condition` gives something.
#[expect(clippy::disallowed_methods, reason = "between two looks at a condition, with a deadline")]
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    for _ in 0..DEADLINE.as_millis() / LOOK_EVERY.as_millis() {
        if let Some(value) = condition() {
            return value;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    panic!("not within {DEADLINE:?}: {what}");
}

/// A running `serve`. Killed when dropped.
pub struct Served {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    log: PathBuf,
}

impl Served {
    /// Starts a node with the config `file`, its log added to `file`.log, and waits until it listens.
    pub fn start(file: &Path) -> Self {
        let log = file.with_extension("log");
        let to = fs::File::options().create(true).append(true).open(&log).unwrap();
        Self::start_logging_to(file, to)
    }

    /// The same with its standard error elsewhere.
    pub fn start_logging_to(file: &Path, to: fs::File) -> Self {
        let log = file.with_extension("log");
        let mut child = tidegate()
            .arg("serve")
            .arg("--config")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(to)
            .spawn()
            .unwrap();
        let (sender, receiver) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        // Reads on after the first line, so that the node never waits for its reader.
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
        match receiver.recv_timeout(DEADLINE) {
            Ok(line) => {
                let url = line.strip_prefix("listening on ").expect("the first line says where").to_owned();
                Self { child, url, log }
            }
            Err(_) => {
                let _ = child.kill();
                panic!("{} did not start: {}", file.display(), fs::read_to_string(&log).unwrap());
            }
        }
    }

    /// All of its log, earlier lives' included.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// `host:port` of its HTTP.
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// Sends it a signal, by the name that `kill` knows.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it with SIGTERM; its exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.signal("TERM");
        self.exit_code()
    }

    /// Waits for its end; its exit code.
    pub fn exit_code(&mut self) -> Option<i32> {
        until("the node ends", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes `text` to `name` in `folder`, replacing it in one step.
pub fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (path, new) = (folder.join(name), folder.join(format!("{name}.new")));
    fs::write(&new, text).unwrap();
    fs::rename(&new, &path).unwrap();
    path
}

//! `tidegate cert`.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::{Failure, print};
use crate::cert::{self, Authority, CA_FILE, CA_KEY_FILE, CertError, SECRET_FILE};
use crate::id::NodeName;
use crate::node::SystemClock;
use crate::time::Clock;

/// What is to be made or read.
#[derive(Subcommand)]
pub(super) enum Command {
    /// Makes a cluster's authority and secret: ca.pem, ca.key, cluster.secret
    Ca {
        /// The folder to write to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Makes a node's certificate and key: NAME.pem, NAME.key
    Node {
        /// The node's name, as node.name in its config
        #[arg(value_parser = NodeName::new)]
        name: NodeName,
        /// The folder with ca.pem and ca.key
        #[arg(long, value_name = "DIR")]
        ca: PathBuf,
        /// The folder to write to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// A further DNS name or IP address that the certificate bears; may be given several times
        #[arg(long, value_name = "NAME_OR_IP")]
        san: Vec<String>,
    },
    /// Says of a certificate who, whose, until when
    Show {
        /// A certificate (PEM)
        file: PathBuf,
    },
}

/// Does it.
pub(super) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Ca { out } => make_authority(out),
        Command::Node { name, ca, out, san } => make_node(name, ca, out, san),
        Command::Show { file } => show(file),
    }
}

impl From<CertError> for Failure {
    fn from(error: CertError) -> Self {
        Self::cannot(error)
    }
}

fn make_authority(out: &Path) -> Result<(), Failure> {
    let mut rng = StdRng::from_os_rng();
    let authority = Authority::generate(&mut rng, unix_ns())?;
    let secret = cert::secret_text(&cert::new_secret(&mut rng));
    write_all(
        out,
        &[
            (CA_FILE.to_owned(), &authority.cert_pem, false),
            (CA_KEY_FILE.to_owned(), &authority.key_pem, true),
            (SECRET_FILE.to_owned(), &secret, true),
        ],
    )?;
    print("every node needs ca.pem and cluster.secret; ca.key makes nodes and is needed by none of them\n")
}

fn make_node(name: &NodeName, ca: &Path, out: &Path, sans: &[String]) -> Result<(), Failure> {
    let node = Authority::load(ca)?.issue(name, sans, &mut StdRng::from_os_rng(), unix_ns())?;
    write_all(out, &[(format!("{name}.pem"), &node.cert_pem, false), (format!("{name}.key"), &node.key_pem, true)])
}

/// Writes files (name, text, private) to a folder: all, or none where one exists already.
fn write_all(folder: &Path, files: &[(String, &str, bool)]) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::cannot(format!("{}: {error}", folder.display())))?;
    for (name, ..) in files {
        let path = folder.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(CertError::Exists { path: path.display().to_string() }.into());
        }
    }
    for (name, text, private) in files {
        let path = folder.join(name);
        cert::write_new(&path, text.as_bytes(), *private)?;
        print(&format!("wrote {}\n", path.display()))?;
    }
    Ok(())
}

fn show(file: &Path) -> Result<(), Failure> {
    let pem = cert::read_file(file)?;
    let description = cert::describe(&pem, &file.display().to_string())?;
    let left_s = description.expires_in_s(unix_ns());
    let left = if left_s > 0 { format!("{} days", left_s / 86_400) } else { "nothing: it has expired".to_owned() };
    print(&format!("{description}\nleft        {left}\n"))
}

fn unix_ns() -> u64 {
    SystemClock::new().system_ns()
}

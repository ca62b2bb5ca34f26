//! A node's certificate: read at the start, and again when its files change.

use std::path::Path;

use super::draft::Tls;
use super::problem::{ConfigError, Problems};
use super::section::FileField;
use super::watch::Settling;
use crate::cert;
use crate::id::NodeName;
use crate::transport::{Identity, IdentityError, IdentityFile};

/// The files that make a node's identity, and the name that it must bear.
#[derive(Clone, Debug)]
struct IdentityFiles {
    ca: FileField,
    cert: FileField,
    key: FileField,
    name: NodeName,
}

/// What the three files held, or why they could not be read.
type Content = Result<[Vec<u8>; 3], (FileField, String)>;

impl IdentityFiles {
    fn content(&self) -> Content {
        let read = |field: &FileField| cert::read_file(&field.path).map_err(|error| (field.clone(), error.to_string()));
        Ok([read(&self.ca)?, read(&self.cert)?, read(&self.key)?])
    }

    /// None: a problem was reported.
    fn identity(&self, content: Content, problems: &Problems) -> Option<Identity> {
        let wrong = |field: &FileField, what: String| problems.add(field.place.clone(), field.field.clone(), what);
        let [ca, cert, key] = content.map_err(|(field, what)| wrong(&field, what)).ok()?;
        let identity = Identity::from_pem(&ca, &cert, &key);
        let identity = identity.map_err(|error| wrong(self.concerned(&error), error.to_string())).ok()?;
        if identity.bears(&self.name) {
            return Some(identity);
        }
        let name = &self.name;
        let what = format!(
            "this certificate does not bear node.name, \"{name}\": make one with `tidegate cert node {name}`, or set \
             node.name to the name it bears"
        );
        wrong(&self.cert, what);
        None
    }

    fn concerned(&self, error: &IdentityError) -> &FileField {
        match error {
            IdentityError::NoCertificate { file: IdentityFile::Authority }
            | IdentityError::TooMany { file: IdentityFile::Authority }
            | IdentityError::Bad { file: IdentityFile::Authority, .. } => &self.ca,
            IdentityError::NoKey(_) | IdentityError::KeyMismatch(_) => &self.key,
            _ => &self.cert,
        }
    }
}

/// Follows the files of a node's certificate, so that a new one needs no restart.
#[derive(Debug)]
pub struct IdentityWatcher {
    files: IdentityFiles,
    content: Settling<Content>,
}

impl IdentityWatcher {
    /// Reads the files, whose paths are resolved already. None: a problem was reported.
    pub(super) fn start(tls: Tls, name: &NodeName, problems: &Problems) -> Option<(Identity, Self)> {
        let files = IdentityFiles { ca: tls.ca, cert: tls.cert, key: tls.key, name: name.clone() };
        let content = files.content();
        let identity = files.identity(content.clone(), problems)?;
        Some((identity, Self { files, content: Settling::new(content) }))
    }

    /// To be called about once a second: reads the files. None: as before, or still being written.
    pub fn look(&mut self) -> Option<Result<Identity, ConfigError>> {
        let content = self.content.look(self.files.content())?;
        let problems = Problems::default();
        let identity = self.files.identity(content, &problems);
        // The problem names the file it is about; that the field stands in a config file is long known.
        let found = problems.none_or(None, identity);
        Some(found.map(|identity| identity.expect("what could not be read was reported")))
    }

    /// The node's certificate file.
    pub fn file(&self) -> &Path {
        &self.files.cert.path
    }
}

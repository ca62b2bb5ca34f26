//! Certificates of a cluster: its authority, its nodes and its secret; made by `tidegate cert`, by the demo and by the
//! simulation, read by `serve` and `cert show`.
//!
//! Keys are Ed25519: their signatures have one length, so that a simulation that draws keys and serial numbers from its
//! seed sees packets of the same sizes in every run.

mod authority;
mod describe;
mod files;

pub use authority::{AUTHORITY_DAYS, Authority, BACKDATED_HOURS, MAX_SANS, NODE_DAYS, NodeCertificate};
pub(crate) use describe::describe_der;
pub use describe::{Description, describe};
pub use files::{
    CA_FILE, CA_KEY_FILE, MAX_FILE_BYTES, SECRET_FILE, new_secret, read_file, read_secret, secret_text, write_new,
};

/// What is wrong with a certificate, a key or a file of them, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CertError {
    #[error("{path}: {problem}")]
    Io { path: String, problem: std::io::Error },
    #[error("{path} exists already and is not overwritten: remove it first, or write to another folder")]
    Exists { path: String },
    #[error("{path} is larger than {MAX_FILE_BYTES} bytes: it is no certificate, key or secret")]
    TooLarge { path: String },
    #[error("{path} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)")]
    NoCertificate { path: String },
    #[error("{path} holds a certificate that cannot be read: {problem}")]
    BadCertificate { path: String, problem: String },
    #[error("{path} holds no private key in PKCS#8 PEM form (-----BEGIN PRIVATE KEY-----): {problem}")]
    BadKey { path: String, problem: String },
    #[error("{path} is a node's certificate, not an authority's: name the folder that `tidegate cert ca` wrote")]
    NotAnAuthority { path: String },
    #[error(
        "{key_path} is not the key of {cert_path}: restore the pair, or make a new authority with `tidegate cert ca`"
    )]
    Mismatch { cert_path: String, key_path: String },
    #[error("the authority expired at {expired}: make a new one with `tidegate cert ca`")]
    Expired { expired: String },
    #[error("{path} is no cluster secret: it must be 64 hex digits, as `tidegate cert ca` writes them")]
    BadSecret { path: String },
    #[error("{san:?} is neither a DNS name nor an IP address")]
    BadSan { san: String },
    #[error("{count} further names, at most {MAX_SANS} fit in a certificate")]
    TooManySans { count: usize },
    #[error("the certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

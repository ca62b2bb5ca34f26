//! Who this node is to its peers: its certificate, its key and the one authority it trusts. TLS 1.3 with certificates on
//! both sides, ring's cryptography, no resumption, no early data.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ring::hmac;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::cert;
use crate::id::{NodeName, TLS_NAME};
use crate::time::{Clock, SECOND};

/// The protocol named in TLS. Its versions are compared in the hello, where both can be told.
pub const ALPN: &[u8] = b"tidegate";
/// Certificates in one file at most.
pub const MAX_CERTIFICATES: usize = 16;

/// What is wrong with a node's certificate, key or authority, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum IdentityError {
    #[error("{file} holds no certificate in PEM form: `tidegate cert` makes the authority's and the nodes'")]
    NoCertificate { file: IdentityFile },
    #[error("{file} holds more than {MAX_CERTIFICATES} certificates")]
    TooMany { file: IdentityFile },
    #[error("{file} cannot be read: {problem}")]
    Bad { file: IdentityFile, problem: String },
    #[error("the key file holds no private key in PEM form: {0}")]
    NoKey(rustls_pki_types::pem::Error),
    #[error("the key does not belong to the certificate: {0}; give the pair that `tidegate cert node` wrote")]
    KeyMismatch(rustls::Error),
    #[error("the certificate is none of this cluster's authority: {0}; issue one with `tidegate cert node`")]
    NotSigned(webpki::Error),
    #[error("the certificate does not bear the DNS name \"{TLS_NAME}\" of a node; issue one with `tidegate cert node`")]
    NotANode,
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// Which of the files an error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentityFile {
    /// The authority's certificate.
    Authority,
    /// The node's certificate.
    Certificate,
}

impl fmt::Display for IdentityFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authority => "the authority's certificate file",
            Self::Certificate => "the certificate file",
        })
    }
}

/// A node's certificate and key, checked against the cluster's authority.
#[derive(Clone)]
pub struct Identity {
    roots: Arc<RootCertStore>,
    leaf: CertificateDer<'static>,
    certified: Arc<SingleCertAndKey>,
    expires_s: i64,
    /// Derived from the private key; from it come the keys that must be the same in every life of the node.
    secret: hmac::Key,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("expires_s", &self.expires_s).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads three PEM files: the authority's certificate, the node's certificate and its private key. Whether the
    /// certificate is valid at this time is for the handshakes to find out.
    pub fn from_pem(ca: &[u8], cert: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let authorities = certificates(ca, IdentityFile::Authority)?;
        let chain = certificates(cert, IdentityFile::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(IdentityError::NoKey)?;
        let secret = hmac::Key::new(hmac::HMAC_SHA256, key.secret_der());

        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(|e| bad(IdentityFile::Authority, e))?;
        }
        let leaf = chain[0].clone();
        let seen = cert::describe_der(&leaf).map_err(|problem| bad(IdentityFile::Certificate, problem))?;
        verify_signed(&roots, &leaf, &chain[1..], seen.not_before_s)?;
        let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(IdentityError::KeyMismatch)?;
        let identity = Self {
            roots: Arc::new(roots),
            leaf,
            certified: Arc::new(SingleCertAndKey::from(certified)),
            expires_s: seen.not_after_s,
            secret,
            provider: Arc::new(provider()),
        };
        if valid_for(&identity.leaf, TLS_NAME) { Ok(identity) } else { Err(IdentityError::NotANode) }
    }

    /// The same with other cryptography than ring's: the simulation's, which leaves nothing to chance.
    pub fn with_provider(self, provider: CryptoProvider) -> Self {
        Self { provider: Arc::new(provider), ..self }
    }

    /// Whether the certificate is valid for a node of that name.
    pub fn bears(&self, name: &NodeName) -> bool {
        valid_for(&self.leaf, name.as_str())
    }

    /// When the certificate expires, Unix seconds.
    pub fn expires_s(&self) -> i64 {
        self.expires_s
    }

    /// A key for one purpose, the same in every life of the node that holds this private key.
    pub(super) fn key_for(&self, purpose: &str) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&self.secret, purpose.as_bytes()).as_ref())
    }

    /// TLS for connections that peers make.
    pub(super) fn server(&self, clock: &Arc<dyn Clock>) -> Result<ServerConfig, IdentityError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots.clone(), self.provider.clone())
            .build()
            .map_err(|e| IdentityError::Setup(e.to_string()))?;
        let mut config = ServerConfig::builder_with_details(self.provider.clone(), wall(clock))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| IdentityError::Setup(e.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(self.certified.clone());
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// TLS for connections that this node makes.
    pub(super) fn client(&self, clock: &Arc<dyn Clock>) -> Result<ClientConfig, IdentityError> {
        let mut config = ClientConfig::builder_with_details(self.provider.clone(), wall(clock))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| IdentityError::Setup(e.to_string()))?
            .with_root_certificates(self.roots.clone())
            .with_client_cert_resolver(self.certified.clone());
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }
}

/// Whether a certificate is valid for a DNS name. Says nothing of who signed it.
pub(super) fn valid_for(cert: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(cert), Ok(name)) = (EndEntityCert::try_from(cert), DnsName::try_from(name)) else {
        return false;
    };
    cert.verify_is_valid_for_subject_name(&ServerName::DnsName(name)).is_ok()
}

/// Checks the signature and both usages, at the time at which the certificate begins: this is about whose it is, not
/// about when.
fn verify_signed(
    roots: &RootCertStore,
    leaf: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    not_before_s: i64,
) -> Result<(), IdentityError> {
    let leaf = EndEntityCert::try_from(leaf).map_err(|e| bad(IdentityFile::Certificate, e))?;
    let algorithms = provider().signature_verification_algorithms;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(not_before_s.max(0) as u64));
    for usage in [KeyUsage::server_auth(), KeyUsage::client_auth()] {
        leaf.verify_for_usage(algorithms.all, &roots.roots, others, time, usage, None, None)
            .map_err(IdentityError::NotSigned)?;
    }
    Ok(())
}

fn certificates(pem: &[u8], file: IdentityFile) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let all = CertificateDer::pem_slice_iter(pem)
        .take(MAX_CERTIFICATES + 1)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| bad(file, e))?;
    match all.len() {
        0 => Err(IdentityError::NoCertificate { file }),
        n if n > MAX_CERTIFICATES => Err(IdentityError::TooMany { file }),
        _ => Ok(all),
    }
}

fn bad(file: IdentityFile, problem: impl fmt::Display) -> IdentityError {
    IdentityError::Bad { file, problem: problem.to_string() }
}

fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// The system clock, real or simulated, as rustls and quinn ask for it.
#[derive(Clone)]
pub(super) struct Wall(pub(super) Arc<dyn Clock>);

fn wall(clock: &Arc<dyn Clock>) -> Arc<dyn TimeProvider> {
    Arc::new(Wall(clock.clone()))
}

impl fmt::Debug for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wall")
    }
}

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.system_ns() / SECOND)))
    }
}

impl quinn::TimeSource for Wall {
    fn now(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + Duration::from_nanos(self.0.system_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cert::{Authority, NodeCertificate};
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn name(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn cluster(seed: u64) -> (Authority, NodeCertificate) {
        let (mut rng, now_ns) = (StdRng::seed_from_u64(seed), 1_700_000_000 * SECOND);
        let authority = Authority::generate(&mut rng, now_ns).unwrap();
        let node = authority.issue(&name("a"), &["b".to_owned()], &mut rng, now_ns).unwrap();
        (authority, node)
    }

    fn read(ca: &str, cert: &str, key: &str) -> Result<Identity, IdentityError> {
        Identity::from_pem(ca.as_bytes(), cert.as_bytes(), key.as_bytes())
    }

    #[test]
    fn an_identity_bears_its_names_only() {
        let (authority, node) = cluster(1);
        let identity = read(&authority.cert_pem, &node.cert_pem, &node.key_pem).unwrap();
        assert!(identity.bears(&name("a")) && identity.bears(&name("b")) && !identity.bears(&name("c")));
        assert_eq!(identity.expires_s(), 1_700_000_000 + 730 * 24 * 3600);
        assert!(!format!("{identity:?}").contains("key"));
    }

    #[test]
    fn keys_are_the_same_in_every_life_and_differ_by_purpose_and_node() {
        let sign = |seed, purpose| {
            let (authority, node) = cluster(seed);
            let identity = read(&authority.cert_pem, &node.cert_pem, &node.key_pem).unwrap();
            hmac::sign(&identity.key_for(purpose), b"x").as_ref().to_vec()
        };
        assert_eq!(sign(1, "reset"), sign(1, "reset"));
        assert_ne!(sign(1, "reset"), sign(1, "other"));
        assert_ne!(sign(1, "reset"), sign(2, "reset"));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let ((ca, node), (other_ca, other)) = (cluster(1), cluster(2));
        let refused = |ca: &str, cert: &str, key: &str| read(ca, cert, key).unwrap_err();
        let error = refused(&other_ca.cert_pem, &node.cert_pem, &node.key_pem);
        assert!(matches!(error, IdentityError::NotSigned(_)), "{error}");
        let error = refused(&ca.cert_pem, &node.cert_pem, &other.key_pem);
        assert!(matches!(error, IdentityError::KeyMismatch(_)), "{error}");
        // The authority's own certificate is no node's.
        let error = refused(&ca.cert_pem, &ca.cert_pem, &ca.key_pem);
        assert!(matches!(error, IdentityError::NotSigned(_)), "{error}");
        let error = refused(&ca.cert_pem, "", &node.key_pem);
        assert!(matches!(error, IdentityError::NoCertificate { file: IdentityFile::Certificate }), "{error}");
        let error = refused("garbage", &node.cert_pem, &node.key_pem);
        assert!(matches!(error, IdentityError::NoCertificate { file: IdentityFile::Authority }), "{error}");
        let error = refused(&ca.cert_pem, &node.cert_pem, &node.cert_pem);
        assert!(matches!(error, IdentityError::NoKey(_)), "{error}");
        let many = node.cert_pem.repeat(MAX_CERTIFICATES + 1);
        assert!(matches!(refused(&ca.cert_pem, &many, &node.key_pem), IdentityError::TooMany { .. }));
    }

    #[test]
    fn a_certificate_of_the_authority_without_the_nodes_name_is_refused() {
        let (ca, _) = cluster(1);
        let issuer =
            rcgen::Issuer::from_ca_cert_pem(&ca.cert_pem, rcgen::KeyPair::from_pem(&ca.key_pem).unwrap()).unwrap();
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
        params.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let cert = params.signed_by(&key, &issuer).unwrap();
        let error = read(&ca.cert_pem, &cert.pem(), &key.serialize_pem()).unwrap_err();
        assert!(matches!(error, IdentityError::NotANode), "{error}");
    }
}

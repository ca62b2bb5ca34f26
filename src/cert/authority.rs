//! The cluster's authority, and the certificates it issues to nodes.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rand::{CryptoRng, RngCore};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, SerialNumber,
};
use rustls_pki_types::{DnsName, PrivatePkcs8KeyDer};

use super::files::{read_text, text_path};
use super::{CA_FILE, CA_KEY_FILE, CertError, Description, describe};
use crate::id::{NodeName, TLS_NAME};
use crate::time::SECOND;

/// How long an authority lasts: 10 years.
pub const AUTHORITY_DAYS: u64 = 3652;
/// How long a node's certificate lasts: 2 years.
pub const NODE_DAYS: u64 = 730;
/// Certificates are valid from this long before they are made, so that a node whose clock is behind takes them.
pub const BACKDATED_HOURS: u64 = 6;
/// Names and addresses a node's certificate may bear beside its own.
pub const MAX_SANS: usize = 64;

/// What comes before the 32 bytes of an Ed25519 key in PKCS#8 version 1 (RFC 8410).
const ED25519_PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The cluster's own authority: whoever holds its key decides who is a node.
pub struct Authority {
    /// Its certificate, given to every node.
    pub cert_pem: String,
    /// Its private key, given to nobody.
    pub key_pem: String,
    description: Description,
    issuer: Issuer<'static, KeyPair>,
}

/// What a node is given.
pub struct NodeCertificate {
    /// Its certificate.
    pub cert_pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl Authority {
    /// A new authority. `now_ns` is Unix time.
    pub fn generate(rng: &mut impl CryptoRng, now_ns: u64) -> Result<Self, CertError> {
        let key = new_key(rng)?;
        let mut params = params(&authority_name(rng), rng, now_ns, AUTHORITY_DAYS);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let cert_pem = params.self_signed(&key)?.pem();
        Self::from_pem(cert_pem, key.serialize_pem(), CA_FILE, CA_KEY_FILE)
    }

    /// Reads the authority that was written to `dir` as [`CA_FILE`] and [`CA_KEY_FILE`].
    pub fn load(dir: &Path) -> Result<Self, CertError> {
        let (cert, key) = (dir.join(CA_FILE), dir.join(CA_KEY_FILE));
        Self::from_pem(read_text(&cert)?, read_text(&key)?, &text_path(&cert), &text_path(&key))
    }

    fn from_pem(cert_pem: String, key_pem: String, cert_path: &str, key_path: &str) -> Result<Self, CertError> {
        let description = describe(cert_pem.as_bytes(), cert_path)?;
        if !description.authority {
            return Err(CertError::NotAnAuthority { path: cert_path.to_owned() });
        }
        let key = KeyPair::from_pem(&key_pem)
            .map_err(|e| CertError::BadKey { path: key_path.to_owned(), problem: e.to_string() })?;
        if key.subject_public_key_info() != description.public_key {
            return Err(CertError::Mismatch { cert_path: cert_path.to_owned(), key_path: key_path.to_owned() });
        }
        let issuer = Issuer::from_ca_cert_pem(&cert_pem, key)?;
        Ok(Self { cert_pem, key_pem, description, issuer })
    }

    /// A certificate for the node `name`, which also bears `sans` (DNS names and IP addresses).
    pub fn issue(
        &self,
        name: &NodeName,
        sans: &[String],
        rng: &mut impl CryptoRng,
        now_ns: u64,
    ) -> Result<NodeCertificate, CertError> {
        if self.description.expires_in_s(now_ns) <= 0 {
            return Err(CertError::Expired { expired: self.description.not_after.clone() });
        }
        let key = new_key(rng)?;
        let mut params = params(name.as_str(), rng, now_ns, NODE_DAYS);
        // A certificate that outlives its authority would promise what it cannot hold.
        let authority_ends = UNIX_EPOCH + Duration::from_secs(self.description.not_after_s.max(0) as u64);
        params.not_after = params.not_after.min(authority_ends.into());
        params.subject_alt_names = subject_alt_names(name, sans)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let cert_pem = params.signed_by(&key, &self.issuer)?.pem();
        Ok(NodeCertificate { cert_pem, key_pem: key.serialize_pem() })
    }
}

/// Authorities are told apart by a random part of their names.
fn authority_name(rng: &mut impl RngCore) -> String {
    format!("tidegate authority {:08x}", rng.next_u32())
}

fn new_key(rng: &mut impl CryptoRng) -> Result<KeyPair, CertError> {
    let mut pkcs8 = [0u8; 48];
    let (head, seed) = pkcs8.split_at_mut(ED25519_PKCS8.len());
    head.copy_from_slice(&ED25519_PKCS8);
    rng.fill_bytes(seed);
    let pkcs8 = PrivatePkcs8KeyDer::from(pkcs8.as_slice());
    Ok(KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, &rcgen::PKCS_ED25519)?)
}

fn params(common_name: &str, rng: &mut impl RngCore, now_ns: u64, days: u64) -> CertificateParams {
    let mut serial = [0u8; 16];
    rng.fill_bytes(&mut serial);
    // Positive, not zero, and of one length in DER.
    serial[0] = serial[0] & 0x7f | 0x40;
    let now = Duration::from_secs(now_ns / SECOND);
    let mut params = CertificateParams::default();
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.not_before = (UNIX_EPOCH + now.saturating_sub(Duration::from_secs(BACKDATED_HOURS * 3600))).into();
    params.not_after = (UNIX_EPOCH + now + Duration::from_secs(days * 24 * 3600)).into();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn subject_alt_names(name: &NodeName, sans: &[String]) -> Result<Vec<SanType>, CertError> {
    if sans.len() > MAX_SANS {
        return Err(CertError::TooManySans { count: sans.len() });
    }
    let mut all = vec![SanType::DnsName(TLS_NAME.try_into()?), SanType::DnsName(name.as_str().try_into()?)];
    for san in sans {
        let san = match san.parse::<IpAddr>() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => {
                DnsName::try_from(san.as_str()).map_err(|_| CertError::BadSan { san: san.clone() })?;
                SanType::DnsName(san.as_str().try_into()?)
            }
        };
        if !all.contains(&san) {
            all.push(san);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cert::write_new;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    const NOW: u64 = 1_700_000_000 * SECOND;

    fn name(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    #[test]
    fn a_node_certificate_bears_what_was_asked() {
        let mut rng = StdRng::seed_from_u64(1);
        let authority = Authority::generate(&mut rng, NOW).unwrap();
        let sans = ["eu-1.example.net", "10.0.0.1", "eu-1", "::1"].map(str::to_owned);
        let node = authority.issue(&name("eu-1"), &sans, &mut rng, NOW).unwrap();
        let seen = describe(node.cert_pem.as_bytes(), "eu-1.pem").unwrap();
        assert_eq!(seen.subject, "CN=eu-1");
        assert_eq!(seen.names, ["tidegate", "eu-1", "eu-1.example.net", "10.0.0.1", "::1"]);
        assert_eq!(seen.node_names(), [name("eu-1")]);
        assert!(!seen.authority);
        let ca = describe(authority.cert_pem.as_bytes(), "ca.pem").unwrap();
        assert!(ca.authority && ca.subject.starts_with("CN=tidegate authority "));
        assert_eq!(seen.issuer, ca.subject);
        assert_eq!(seen.not_before, "2023-11-14T16:13:20Z");
        assert_eq!(seen.not_after, "2025-11-13T22:13:20Z");
        assert_eq!(seen.expires_in_s(NOW), 730 * 24 * 3600);
        assert_eq!(ca.expires_in_s(NOW), 3652 * 24 * 3600);
    }

    #[test]
    fn the_same_seed_makes_the_same_certificates() {
        let make = |seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            let authority = Authority::generate(&mut rng, NOW).unwrap();
            let node = authority.issue(&name("a"), &[], &mut rng, NOW).unwrap();
            (authority.cert_pem, authority.key_pem, node.cert_pem, node.key_pem)
        };
        assert_eq!(make(7), make(7));
        let (one, other) = (make(7), make(8));
        assert!(one.0 != other.0 && one.1 != other.1 && one.2 != other.2 && one.3 != other.3);
        assert_eq!(one.2.len(), other.2.len());
    }

    #[test]
    fn bad_names_are_refused() {
        let mut rng = StdRng::seed_from_u64(1);
        let authority = Authority::generate(&mut rng, NOW).unwrap();
        for bad in ["", "a b", "*.example", "-", "ä.example", &"x".repeat(300)] {
            let made = authority.issue(&name("a"), &[bad.to_owned()], &mut rng, NOW);
            assert!(matches!(made, Err(CertError::BadSan { san }) if san == bad));
        }
        let many = vec!["a.example".to_owned(); MAX_SANS + 1];
        assert!(matches!(authority.issue(&name("a"), &many, &mut rng, NOW), Err(CertError::TooManySans { count: 65 })));
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let mut rng = StdRng::seed_from_u64(1);
        let authority = Authority::generate(&mut rng, NOW).unwrap();
        let late = NOW + (AUTHORITY_DAYS - 1) * 24 * 3600 * SECOND;
        let node = authority.issue(&name("a"), &[], &mut rng, late).unwrap();
        assert_eq!(describe(node.cert_pem.as_bytes(), "a.pem").unwrap().expires_in_s(late), 24 * 3600);
        let expired = authority.issue(&name("a"), &[], &mut rng, NOW + AUTHORITY_DAYS * 24 * 3600 * SECOND);
        assert!(matches!(expired, Err(CertError::Expired { .. })));
    }

    #[test]
    fn an_authority_is_read_back_and_a_wrong_one_named() {
        let mut rng = StdRng::seed_from_u64(1);
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::generate(&mut rng, NOW).unwrap();
        write_new(&dir.path().join(CA_FILE), authority.cert_pem.as_bytes(), false).unwrap();
        let missing = Authority::load(dir.path()).err().unwrap().to_string();
        assert!(missing.contains(CA_KEY_FILE), "{missing}");
        write_new(&dir.path().join(CA_KEY_FILE), authority.key_pem.as_bytes(), true).unwrap();
        let read = Authority::load(dir.path()).unwrap();
        assert_eq!((&read.cert_pem, &read.key_pem), (&authority.cert_pem, &authority.key_pem));

        let other = Authority::generate(&mut rng, NOW).unwrap();
        std::fs::write(dir.path().join(CA_KEY_FILE), &other.key_pem).unwrap();
        assert!(matches!(Authority::load(dir.path()), Err(CertError::Mismatch { .. })));
        std::fs::write(dir.path().join(CA_KEY_FILE), "nonsense").unwrap();
        assert!(matches!(Authority::load(dir.path()), Err(CertError::BadKey { .. })));
        let node = authority.issue(&name("a"), &[], &mut rng, NOW).unwrap();
        std::fs::write(dir.path().join(CA_FILE), &node.cert_pem).unwrap();
        assert!(matches!(Authority::load(dir.path()), Err(CertError::NotAnAuthority { .. })));
    }
}

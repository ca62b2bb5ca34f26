//! Reading a certificate: who, whose, until when.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use super::CertError;
use crate::id::NodeName;
use crate::time::SECOND;

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Whom it is about.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// The DNS names and IP addresses it is valid for.
    pub names: Vec<String>,
    /// Whether it may sign others.
    pub authority: bool,
    /// Its number, hex.
    pub serial: String,
    /// From when it is valid, as text (UTC).
    pub not_before: String,
    /// Until when it is valid, as text (UTC).
    pub not_after: String,
    /// From when it is valid, Unix seconds.
    pub not_before_s: i64,
    /// Until when it is valid, Unix seconds.
    pub not_after_s: i64,
    /// The key it is about, as DER.
    pub public_key: Vec<u8>,
}

/// Reads the first certificate of a PEM file; `path` is for the errors.
pub fn describe(pem: &[u8], path: &str) -> Result<Description, CertError> {
    let der = CertificateDer::from_pem_slice(pem).map_err(|_| CertError::NoCertificate { path: path.to_owned() })?;
    describe_der(&der).map_err(|problem| CertError::BadCertificate { path: path.to_owned(), problem })
}

/// Reads a certificate in DER form; the error says what is wrong with it.
pub(crate) fn describe_der(der: &[u8]) -> Result<Description, String> {
    let (rest, cert) = X509Certificate::from_der(der).map_err(|e| e.to_string())?;
    if !rest.is_empty() {
        return Err("bytes follow the certificate".to_owned());
    }
    let san = cert.subject_alternative_name().map_err(|e| e.to_string())?;
    let names = san.map(|san| san.value.general_names.iter().filter_map(name_text).collect()).unwrap_or_default();
    let validity = cert.validity();
    Ok(Description {
        subject: cert.subject().to_string(),
        issuer: cert.issuer().to_string(),
        names,
        authority: cert.is_ca(),
        serial: cert.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect(),
        not_before: time_text(validity.not_before),
        not_after: time_text(validity.not_after),
        not_before_s: validity.not_before.timestamp(),
        not_after_s: validity.not_after.timestamp(),
        public_key: cert.public_key().raw.to_vec(),
    })
}

impl Description {
    /// The names that a node may have under this certificate.
    pub fn node_names(&self) -> Vec<NodeName> {
        self.names.iter().filter_map(|name| NodeName::new(name).ok()).collect()
    }

    /// Seconds from `now_ns` (Unix) until it expires; negative once it has.
    pub fn expires_in_s(&self, now_ns: u64) -> i64 {
        self.not_after_s.saturating_sub((now_ns / SECOND) as i64)
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kind        {}", if self.authority { "authority" } else { "node" })?;
        writeln!(f, "subject     {}", self.subject)?;
        writeln!(f, "issuer      {}", self.issuer)?;
        writeln!(f, "names       {}", if self.names.is_empty() { "-".to_owned() } else { self.names.join(", ") })?;
        writeln!(f, "serial      {}", self.serial)?;
        writeln!(f, "not before  {}", self.not_before)?;
        write!(f, "not after   {}", self.not_after)
    }
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|ip| Ipv4Addr::from(ip).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|ip| Ipv6Addr::from(ip).to_string()),
        },
        _ => None,
    }
}

fn time_text(time: ASN1Time) -> String {
    let t = time.to_datetime();
    let (year, month, day) = (t.year(), u8::from(t.month()), t.day());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", t.hour(), t.minute(), t.second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_named() {
        let none = describe(b"-----BEGIN NOTHING-----\n", "x.pem").unwrap_err().to_string();
        assert!(none.starts_with("x.pem holds no certificate"), "{none}");
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let bad = describe(pem.as_bytes(), "y.pem").unwrap_err().to_string();
        assert!(bad.starts_with("y.pem holds a certificate that cannot be read"), "{bad}");
    }
}

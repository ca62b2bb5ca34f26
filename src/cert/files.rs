//! The files of a cluster: never overwritten, private ones readable by their owner only.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use rand::CryptoRng;

use super::CertError;
use crate::id::Secret;

/// The authority's certificate.
pub const CA_FILE: &str = "ca.pem";
/// The authority's private key.
pub const CA_KEY_FILE: &str = "ca.key";
/// The cluster's secret.
pub const SECRET_FILE: &str = "cluster.secret";
/// The largest file that is read for a certificate, key or secret, bytes.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Writes a file that must not exist yet. A private one only its owner can read.
pub fn write_new(path: &Path, bytes: &[u8], private: bool) -> Result<(), CertError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, if private { 0o600 } else { 0o644 });
    let mut file = options.open(path).map_err(|problem| match problem.kind() {
        ErrorKind::AlreadyExists => CertError::Exists { path: text_path(path) },
        _ => CertError::Io { path: text_path(path), problem },
    })?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|problem| {
        // Half a key would be taken for a whole one, and would stand in the way of the next try.
        let _ = std::fs::remove_file(path);
        CertError::Io { path: text_path(path), problem }
    })
}

/// Reads a file of at most [`MAX_FILE_BYTES`].
pub fn read_file(path: &Path) -> Result<Vec<u8>, CertError> {
    let io = |problem| CertError::Io { path: text_path(path), problem };
    let mut bytes = Vec::new();
    File::open(path).map_err(io)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(CertError::TooLarge { path: text_path(path) });
    }
    Ok(bytes)
}

/// A new secret for a cluster.
pub fn new_secret(rng: &mut impl CryptoRng) -> Secret {
    let mut secret = [0u8; 32];
    rng.fill_bytes(&mut secret);
    Secret(secret)
}

/// The secret as it stands in its file.
pub fn secret_text(secret: &Secret) -> String {
    let mut text: String = secret.0.iter().map(|byte| format!("{byte:02x}")).collect();
    text.push('\n');
    text
}

/// Reads a file that [`secret_text`] was written to.
pub fn read_secret(path: &Path) -> Result<Secret, CertError> {
    let bytes = read_file(path)?;
    parse_secret(bytes.trim_ascii()).ok_or_else(|| CertError::BadSecret { path: text_path(path) })
}

fn parse_secret(hex: &[u8]) -> Option<Secret> {
    if hex.len() != 64 {
        return None;
    }
    let mut secret = [0u8; 32];
    for (byte, pair) in secret.iter_mut().zip(hex.chunks_exact(2)) {
        let digit = |hex: u8| char::from(hex).to_digit(16);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(Secret(secret))
}

pub(super) fn read_text(path: &Path) -> Result<String, CertError> {
    let bytes = read_file(path)?;
    String::from_utf8(bytes)
        .map_err(|e| CertError::Io { path: text_path(path), problem: std::io::Error::new(ErrorKind::InvalidData, e) })
}

pub(super) fn text_path(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn nothing_is_overwritten_and_keys_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let (key, cert) = (dir.path().join("a.key"), dir.path().join("a.pem"));
        write_new(&key, b"one", true).unwrap();
        write_new(&cert, b"one", false).unwrap();
        let again = write_new(&key, b"two", true).unwrap_err();
        assert!(matches!(&again, CertError::Exists { path } if path.ends_with("a.key")), "{again}");
        assert_eq!(std::fs::read(&key).unwrap(), b"one");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let nowhere = write_new(&dir.path().join("no/a.key"), b"", true).unwrap_err().to_string();
        assert!(nowhere.contains("no/a.key"), "{nowhere}");
    }

    #[test]
    fn secrets_come_back_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SECRET_FILE);
        let secret = new_secret(&mut StdRng::seed_from_u64(1));
        write_new(&path, secret_text(&secret).as_bytes(), true).unwrap();
        assert_eq!(read_secret(&path).unwrap(), secret);
        let hex = secret_text(&secret);
        for bad in ["", "00", &hex[..63], &format!("{}00", hex.trim()), &"+f".repeat(32), &"g0".repeat(32)] {
            std::fs::write(&path, bad).unwrap();
            assert!(matches!(read_secret(&path), Err(CertError::BadSecret { .. })), "{bad:?}");
        }
        std::fs::write(&path, hex.trim().to_uppercase()).unwrap();
        assert_eq!(read_secret(&path).unwrap(), secret);
        std::fs::write(&path, vec![b' '; MAX_FILE_BYTES as usize + 1]).unwrap();
        assert!(matches!(read_secret(&path), Err(CertError::TooLarge { .. })));
    }
}

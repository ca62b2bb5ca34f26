//! Raw QUIC clients that need not be nodes: what they trust, show and say is up to the test.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tidegate::id::TLS_NAME;

/// How long a node may take to end a connection.
const DEADLINE: Duration = Duration::from_secs(60);

/// A free port of 127.0.0.`host`: addresses of strangers are told apart by the host.
pub fn loopback(host: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, host], 0))
}

/// TLS as a stranger might speak it.
pub struct Stranger<'a> {
    pub trusts: &'a str,
    pub shows: Option<(&'a str, &'a str)>,
    pub alpn: &'a [u8],
}

impl Stranger<'_> {
    /// A client on 127.0.0.`host`.
    pub fn client(&self, host: u8) -> quinn::Endpoint {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.trusts.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut tls = match self.shows {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
                builder
                    .with_client_auth_cert(vec![cert], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                    .unwrap()
            }
        };
        tls.alpn_protocols = vec![self.alpn.to_vec()];
        let mut endpoint = quinn::Endpoint::client(loopback(host)).unwrap();
        let tls = QuicClientConfig::try_from(tls).unwrap();
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
        endpoint
    }
}

/// Connects, says `bytes` on a stream, and waits until the other side has ended it: why.
pub async fn say(client: &quinn::Endpoint, to: SocketAddr, bytes: &[u8]) -> String {
    let attempt = async {
        let conn = client.connect(to, TLS_NAME).unwrap().await?;
        let (mut send, _recv) = conn.open_bi().await?;
        // It may be closed already: what counts is why.
        let _ = send.write_all(bytes).await;
        Err::<(), _>(conn.closed().await)
    };
    let ended: Result<(), quinn::ConnectionError> = tokio::time::timeout(DEADLINE, attempt).await.unwrap();
    ended.unwrap_err().to_string()
}

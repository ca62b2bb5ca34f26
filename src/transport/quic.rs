//! How quinn is set up: bounds, timeouts, keys and ids, the same for production and simulation. All randomness that
//! shows in packet sizes or timing comes from one generator.

use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, ConnectionId, ConnectionIdGenerator, EndpointConfig, ServerConfig, TransportConfig, VarInt};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use ring::hkdf;

use super::tls::{Identity, IdentityError, Wall};
use super::window::FlooredConfig;
use crate::time::Clock;

/// A silent connection is kept alive by a packet this often.
pub const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// A connection on which nothing arrives for this long is given up.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes a peer may have under way to this node that the node has not taken yet.
pub const RECEIVE_WINDOW_BYTES: u32 = 1024 * 1024;
/// Bytes written to a peer that it has not acknowledged: beyond it writers wait.
pub const SEND_WINDOW_BYTES: u64 = 1024 * 1024;
/// First packets of unknown peers that wait for the accept loop.
pub const MAX_INCOMING: usize = 256;
/// Bytes of further early packets kept for one of them.
pub const INCOMING_BUFFER_BYTES: u64 = 32 * 1024;
/// Bytes of further early packets kept for all of them.
pub const INCOMING_BUFFERS_BYTES: u64 = 2 * 1024 * 1024;
/// The length of this node's connection ids.
pub const CONNECTION_ID_BYTES: usize = 8;
/// The length of the id that names a connection before it exists: RFC 9000 wants at least 8, unpredictable.
const FIRST_ID_BYTES: usize = 16;

/// Makes quinn's configurations.
pub(super) struct Quic {
    clock: Arc<dyn Clock>,
    transport: Arc<TransportConfig>,
    token_key: Arc<hkdf::Prk>,
}

impl Quic {
    pub(super) fn new(clock: Arc<dyn Clock>, rng: &mut StdRng) -> Self {
        let mut secret = [0u8; 32];
        rng.fill_bytes(&mut secret);
        let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&secret);
        Self { clock, transport: Arc::new(transport()), token_key: Arc::new(token_key) }
    }

    /// For connections that peers make.
    pub(super) fn server(&self, identity: &Identity) -> Result<ServerConfig, IdentityError> {
        let tls = QuicServerConfig::try_from(identity.server(&self.clock)?)
            .map_err(|e| IdentityError::Setup(e.to_string()))?;
        let mut config = ServerConfig::new(Arc::new(tls), self.token_key.clone());
        config
            .transport_config(self.transport.clone())
            .max_incoming(MAX_INCOMING)
            .incoming_buffer_size(INCOMING_BUFFER_BYTES)
            .incoming_buffer_size_total(INCOMING_BUFFERS_BYTES)
            .time_source(Arc::new(Wall(self.clock.clone())));
        Ok(config)
    }

    /// For connections that this node makes.
    pub(super) fn client(&self, identity: &Identity) -> Result<ClientConfig, IdentityError> {
        let tls = QuicClientConfig::try_from(identity.client(&self.clock)?)
            .map_err(|e| IdentityError::Setup(e.to_string()))?;
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(self.transport.clone());
        Ok(config)
    }
}

/// The endpoint. Its reset key comes from the node's private key, so that the next life of the node can tell peers of
/// this one at once that their connections are gone. For that ids must not be bound to one life either: quinn's default
/// generator would drop such packets unseen.
pub(super) fn endpoint(identity: &Identity, rng: &mut StdRng) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(identity.key_for("stateless reset")));
    let mut seed = [0u8; 32];
    rng.fill_bytes(&mut seed);
    let ids_seed = rng.next_u64();
    config.rng_seed(Some(seed)).cid_generator(move || Box::new(Ids(StdRng::seed_from_u64(ids_seed))));
    config
}

/// An id for the first packets of a connection that this node makes.
pub(super) fn first_id(rng: &mut StdRng) -> ConnectionId {
    let mut id = [0u8; FIRST_ID_BYTES];
    rng.fill_bytes(&mut id);
    ConnectionId::new(&id)
}

struct Ids(StdRng);

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0u8; CONNECTION_ID_BYTES];
        self.0.fill_bytes(&mut id);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// One stream in each direction, nothing else.
fn transport() -> TransportConfig {
    let mut config = TransportConfig::default();
    let idle = VarInt::from_u32(IDLE_TIMEOUT.as_millis() as u32);
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(VarInt::from_u32(RECEIVE_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(RECEIVE_WINDOW_BYTES))
        .send_window(SEND_WINDOW_BYTES)
        .congestion_controller_factory(Arc::new(FlooredConfig::default()))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(Some(idle.into()));
    config
}

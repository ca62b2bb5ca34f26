//! TLS that leaves nothing to chance. What is encrypted decides how the bytes of a packet look, and those what becomes of
//! a packet that reaches a process which did not agree on its keys: with the machine's randomness one seed had several
//! runs. Nothing is secret here.

use std::cell::RefCell;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret, SupportedKxGroup, ring,
};
use rustls::{Error, NamedGroup, PeerMisbehaved};

use crate::seed::Seed;

thread_local! {
    /// A run is one thread.
    static RNG: RefCell<StdRng> = RefCell::new(StdRng::seed_from_u64(0));
}

/// ring's cryptography, but for what it draws. A run on this thread begins with it.
pub fn provider(seed: Seed) -> CryptoProvider {
    RNG.set(seed.rng("tls"));
    CryptoProvider { kx_groups: vec![&Exchange], secure_random: &Seeded, ..ring::default_provider() }
}

#[derive(Debug)]
struct Seeded;

impl SecureRandom for Seeded {
    fn fill(&self, to: &mut [u8]) -> Result<(), GetRandomFailed> {
        RNG.with_borrow_mut(|rng| rng.fill_bytes(to));
        Ok(())
    }
}

/// Goes under the name of X25519, and has keys of the same length.
#[derive(Debug)]
struct Exchange;

impl SupportedKxGroup for Exchange {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut own = [0; KEY_BYTES];
        Seeded.fill(&mut own)?;
        Ok(Box::new(Started(own)))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

const KEY_BYTES: usize = 32;

/// What both sides can make of both keys: all bits in which they differ.
struct Started([u8; KEY_BYTES]);

impl ActiveKeyExchange for Started {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        if peer.len() != KEY_BYTES {
            return Err(PeerMisbehaved::InvalidKeyShare.into());
        }
        let shared: Vec<u8> = self.0.iter().zip(peer).map(|(own, peer)| own ^ peer).collect();
        Ok(SharedSecret::from(&shared[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.0
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

//! Limits that are defined and deleted at run time: written here or heard of, and passed on to every peer.

use std::sync::Arc;

use super::{Gossip, Now, Received};
use crate::crdt::{Registry, RegistryFull, Written};

impl Gossip {
    /// What is known of such limits.
    pub fn definitions(&self) -> &Arc<Registry> {
        &self.definitions
    }

    /// Writes one; None deletes it. What is known here of that name is overruled, everywhere. Wake the writers afterwards.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn define(&mut self, name: &str, value: Option<Arc<str>>, now: &Now) -> Result<(), RegistryFull> {
        let stamp = self.definitions.next_stamp(now.wall_ns, self.own.node.clone());
        Arc::make_mut(&mut self.definitions).merge(name, &Written { stamp, value }).map(|_| ())
    }

    /// What a peer knows. News is passed on to the other peers, and to this one, to whom it says nothing new.
    pub(super) fn take_definitions(&mut self, told: &[(String, Written)]) -> Received {
        let mut defined = Vec::new();
        for (name, written) in told {
            if self.definitions.get(name).is_some_and(|known| known >= written) {
                continue;
            }
            match Arc::make_mut(&mut self.definitions).merge(name, written) {
                Ok(true) => defined.push(name.clone()),
                Ok(false) => {}
                Err(RegistryFull) => self.definitions_refused += 1,
            }
        }
        Received { wake: !defined.is_empty(), defined, ..Received::default() }
    }

    /// Definitions of peers for which there was no room.
    pub fn definitions_refused(&self) -> u64 {
        self.definitions_refused
    }
}

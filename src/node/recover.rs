//! From the records of the journal to the state they tell.

use crate::codec::Chunk;
use crate::engine::Engine;

/// What became of the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Replayed {
    /// Records that could not be read.
    pub damaged: u64,
    /// Records not taken in whole: of a future too far, or beyond `max_cells`. What `have` says of them does not hold.
    pub left_out: u64,
}

/// Whether a record of the journal is a chunk.
pub(super) fn sound(bytes: &[u8]) -> bool {
    Chunk::decode(bytes).is_ok()
}

/// Merges what the journal held, in whatever order it came; what had not expired at `alive_ns` in whole.
pub(super) fn replay(engine: &Engine, now_ns: u64, alive_ns: u64, records: &[Vec<u8>]) -> Replayed {
    let mut replayed = Replayed::default();
    for bytes in records {
        let Ok(chunk) = Chunk::decode(bytes) else {
            replayed.damaged += 1;
            continue;
        };
        match engine.merge_as_of(now_ns, alive_ns, &chunk.replica, &chunk.groups) {
            Ok(merge) => replayed.left_out += u64::from(merge.refused > 0),
            Err(ahead) => {
                tracing::warn!(%ahead, replica = %chunk.replica, "left out a record of the journal");
                replayed.left_out += 1;
            }
        }
    }
    if replayed.left_out > 0 {
        tracing::warn!(records = replayed.left_out, "the journal holds more than was taken in; asking the peers anew");
    }
    replayed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Ask, Op, Settings};
    use crate::id::{NodeName, ReplicaId, Secret};
    use crate::limits::{LimitSet, LimitSpec};
    use crate::time::SECOND;

    const T0: u64 = 1_728_000_000 * SECOND;

    fn engine(max_cells: u64) -> Engine {
        let own = ReplicaId { node: NodeName::new("a").unwrap(), generation: max_cells, nonce: 1 };
        let engine = Engine::new(Settings { max_cells, ..Settings::default() }, own, &Secret([1; 32]));
        let spec = LimitSpec { name: "l".into(), limit: Some(9), window: Some("60s".into()), ..LimitSpec::default() };
        engine.install(T0, LimitSet::new([spec.check().unwrap()]).unwrap());
        engine
    }

    #[test]
    fn what_is_not_taken_in_whole_is_told() {
        let before = engine(100);
        for key in ["x", "y", "z"] {
            before.decide(T0, Op::Check, &[Ask { limit: "l", key, cost: 1 }]).unwrap();
        }
        let part = before.drain(T0).parts.remove(0);
        let (replica, expires_ns) = (before.own(), part.expires_ns);
        let chunk = Chunk { replica, seq: 1, stamp_ns: T0, complete_to_ns: T0, expires_ns, groups: part.groups };
        let records = [chunk.encode()];
        assert_eq!(replay(&engine(3), T0, T0, &records), Replayed::default());
        assert_eq!(replay(&engine(2), T0, T0, &records), Replayed { damaged: 0, left_out: 1 });
        assert_eq!(replay(&engine(4), T0 - 3600 * SECOND, T0, &records), Replayed { damaged: 0, left_out: 1 });
        assert_eq!(replay(&engine(5), T0, T0, &[vec![1, 2, 3]]), Replayed { damaged: 1, left_out: 0 });
    }
}

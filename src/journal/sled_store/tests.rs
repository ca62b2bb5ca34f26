//! What only sled itself can show: foreign formats, damaged files.

use super::*;

fn node() -> NodeName {
    NodeName::new("eu-1").unwrap()
}

fn sound(bytes: &[u8]) -> bool {
    bytes.first() == bytes.last()
}

/// A folder with some batches in it.
fn folder(batches: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    store.recover(&node(), 0, sound).unwrap();
    let own = ReplicaId { node: node(), generation: 3, nonce: 1 };
    store.begin_life(&own).unwrap();
    for seq in 1..=batches {
        let records = vec![crate::journal::Record { expires_ns: 1_000 + seq, bytes: vec![seq as u8; 3_000] }];
        let have = Some(vec![(own.clone(), seq)]);
        store.commit(&Batch { records, have, slot_clock_ns: seq, generation: 3, ..Batch::default() }).unwrap();
    }
    dir
}

/// Changes a tree of the folder behind the store's back.
fn tamper(dir: &Path, change: impl FnOnce(&Opened)) {
    let opened = Opened::open(dir).unwrap();
    change(&opened);
    opened.flush().unwrap();
    opened.close();
}

fn recover(dir: &Path) -> Result<Recovered, StoreError> {
    SledStore::open(dir)?.recover(&node(), 0, sound)
}

#[test]
fn another_format_is_refused_with_both_versions() {
    let dir = folder(2);
    tamper(dir.path(), |opened| _ = opened.meta.insert(FORMAT_KEY, &[0, 9]).unwrap());
    let refused = recover(dir.path()).unwrap_err();
    assert_eq!(refused, StoreError::Version { path: shown(dir.path()), ours: 2, theirs: 9 });
    assert!(refused.to_string().contains("version 9") && refused.to_string().contains("reads 2"));
    tamper(dir.path(), |opened| _ = opened.meta.insert(FORMAT_KEY, b"what").unwrap());
    assert!(matches!(recover(dir.path()), Err(StoreError::Damaged { .. })));
}

#[test]
fn a_folder_that_does_not_say_whose_it_is_is_refused() {
    let dir = folder(2);
    tamper(dir.path(), |opened| _ = opened.meta.insert(META_KEY, b"nonsense").unwrap());
    assert!(matches!(recover(dir.path()), Err(StoreError::Damaged { .. })));
    tamper(dir.path(), |opened| _ = opened.meta.remove(META_KEY).unwrap());
    assert!(matches!(recover(dir.path()), Err(StoreError::Damaged { .. })));
}

#[test]
fn damage_beside_the_records_counts_and_claims_nothing() {
    let dir = folder(3);
    tamper(dir.path(), |opened| {
        let mut bytes = opened.chunks.get(HAVE_KEY).unwrap().unwrap().to_vec();
        bytes[7] ^= 1;
        opened.chunks.insert(HAVE_KEY, bytes).unwrap();
        opened.chunks.insert(LIMITS_KEY, b"no limits").unwrap();
        opened.chunks.insert(b"no record's key", b"xx").unwrap();
    });
    let found = recover(dir.path()).unwrap();
    assert_eq!((found.records.len(), found.damaged, found.have.len()), (3, 3, 0));
    assert_eq!((found.generation, found.limits.len()), (3, 0));
}

/// Whatever happens to sled's file, the store does not panic, and claims nothing that it does not hold.
#[test]
fn a_damaged_file_is_told_or_leaves_a_state_without_gaps() {
    let dir = folder(40);
    let file = dir.path().join(SLED_FOLDER).join(SLED_FILE);
    let good = std::fs::read(&file).unwrap();
    let snapshots = || std::fs::read_dir(dir.path().join(SLED_FOLDER)).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> =
        snapshots().filter(|path| path.is_file()).map(|p| (p.clone(), std::fs::read(p).unwrap())).collect();
    let mut told = 0;
    for case in 0..24usize {
        snapshots().filter(|path| path.is_file()).for_each(|path| std::fs::remove_file(path).unwrap());
        kept.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        let mut bad = good.clone();
        match case % 3 {
            0 => bad.truncate(good.len() * case / 24),
            1 => bad[good.len() * case / 24] ^= 0x20,
            _ => bad[good.len() * case / 24..][..2_000].fill(0),
        }
        std::fs::write(&file, bad).unwrap();
        let Ok(found) = recover(dir.path()) else {
            told += 1;
            continue;
        };
        let mut seqs: Vec<u8> = found.records.iter().map(|bytes| bytes[0]).collect();
        seqs.sort_unstable();
        let reach = found.have.first().map_or(0, |(_, seq)| *seq as u8);
        assert!((1..=reach).all(|seq| seqs.contains(&seq)), "case {case}: have says {reach}, there are {seqs:?}");
    }
    assert!(told < 24, "some of it can be read");
}

#[test]
fn a_folder_emptied_behind_its_back_is_begun_anew_and_claims_nothing_old() {
    let dir = folder(3);
    let mut store = SledStore::open(dir.path()).unwrap();
    store.recover(&node(), 0, sound).unwrap();
    let failure = store.with(|_| Err::<(), _>(std::io::Error::other("unplugged").into())).unwrap_err();
    assert!(failure.to_string().contains("unplugged"));
    std::fs::remove_dir_all(dir.path().join(SLED_FOLDER)).unwrap();
    let records = vec![crate::journal::Record { expires_ns: 5, bytes: vec![1; 9] }];
    store.commit(&Batch { records, have: None, slot_clock_ns: 7, generation: 4, ..Batch::default() }).unwrap();
    drop(store);
    let found = recover(dir.path()).unwrap();
    assert_eq!((found.records.len(), found.have.len(), found.generation, found.damaged), (1, 0, 4, 0));
}

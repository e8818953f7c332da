//! Notes: small facts, each in its own file, which is replaced atomically.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use crate::cache::tier::{ChainKey, FORMAT};

/// Seed of a note's checksum. A note of another chain or format has another seed, so its checksum does not match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seal(u32);

/// The event that a note must survive. Every note survives the end of the process, but it survives a power cut only
/// with a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    Kill,
    PowerCut,
}

/// Reads the note at this path; `None` if it is absent or damaged.
pub(super) fn read<const N: usize>(path: &Path, seal: Seal) -> Option<[u8; N]> {
    let mut text = Vec::with_capacity(N + 5);
    // Read at most one byte more than a note has (`N + 4`), which is enough to notice a longer file.
    File::open(path).ok()?.take(N as u64 + 5).read_to_end(&mut text).ok()?;
    let (fact, sum) = text.split_last_chunk()?;
    let is_whole = seal.sum(fact) == u32::from_le_bytes(*sum);
    fact.try_into().ok().filter(|_| is_whole)
}

/// Replaces the note at this path.
pub(super) fn write<const N: usize>(path: &Path, seal: Seal, fact: &[u8; N], lasts: Lasts) -> io::Result<()> {
    let unfinished = path.with_extension("tmp");
    let written = File::create(&unfinished).and_then(|mut file| {
        file.write_all(&[&fact[..], &seal.sum(fact).to_le_bytes()].concat())?;
        if lasts == Lasts::PowerCut { file.sync_all() } else { Ok(()) }
    });
    if let Err(error) = written.and_then(|()| fs::rename(&unfinished, path)) {
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    match path.parent() {
        Some(folder) if lasts == Lasts::PowerCut => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

// === impl Seal ===

impl Seal {
    /// Seal of a note outside the folders of the chains, such as `DIR/chain`.
    pub(super) fn of_format() -> Self {
        Self(crc32fast::hash(&[FORMAT]))
    }

    /// Seal of a note in the folder of this chain.
    pub(super) fn of_chain(chain: ChainKey) -> Self {
        Self(crc32fast::hash(&chain.to_bytes()))
    }

    fn sum(self, fact: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.0.to_le_bytes());
        hasher.update(fact);
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;
    use crate::cache::disk::scratch::Scratch;

    #[test]
    fn note_round_trips_and_damage_is_refused() {
        let folder = Scratch::new();
        let path = folder.join("note");
        let ours = Seal::of_chain(ChainKey { id: 1, genesis: B256::ZERO });
        let theirs = Seal::of_chain(ChainKey { id: 2, genesis: B256::ZERO });
        assert_eq!(read::<3>(&path, ours), None);
        write(&path, ours, b"one", Lasts::Kill).unwrap();
        write(&path, ours, b"two", Lasts::PowerCut).unwrap();
        assert_eq!(read(&path, ours), Some(*b"two"));
        assert_eq!(read::<3>(&path, theirs), None);
        assert_eq!(read::<2>(&path, ours), None, "another length");
        for at in 0..7 {
            let mut text = fs::read(&path).unwrap();
            text[at] ^= 1;
            let damaged = folder.join("damaged");
            fs::write(&damaged, &text).unwrap();
            assert_eq!(read::<3>(&damaged, ours), None, "byte {at} was changed");
            fs::write(&damaged, &text[..at]).unwrap();
            assert_eq!(read::<3>(&damaged, ours), None, "only {at} bytes");
        }
    }

    #[test]
    fn failed_write_keeps_the_old_note() {
        let folder = Scratch::new();
        let path = folder.join("note");
        let seal = Seal::of_format();
        write(&path, seal, b"one", Lasts::Kill).unwrap();
        // A directory at the path of the unfinished note makes the write fail.
        fs::create_dir(folder.join("note.tmp")).unwrap();
        write(&path, seal, b"two", Lasts::Kill).unwrap_err();
        assert_eq!(read(&path, seal), Some(*b"one"));
    }
}

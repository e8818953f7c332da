//! A small fact in a file of its own, which is replaced atomically. It survives the end of the process, but perhaps not
//! a power cut.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use crate::cache::tier::FORMAT;

/// Reads the note at this path; `None` if it is absent, damaged or of another format.
pub(super) fn read<const N: usize>(path: &Path) -> Option<[u8; N]> {
    let mut text = Vec::with_capacity(N + 5);
    // Read at most one byte more than a note has (`N + 4`), which is enough to notice a longer file.
    File::open(path).ok()?.take(N as u64 + 5).read_to_end(&mut text).ok()?;
    let (fact, said) = text.split_last_chunk()?;
    let is_whole = sum(fact) == u32::from_le_bytes(*said);
    fact.try_into().ok().filter(|_| is_whole)
}

/// Replaces the note at this path.
pub(super) fn write(path: &Path, fact: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("tmp");
    let written = fs::write(&unfinished, [fact, &sum(fact).to_le_bytes()].concat());
    written.and_then(|()| fs::rename(&unfinished, path)).inspect_err(|_| {
        let _ = fs::remove_file(&unfinished);
    })
}

fn sum(fact: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[FORMAT]);
    hasher.update(fact);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::disk::scratch::Scratch;

    #[test]
    fn note_round_trips_and_damage_is_refused() {
        let folder = Scratch::new();
        let path = folder.join("note");
        assert_eq!(read::<3>(&path), None);
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(read(&path), Some(*b"two"));
        assert_eq!(read::<2>(&path), None, "another length");
        for at in 0..7 {
            let mut text = fs::read(&path).unwrap();
            text[at] ^= 1;
            let damaged = folder.join("damaged");
            fs::write(&damaged, &text).unwrap();
            assert_eq!(read::<3>(&damaged), None, "byte {at} was changed");
            fs::write(&damaged, &text[..at]).unwrap();
            assert_eq!(read::<3>(&damaged), None, "only {at} bytes");
        }
    }

    #[test]
    fn failed_write_keeps_the_old_note() {
        let folder = Scratch::new();
        let path = folder.join("note");
        write(&path, b"one").unwrap();
        // A directory at the path of the unfinished note makes the write fail.
        fs::create_dir(folder.join("note.tmp")).unwrap();
        write(&path, b"two").unwrap_err();
        assert_eq!(read(&path), Some(*b"one"));
    }
}

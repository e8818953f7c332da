//! The folder of one chain, and the names of its files.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use tracing::warn;

use super::record::Stamp;
use crate::cache::tier::{ChainKey, FORMAT};

/// Highest segment id. File names have exactly eight digits.
pub(super) const LAST_SEGMENT: u32 = 99_999_999;

/// A chain's folder.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
    chain: ChainKey,
}

/// Suffixes of file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suffix {
    /// A segment, which contains the records.
    Segment,
    /// The index of a full segment.
    Index,
    /// An index under construction. A crash or power cut may leave it behind.
    Unfinished,
}

// === impl Folder ===

impl Folder {
    /// Names the folder by format, chain id and genesis, so that other versions and chains have other folders.
    pub(super) fn new(directory: &Path, chain: ChainKey) -> Self {
        let name = format!("v{FORMAT}-{}-{:x}", chain.id, chain.genesis);
        Self { path: directory.join(name), chain }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn stamp(&self, segment: u32) -> Stamp {
        Stamp { chain: self.chain, segment }
    }

    pub(super) fn file(&self, id: u32, suffix: Suffix) -> PathBuf {
        file(&self.path, id, suffix)
    }
}

/// Returns the path of a segment's file.
pub(super) fn file(folder: &Path, id: u32, suffix: Suffix) -> PathBuf {
    folder.join(format!("{id:08}.{}", suffix.as_str()))
}

/// Returns whether a folder of this name belongs to the disk cache, in any format.
pub(super) fn is_ours(name: &OsStr) -> bool {
    format(name).is_some()
}

/// Returns the format in the name of a chain's folder; `None` if this is not the name of a chain's folder.
fn format(name: &OsStr) -> Option<u8> {
    name.to_str()?.strip_prefix('v')?.split_once('-')?.0.parse().ok()
}

/// Warns of folders in this directory that contain blocks but that Holdfast does not read. These are folders of another
/// format, and data directories inside this one. `cp -a` creates the latter if its target already exists.
pub(super) fn warn_of_unused(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        match format(&name) {
            Some(FORMAT) => {}
            Some(_) => warn!(
                path = %path.display(),
                "ignoring a data directory in the format of another version; Holdfast deletes it when it needs the space"
            ),
            None => {
                let mut inside = fs::read_dir(&path).into_iter().flatten().flatten();
                if inside.any(|entry| is_ours(&entry.file_name())) {
                    warn!(
                        path = %path.display(),
                        "ignoring a data directory inside the configured one; set cache.disk.path to it, or move its \
                         content one level up while Holdfast is stopped"
                    );
                }
            }
        }
    }
}

/// Returns the ids of the segments in a folder, oldest first.
pub(super) fn segments(folder: &Path) -> io::Result<Vec<u32>> {
    let mut ids = all(folder, Suffix::Segment)?;
    ids.sort_unstable();
    Ok(ids)
}

/// Deletes indexes without a segment and unfinished indexes, because the computed size does not include them.
pub(super) fn sweep(folder: &Path) -> io::Result<()> {
    let segments = segments(folder)?;
    let mut leavings = all(folder, Suffix::Index)?;
    leavings.retain(|id| segments.binary_search(id).is_err());
    for id in leavings {
        let _ = fs::remove_file(file(folder, id, Suffix::Index));
    }
    for id in all(folder, Suffix::Unfinished)? {
        let _ = fs::remove_file(file(folder, id, Suffix::Unfinished));
    }
    Ok(())
}

fn all(folder: &Path, wanted: Suffix) -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let parts = name.to_str().and_then(|name| name.split_once('.'));
        let Some((id, _)) = parts.filter(|(id, suffix)| id.len() == 8 && *suffix == wanted.as_str()) else {
            continue;
        };
        // `parse` accepts a leading `+`, which is not a digit.
        ids.extend(id.parse::<u32>().ok().filter(|_| !id.starts_with('+')));
    }
    Ok(ids)
}

/// Deletes a segment and its index. Succeeds if they are already gone.
pub(super) fn delete(folder: &Path, id: u32) -> io::Result<()> {
    // Delete the index first: if deleting the segment then fails, the segment is still readable, record by record.
    for suffix in [Suffix::Index, Suffix::Segment] {
        match fs::remove_file(file(folder, id, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

// === impl Suffix ===

impl Suffix {
    fn as_str(self) -> &'static str {
        match self {
            Self::Segment => "seg",
            Self::Index => "idx",
            Self::Unfinished => "tmp",
        }
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;
    use crate::cache::disk::scratch::Scratch;

    #[test]
    fn folder_name_holds_format_and_chain() {
        let genesis = B256::repeat_byte(0xd4);
        let folder = Folder::new(Path::new("dir"), ChainKey { id: 10, genesis });
        assert_eq!(folder.path(), Path::new(&format!("dir/v3-10-{}", "d4".repeat(32))));
        assert!(is_ours(folder.path().file_name().unwrap()));
        assert!(is_ours(OsStr::new("v4-1-ab")));
        assert!(!["lost+found", "v-1-ab", "vault", "1-1-ab"].iter().any(|name| is_ours(OsStr::new(name))));
    }

    #[test]
    fn only_files_named_like_segments_are_listed() {
        let folder = Scratch::new();
        for name in
            ["00000002.seg", "00000001.seg", "00000001.idx", "3.seg", "+0000003.seg", "00000004.seg.bak"]
        {
            fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(segments(&folder).unwrap(), [1, 2]);
        delete(&folder, 1).unwrap();
        delete(&folder, 1).unwrap();
        assert!(!folder.join("00000001.idx").exists());
        assert_eq!(segments(&folder).unwrap(), [2]);
    }

    #[test]
    fn sweep_removes_only_leftover_files() {
        let folder = Scratch::new();
        let names = ["00000001.idx", "00000001.seg", "00000002.idx", "00000003.tmp", "notes.idx"];
        names.iter().for_each(|name| fs::write(folder.join(name), "").unwrap());
        sweep(&folder).unwrap();
        let left: Vec<_> = names.iter().filter(|name| folder.join(name).exists()).collect();
        assert_eq!(left, [&"00000001.idx", &"00000001.seg", &"notes.idx"]);
    }
}

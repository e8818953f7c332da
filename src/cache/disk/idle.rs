//! Segments of chains whose log is not open yet. They count towards the size limit, and the writer evicts them first.

use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::folder::{self, Suffix};

/// All folders, of any format, whose log is not open.
#[derive(Debug, Default)]
pub(super) struct Idle(Vec<IdleFolder>);

#[derive(Debug)]
struct IdleFolder {
    path: PathBuf,
    /// The segments, oldest first.
    segments: VecDeque<IdleSegment>,
}

#[derive(Clone, Copy, Debug)]
struct IdleSegment {
    id: u32,
    bytes: u64,
    written: SystemTime,
}

// === impl Idle ===

impl Idle {
    /// Lists the folders of this directory and their segments, without reading the files.
    pub(super) fn find(directory: &Path) -> io::Result<Self> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if folder::is_ours(&entry.file_name()) && entry.file_type()?.is_dir() {
                folders.push(IdleFolder::find(entry.path())?);
            }
        }
        Ok(Self(folders))
    }

    /// Takes a folder off this list, because its log is now open. From now on, the log counts its segments.
    pub(super) fn take_out(&mut self, folder: &Path) {
        self.0.retain(|idle| idle.path != folder);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().flat_map(|folder| &folder.segments).map(|segment| segment.bytes).sum()
    }

    /// Compares the first segments of all folders, and deletes the one with the oldest modification time. Returns
    /// `false` if there is no segment.
    pub(super) fn evict(&mut self) -> io::Result<bool> {
        let oldest = |folder: &&mut IdleFolder| folder.segments.front().map(|segment| segment.written);
        let folders = self.0.iter_mut().filter(|folder| !folder.segments.is_empty());
        let Some(folder) = folders.min_by_key(oldest) else { return Ok(false) };
        if let Some(segment) = folder.segments.front() {
            folder::delete(&folder.path, segment.id)?;
            folder.segments.pop_front();
        }
        Ok(true)
    }
}

// === impl IdleFolder ===

impl IdleFolder {
    fn find(path: PathBuf) -> io::Result<Self> {
        let ids = folder::segments(&path)?;
        let segments = ids.into_iter().filter_map(|id| {
            let file = fs::metadata(folder::file(&path, id, Suffix::Segment)).ok()?;
            let index = fs::metadata(folder::file(&path, id, Suffix::Index)).map_or(0, |index| index.len());
            let written = file.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            Some(IdleSegment { id, bytes: file.len() + index, written })
        });
        let segments = segments.collect();
        Ok(Self { path, segments })
    }
}

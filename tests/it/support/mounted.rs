//! A small file system of its own, to be full or read-only.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::eventually;

/// Half a mebibyte in memory, mounted until this is dropped.
pub struct Mounted {
    folder: PathBuf,
}

impl Mounted {
    /// `None` where that is not allowed: then the test is left out, and says so.
    pub fn new(test: &str, folder: PathBuf) -> Option<Self> {
        fs::create_dir_all(&folder).unwrap();
        let mounted = Self { folder };
        if mounted.mount(&["-t", "tmpfs", "-o", "size=512k", "tmpfs"]) {
            return Some(mounted);
        }
        let _ = writeln!(io::stderr(), "LEFT OUT: {test}: no file system can be mounted here");
        None
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits for whoever has a file open just now: none may be open for writing.
    pub async fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        eventually(&options, async || self.mount(&["-o", &options])).await;
    }

    fn mount(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new("mount");
        command.args(arguments).arg(&self.folder).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).stderr(Stdio::null()).status();
    }
}

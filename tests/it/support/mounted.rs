//! A small file system that tests can fill or make read-only.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{eventually, tools};

/// A tmpfs of 512 KiB. Unmounted when dropped.
pub struct Mounted {
    folder: PathBuf,
}

impl Mounted {
    /// Mounts a file system. Returns `None`, and reports that the test is skipped, if mounting is not allowed.
    pub fn new(test: &str, folder: PathBuf) -> Option<Self> {
        fs::create_dir_all(&folder).unwrap();
        let mounted = Self { folder };
        if mounted.mount(&["-t", "tmpfs", "-o", "size=512k", "tmpfs"]) {
            return Some(mounted);
        }
        tools::skip(test, "mounting a file system needs root");
        None
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Remounts with other options, as soon as no file is open for writing.
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

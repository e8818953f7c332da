//! A file that is there whole or not at all.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::cli::Failure;

/// A file under another name, until it is finished. Dropped before that, it is gone.
pub(super) struct Draft {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

// === impl Draft ===

impl Draft {
    /// Begins a file that will be at `path`; with `force` in place of what is there.
    pub(super) fn begin(path: &Path, force: bool) -> Result<Self, Failure> {
        match fs::symlink_metadata(path) {
            Ok(there) if !there.is_file() => {
                let path = path.display();
                return Err(Failure::Other(format!(
                    "{path} is no ordinary file, and is not replaced: --out - writes to standard output"
                )));
            }
            Ok(_) if !force => {
                return Err(Failure::Other(format!(
                    "{} is there already: --force replaces it",
                    path.display()
                )));
            }
            _ => {}
        }
        let mut temporary = path.as_os_str().to_owned();
        // Not another's, be it of the same name.
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(temporary);
        let file = File::create_new(&temporary).map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: path.to_owned(), temporary, file })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// All has been written: it takes its name, once it is on the disk.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let finished = self.file.sync_all().and_then(|()| fs::rename(&self.temporary, &self.path));
        finished.map_err(|error| cannot_write(&self.path, &error))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Not there any more if it was finished.
        let _ = fs::remove_file(&self.temporary);
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Other(format!("cannot write {}: {error}", path.display()))
}

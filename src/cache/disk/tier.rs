//! The tier on disk.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use tokio::sync::{Mutex, Semaphore};
use tracing::debug;

use super::{
    error::DiskError,
    folder,
    log::Log,
    note,
    record::Head,
    writer::{Shared, Writer},
};
use crate::{
    blocking,
    cache::{
        config::DiskConfig,
        tier::{ChainKey, Part, Record, Sealed, Tier, TierError, TierKind, Tiered, Usage},
    },
    eth::{BlockHash, BlockNumber, Home, TxHash},
};

/// Maximum number of concurrent reads. If the disk hangs, they block at most this many threads of the runtime's
/// blocking pool.
const READERS: usize = 32;

/// Name of the lock file.
const LOCK: &str = "lock";

/// The tier on disk.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    limit: u64,
    shared: Arc<Shared>,
    /// An async mutex, so that a write that waits for another write blocks no thread.
    writer: Arc<Mutex<Writer>>,
    readers: Arc<Semaphore>,
}

// === impl Disk ===

impl Disk {
    /// Locks the directory for this process and computes its size. The tier opens the log of each chain on first use.
    ///
    /// # Errors
    /// If the directory cannot be used, or another process uses it.
    pub fn open(config: &DiskConfig) -> Result<Self, DiskError> {
        let path = &config.path;
        fs::create_dir_all(path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                DiskError::NotADirectory(path.clone())
            }
            _ => DiskError::CannotBeMade { path: path.clone(), source },
        })?;
        let lock = lock(path)?;
        folder::warn_of_unused(path);
        let shared = Arc::<Shared>::default();
        let limit = config.size.as_u64();
        let writer = Writer::open(path.clone(), limit, lock, shared.clone())
            .map_err(|source| DiskError::CannotBeRead { path: path.clone(), source })?;
        Ok(Self {
            path: path.clone(),
            limit,
            shared,
            writer: Arc::new(Mutex::new(writer)),
            readers: Arc::new(Semaphore::new(READERS)),
        })
    }

    /// Checks whether [`open`](Self::open) would succeed, except that another process may use the directory. Leaves
    /// nothing behind.
    ///
    /// # Errors
    /// The error that `open` would return.
    pub fn check(config: &DiskConfig) -> Result<(), DiskError> {
        let path = config.path.clone();
        match fs::metadata(&path) {
            Ok(there) if !there.is_dir() => return Err(DiskError::NotADirectory(path)),
            Ok(_) => {}
            Err(_) => {
                let above =
                    path.ancestors().skip(1).find(|above| above.as_os_str().is_empty() || above.exists());
                let above = above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
                if !above.is_dir() {
                    return Err(DiskError::NotADirectory(path));
                }
                let probe = above.join(probe_name());
                let made = fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe));
                return made.map_err(|source| DiskError::CannotBeMade { path, source });
            }
        }
        if let Err(source) = fs::read_dir(&path) {
            return Err(DiskError::CannotBeRead { path, source });
        }
        if path.join(LOCK).exists() {
            open_lock(&path)?;
        }
        let probe = path.join(probe_name());
        let written = File::create_new(&probe).and_then(|_| fs::remove_file(&probe));
        written.map_err(|source| DiskError::CannotBeWritten { path, source })
    }

    /// Runs `work` with the writer on a blocking thread.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> io::Result<T> + Send + 'static,
    ) -> Result<T, TierError> {
        let mut writer = self.writer.clone().lock_owned().await;
        self.on_a_thread(move || work(&mut writer)).await
    }

    async fn look<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, TierError> {
        let turn = self.readers.clone().acquire_owned().await.map_err(io::Error::other)?;
        self.on_a_thread(move || {
            let _turn = turn;
            work()
        })
        .await
    }

    async fn on_a_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, TierError> {
        let done = blocking::run(work).await.map_err(|died| io::Error::other(died.to_string()))?;
        // Add the path, which errors of the operating system do not name.
        done.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())).into())
    }

    /// Removes a record from the index; otherwise, the writer would not write it again.
    async fn remove_unreadable(&self, chain: ChainKey, part: Part, found: (u32, Head)) {
        let removed = self.change(move |writer| writer.remove_unreadable(chain, part, found)).await;
        debug!(hash = %found.1.hash, ?part, ?removed, "unreadable record in the disk cache");
    }

    async fn log(&self, chain: ChainKey) -> Result<Arc<Log>, TierError> {
        match self.shared.log(chain) {
            Some(log) => Ok(log),
            None => self.change(move |writer| writer.log(chain)).await,
        }
    }
}

impl Tier for Disk {
    fn kind(&self) -> TierKind {
        TierKind::Disk
    }

    fn get(&self, chain: ChainKey, part: Part, hash: BlockHash) -> Tiered<'_, Option<Sealed>> {
        Box::pin(async move {
            let log = self.log(chain).await?;
            let Some(found) = log.find(part, hash) else { return Ok(None) };
            let value = self.look(move || log.value(found)).await?;
            if value.is_none() {
                self.remove_unreadable(chain, part, found).await;
            }
            Ok(value.map(Sealed::from))
        })
    }

    fn headers(&self, chain: ChainKey, blocks: Vec<BlockHash>) -> Tiered<'_, Vec<Option<Sealed>>> {
        Box::pin(async move {
            let log = self.log(chain).await?;
            let found: Vec<_> = blocks.iter().map(|hash| log.find(Part::Header, *hash)).collect();
            let places = found.clone();
            let read = move |place: Option<_>| place.map_or(Ok(None), |place| log.value(place));
            let values: Vec<_> = self.look(move || places.into_iter().map(read).collect()).await?;
            for found in
                found.into_iter().zip(&values).filter_map(|(found, value)| found.filter(|_| value.is_none()))
            {
                self.remove_unreadable(chain, Part::Header, found).await;
            }
            Ok(values.into_iter().map(|value| value.map(Sealed::from)).collect())
        })
    }

    fn hints(&self, chain: ChainKey, from: BlockNumber, count: usize) -> Tiered<'_, Vec<Option<BlockHash>>> {
        Box::pin(async move { Ok(self.log(chain).await?.hints(from, count)) })
    }

    fn home_of(&self, chain: ChainKey, transaction: TxHash) -> Tiered<'_, Option<Home>> {
        Box::pin(async move {
            let log = self.log(chain).await?;
            let candidates = log.may_have(transaction);
            if candidates.is_empty() {
                return Ok(None);
            }
            self.look(move || log.home_of(transaction, candidates)).await
        })
    }

    fn put(&self, chain: ChainKey, record: Record) -> Tiered<'_, bool> {
        Box::pin(self.change(move |writer| writer.put(chain, record)))
    }

    fn remove(&self, chain: ChainKey, part: Part, hash: BlockHash) -> Tiered<'_, bool> {
        Box::pin(self.change(move |writer| writer.remove(chain, part, hash)))
    }

    fn drop_hints(&self, chain: ChainKey, blocks: Arc<[Home]>) -> Tiered<'_, bool> {
        Box::pin(self.change(move |writer| {
            // Remove all from the index, even if the disk takes none of the removals.
            let removals: Vec<_> =
                blocks.iter().map(|home| writer.remove(chain, Part::Header, home.block)).collect();
            removals.into_iter().try_fold(false, |any, is_written| Ok(any | is_written?))
        }))
    }

    fn last_chain(&self) -> Tiered<'_, Option<ChainKey>> {
        let path = self.path.join("chain");
        Box::pin(self.look(move || Ok(note::read(&path).and_then(|bytes| ChainKey::from_bytes(&bytes)))))
    }

    fn follow(&self, chain: Option<ChainKey>) -> Tiered<'_, ()> {
        let path = self.path.join("chain");
        Box::pin(self.change(move |_| {
            // If the new note cannot be written, remove the old one. Otherwise, the next start would serve entries of
            // the previous chain.
            let forget = || match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
            let Some(chain) = chain else { return forget() };
            note::write(&path, &chain.to_bytes()).inspect_err(|_| drop(forget()))
        }))
    }

    fn knows_what_it_has(&self) -> bool {
        true
    }

    fn usage(&self) -> Usage {
        Usage {
            bytes: Some(self.shared.bytes()),
            capacity: Some(self.limit),
            blocks: Some(self.shared.blocks()),
            evictions: self.shared.evictions(),
        }
    }
}

/// Locks the directory. The operating system releases the lock when the process ends, even if the process is killed.
fn lock(directory: &Path) -> Result<File, DiskError> {
    let lock = open_lock(directory)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(DiskError::InUse(directory.to_owned())),
        Err(TryLockError::Error(source)) => {
            Err(DiskError::CannotBeWritten { path: directory.to_owned(), source })
        }
    }
}

fn open_lock(directory: &Path) -> Result<File, DiskError> {
    let unusable = |source| DiskError::CannotBeWritten { path: directory.to_owned(), source };
    let path = directory.join(LOCK);
    if fs::symlink_metadata(&path).is_ok_and(|there| !there.is_file()) {
        // Do not open the file: opening a pipe would block.
        return Err(unusable(io::Error::other("its \"lock\" is not a regular file")));
    }
    OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(unusable)
}

/// Returns a name for a file or folder that a check creates and removes.
fn probe_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!(".holdfast-check-{}-{}", std::process::id(), now.as_nanos())
}

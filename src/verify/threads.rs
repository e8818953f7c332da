//! Runs proofs on dedicated threads behind a bounded queue.
//!
//! The proof of a block of 300 transactions takes about 20 ms of CPU time. A burst of cache misses could fill all cores
//! with proofs and delay cache hits. So the proof threads leave one core free (if there are several), run at a lower
//! priority where the system supports that, and further proofs wait in a queue that is bounded in entries, bytes and
//! time.

use std::{
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tracing::error;

use super::{metrics::Metrics, overdue::Overdue};
use crate::{blocking, timeout::timeout};

/// Number of bytes per permit of the queue.
const UNIT: usize = 1 << 10;

/// Niceness of proof threads. At 10, proof threads get about a tenth of a core that other threads keep busy, and an
/// idle core as a whole.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Limits of the proof threads and their queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofLimits {
    /// Number of threads, and maximum number of proofs that run at a time.
    pub threads: usize,
    /// Maximum number of proofs that wait.
    pub waiting: usize,
    /// Maximum total size of the waiting answers, in bytes. A larger answer waits alone.
    pub bytes: usize,
}

/// How long the caller waits for a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// At most this long, in the queue and while the proof runs. If the queue is full, the proof fails at once.
    Within(Duration),
    /// As long as it takes, or until the caller's deadline.
    Unlimited,
}

/// The proof threads and their queue.
#[derive(Debug)]
pub(super) struct ProofThreads {
    limits: ProofLimits,
    /// The threads, which start with the first proof.
    pool: OnceLock<Arc<ThreadPool>>,
    /// One permit per thread. The permits limit the proofs that run at a time: without them, a rayon thread that waits
    /// for other threads to finish their parts of its block could start another proof on top of its stack.
    free: Arc<Semaphore>,
    places: Semaphore,
    bytes: Semaphore,
    metrics: Metrics,
}

// === impl ProofLimits ===

impl Default for ProofLimits {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // Within 2 s, one thread proves about a hundred full blocks or ten thousand transactions.
        Self { threads: cores.saturating_sub(1).max(1), waiting: 512, bytes: 64 << 20 }
    }
}

// === impl ProofThreads ===

impl ProofThreads {
    pub(super) fn new(limits: ProofLimits, metrics: Metrics) -> Self {
        let ProofLimits { threads, waiting, bytes } = limits;
        Self {
            limits,
            pool: OnceLock::new(),
            free: Arc::new(Semaphore::new(threads)),
            places: Semaphore::new(waiting),
            bytes: Semaphore::new(units(bytes)),
            metrics,
        }
    }

    /// Runs `work` on an answer of `size` bytes. Once started, `work` runs to its end, even if the caller stops
    /// waiting.
    ///
    /// # Errors
    /// If `work` did not start or end in time, or panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        size: usize,
        patience: Patience,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Overdue> {
        let begun = Instant::now();
        let free = match self.free.clone().try_acquire_owned() {
            Ok(free) => free,
            Err(_) => self.wait(size, patience).await?,
        };
        let pool = self.pool.get_or_init(|| Arc::new(start(self.limits.threads))).clone();
        // The blocking thread of the tokio runtime only waits for the pool. Without that thread, the paused clock of a
        // test would advance while a proof runs.
        let done = blocking::run(move || {
            let _free = free;
            pool.install(work)
        });
        let done = match patience {
            Patience::Within(limit) => {
                let left = limit.saturating_sub(begun.elapsed());
                timeout(left, done).await.map_err(|_| Overdue::Slow)?
            }
            Patience::Unlimited => done.await,
        };
        done.map_err(|died| {
            error!(%died, "verification of an answer panicked; not caching it (this is a bug)");
            Overdue::Panicked
        })
    }

    /// Waits in the queue for a thread.
    async fn wait(&self, size: usize, patience: Patience) -> Result<OwnedSemaphorePermit, Overdue> {
        const OPEN: &str = "the semaphore is never closed";
        let _counted = self.metrics.waits();
        let free = self.free.clone().acquire_owned();
        let units = u32::try_from(units(size.min(self.limits.bytes))).unwrap_or(u32::MAX);
        match patience {
            Patience::Within(limit) => {
                let _place = self.places.try_acquire().map_err(|_| Overdue::QueueFull)?;
                let _bytes = self.bytes.try_acquire_many(units).map_err(|_| Overdue::QueueFull)?;
                let free = timeout(limit, free).await.map_err(|_| Overdue::QueueWait)?;
                Ok(free.expect(OPEN))
            }
            Patience::Unlimited => {
                let _place = self.places.acquire().await.expect(OPEN);
                let _bytes = self.bytes.acquire_many(units).await.expect(OPEN);
                Ok(free.await.expect(OPEN))
            }
        }
    }
}

/// Returns the number of permits for an answer of this size.
fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

fn start(threads: usize) -> ThreadPool {
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|at| format!("proof-{at}"))
        .start_handler(|_| lower_priority())
        .build();
    pool.expect("proof threads can be spawned")
}

/// Lowers the priority of the current thread, if the system supports that.
fn lower_priority() {
    // On Linux the priority belongs to the thread. On other systems this would lower the priority of the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "could not lower the priority of a proof thread");
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            atomic::{AtomicBool, Ordering::Relaxed},
            mpsc,
        },
        task::{Context, Waker},
    };

    use futures_util::FutureExt;
    use tokio::{sync::oneshot, task, time};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    const SHORT: Patience = Patience::Within(PATIENCE);

    const ONE: ProofLimits = ProofLimits { threads: 1, waiting: 1, bytes: 4 * UNIT };

    fn threads(limits: ProofLimits) -> Arc<ProofThreads> {
        Arc::new(ProofThreads::new(limits, Metrics::default()))
    }

    /// Work that has started, and ends when `release` gets a message.
    struct Occupied {
        release: mpsc::SyncSender<()>,
        done: task::JoinHandle<Result<(), Overdue>>,
    }

    async fn occupy(threads: &Arc<ProofThreads>) -> Occupied {
        let (release, released) = mpsc::sync_channel::<()>(1);
        let (begins, begun) = oneshot::channel();
        let threads = threads.clone();
        let done = tokio::spawn(async move {
            let work = move || {
                begins.send(()).unwrap();
                released.recv().unwrap();
            };
            threads.run(1, Patience::Unlimited, work).await
        });
        begun.await.unwrap();
        Occupied { release, done }
    }

    impl Occupied {
        async fn end(self) {
            self.release.send(()).unwrap();
            self.done.await.unwrap().unwrap();
        }
    }

    fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn a_full_queue_takes_no_more_entries() {
        let threads = threads(ONE);
        let occupied = occupy(&threads).await;
        let mut waits = Box::pin(threads.run(1, SHORT, || 7));
        assert!(!poll_once(waits.as_mut()));
        assert_eq!(threads.run(1, SHORT, || ()).await, Err(Overdue::QueueFull));
        occupied.end().await;
        assert_eq!(waits.await, Ok(7));
        assert_eq!(threads.run(1, SHORT, || 8).await, Ok(8));
    }

    #[tokio::test]
    async fn the_queue_is_bounded_in_bytes() {
        let threads = threads(ProofLimits { waiting: 9, ..ONE });
        let occupied = occupy(&threads).await;
        // An answer larger than the queue waits alone.
        let mut large = Box::pin(threads.run(1 << 30, SHORT, || 7));
        assert!(!poll_once(large.as_mut()));
        assert_eq!(threads.run(1, SHORT, || ()).await, Err(Overdue::QueueFull));
        drop(large);
        let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(threads.run(UNIT, SHORT, || 7))).collect();
        assert!(waiting.iter_mut().all(|waits| !poll_once(waits.as_mut())));
        assert_eq!(threads.run(1, SHORT, || ()).await, Err(Overdue::QueueFull));
        occupied.end().await;
        for waits in waiting {
            assert_eq!(waits.await, Ok(7));
        }
    }

    #[tokio::test]
    async fn unlimited_patience_waits_before_a_full_queue() {
        let threads = threads(ONE);
        let occupied = occupy(&threads).await;
        let mut all: Vec<_> =
            (0..3).map(|at| Box::pin(threads.run(1, Patience::Unlimited, move || at))).collect();
        assert!(all.iter_mut().all(|waits| !poll_once(waits.as_mut())));
        occupied.end().await;
        for (at, waits) in all.into_iter().enumerate() {
            assert_eq!(waits.await, Ok(at));
        }
    }

    #[tokio::test]
    async fn short_patience_ends_in_the_queue() {
        let threads = threads(ONE);
        let occupied = occupy(&threads).await;
        time::pause();
        let mut waits = Box::pin(threads.run(1, SHORT, || ()));
        assert!(!poll_once(waits.as_mut()));
        time::advance(PATIENCE * 2).await;
        assert_eq!(waits.await, Err(Overdue::QueueWait));
        time::resume();
        occupied.end().await;
    }

    #[tokio::test]
    async fn short_patience_ends_during_the_work() {
        let threads = threads(ONE);
        let (release, released) = mpsc::sync_channel::<()>(1);
        let slow = threads.run(1, Patience::Within(Duration::from_millis(1)), move || released.recv());
        assert_eq!(slow.await, Err(Overdue::Slow));
        release.send(()).unwrap();
        assert_eq!(threads.run(1, Patience::Unlimited, || 7).await, Ok(7));
    }

    #[tokio::test]
    async fn abandoned_work_leaves_the_queue() {
        let threads = threads(ONE);
        let (occupied, ran) = (occupy(&threads).await, Arc::new(AtomicBool::new(false)));
        let runs = ran.clone();
        let mut gone = Box::pin(threads.run(1, SHORT, move || runs.store(true, Relaxed)));
        assert!(!poll_once(gone.as_mut()));
        drop(gone);
        let mut waits = Box::pin(threads.run(1, SHORT, || 7));
        assert!(!poll_once(waits.as_mut()), "the place of the dropped work is free again");
        occupied.end().await;
        assert_eq!(waits.await, Ok(7));
        assert!(!ran.load(Relaxed));
    }

    #[tokio::test]
    async fn panic_is_reported_and_the_thread_continues() {
        let threads = threads(ONE);
        let panics: Result<(), _> = threads.run(1, SHORT, || panic!("on purpose")).await;
        assert_eq!(panics, Err(Overdue::Panicked));
        assert_eq!(threads.run(1, SHORT, || 7).await, Ok(7));
    }

    #[tokio::test]
    async fn work_runs_on_a_proof_thread_of_low_priority() {
        let threads = threads(ONE);
        let name = threads.run(1, SHORT, || thread::current().name().map(str::to_owned)).await;
        assert_eq!(name.unwrap().as_deref(), Some("proof-0"));
        #[cfg(target_os = "linux")]
        {
            let niceness = || rustix::process::getpriority_process(None).unwrap();
            let lowest = (niceness() + NICENESS).min(19);
            assert_eq!(threads.run(1, SHORT, niceness).await.unwrap(), lowest);
        }
    }

    /// A worker that still polls a task after the runtime began to shut down cannot start a proof.
    #[test]
    fn shutdown_is_not_a_panic() {
        let threads = threads(ONE);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (begins, begun) = mpsc::sync_channel(1);
        let (shuts_down, shut_down) = mpsc::sync_channel::<()>(1);
        let (ends, ended) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            begins.send(()).unwrap();
            shut_down.recv().unwrap();
            let proof = Box::pin(threads.run(1, Patience::Unlimited, || ()));
            ends.send(proof.now_or_never()).unwrap();
        });
        begun.recv().unwrap();
        runtime.shutdown_background();
        shuts_down.send(()).unwrap();
        assert_eq!(ended.recv().unwrap(), None);
    }
}

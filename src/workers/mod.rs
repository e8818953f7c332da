//! Runs long computations on threads of their own, behind a bounded queue in which clients take turns.
//!
//! The proof of a block of 300 transactions takes about 20 ms of CPU time. A burst of cache misses could fill all cores
//! with proofs and delay cache hits. So these threads leave one core free (if there are several), run at a lower
//! priority where the system supports that, and further jobs wait in a queue that is bounded in entries, bytes and time.

mod overdue;
mod turns;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use prometheus_client::metrics::gauge::Gauge;
use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::time::Instant;
use tracing::error;

use self::turns::{Turn, Turns};
pub use self::{overdue::Overdue, turns::Limits};
use crate::{blocking, context::CallContext, timeout::timeout};

/// Niceness of the threads. At 10, they get about a tenth of a core that other threads keep busy, and an idle core as a
/// whole.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// How long the caller waits for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// At most this long, in the queue and while the job runs. If the queue is full, the job fails at once.
    Within(Duration),
    /// As long as it takes, or until the caller's deadline.
    Unlimited,
}

/// The threads and their queue.
#[derive(Debug)]
pub struct Workers {
    name: &'static str,
    limits: Limits,
    /// The threads, which start with the first job.
    pool: OnceLock<Arc<ThreadPool>>,
    /// One permit per thread. The permits limit the jobs that run at a time: without them, a rayon thread that waits for
    /// other threads to finish their parts of its block could start another job on top of its stack.
    turns: Turns,
    waiting: Gauge,
}

/// Counts a job as waiting.
struct Waits<'a>(&'a Gauge);

// === impl Workers ===

impl Workers {
    /// Returns threads whose names begin with `name`. The gauge counts the jobs that wait.
    pub fn new(name: &'static str, limits: Limits, waiting: Gauge) -> Self {
        Self { name, limits, pool: OnceLock::new(), turns: Turns::new(limits), waiting }
    }

    /// Runs `work` on `size` bytes for the client of the current call. Once started, `work` runs to its end, even if the
    /// caller stops waiting.
    ///
    /// # Errors
    /// If `work` did not start or end in time, or panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        size: usize,
        patience: Patience,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Overdue> {
        let begun = Instant::now();
        let turn = match self.turns.try_take() {
            Some(turn) => turn,
            None => self.wait(size, patience).await?,
        };
        let pool = self.pool.get_or_init(|| Arc::new(start(self.name, self.limits.threads))).clone();
        // The blocking thread of the tokio runtime only waits for the pool. Without that thread, the paused clock of a
        // test would advance while a job runs.
        let done = blocking::run(move || {
            let _turn = turn;
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
            error!(%died, threads = self.name, "a job panicked (this is a bug)");
            Overdue::Panicked
        })
    }

    /// Waits in the queue for a thread.
    async fn wait(&self, size: usize, patience: Patience) -> Result<Turn, Overdue> {
        let _counted = Waits::new(&self.waiting);
        let client = CallContext::client();
        let turn = match patience {
            Patience::Within(limit) => {
                timeout(limit, self.turns.take(client, size, false)).await.map_err(|_| Overdue::QueueWait)?
            }
            Patience::Unlimited => self.turns.take(client, size, true).await,
        };
        turn.ok_or(Overdue::QueueFull)
    }
}

// === impl Waits ===

impl<'a> Waits<'a> {
    fn new(waiting: &'a Gauge) -> Self {
        waiting.inc();
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn start(name: &'static str, threads: usize) -> ThreadPool {
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |at| format!("{name}-{at}"))
        .start_handler(|_| lower_priority())
        .build();
    pool.expect("threads can be spawned")
}

/// Lowers the priority of the current thread, if the system supports that.
fn lower_priority() {
    // On Linux the priority belongs to the thread. On other systems this would lower the priority of the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "could not lower the priority of a thread");
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
        thread,
    };

    use futures_util::FutureExt;
    use tokio::{sync::oneshot, task, time};

    use super::*;

    const UNIT: usize = 1 << 10;

    const PATIENCE: Duration = Duration::from_secs(2);

    const SHORT: Patience = Patience::Within(PATIENCE);

    const ONE: Limits = Limits { threads: 1, waiting: 1, bytes: 4 * UNIT };

    fn threads(limits: Limits) -> Arc<Workers> {
        Arc::new(Workers::new("proof", limits, Gauge::default()))
    }

    /// Work that has started, and ends when `release` gets a message.
    struct Occupied {
        release: mpsc::SyncSender<()>,
        done: task::JoinHandle<Result<(), Overdue>>,
    }

    async fn occupy(threads: &Arc<Workers>) -> Occupied {
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
        let threads = threads(Limits { waiting: 9, ..ONE });
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
    async fn work_runs_on_a_named_thread_of_low_priority() {
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

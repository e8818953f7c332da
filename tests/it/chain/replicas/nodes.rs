//! A master chain, replicas that follow it with a lag, and the balancer in front of them.

use std::{
    array,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use alloy_primitives::B256;
use bytes::Bytes;
use fastrand::Rng;
use holdfast::devchain::{Config, DevChain, NodeResponse};
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    net::TcpListener,
    time::{self, Instant},
};

use crate::support::upstream;

const REPLICAS: usize = 3;

/// Longest lag of a replica.
const MAX_LAG: Duration = Duration::from_secs(5);

/// Time for which the proxy may show the branch of a replica that has left it: the other replicas may lag behind the new
/// branch, the head may be stale, and the machine may be busy.
const WINDOW: Duration = Duration::from_secs(10);

/// How the balancer distributes requests.
#[derive(Clone, Copy, Debug)]
pub enum Balance {
    /// Each connection reaches one replica, until the balancer closes it after some requests.
    Connections,
    /// Each request reaches any replica.
    Requests,
}

/// The nodes and their past.
pub struct Nodes {
    /// The chain without lag. It has every block.
    pub master: DevChain,
    replicas: Vec<DevChain>,
    /// Number of blocks by which `finalized` trails the head.
    finality: usize,
    history: Mutex<History>,
}

/// Hashes of the blocks from the genesis to a head.
type Branch = Vec<B256>;

struct History {
    /// The branches of the master, each with the time from which it was canonical.
    branches: Vec<(Instant, Branch)>,
    /// The branches that each replica showed, by position in `branches`, each with the time from which it showed the
    /// branch.
    shown: [Vec<(Instant, usize)>; REPLICAS],
}

// === impl History ===

impl History {
    fn last(&self) -> &Branch {
        &self.branches.last().unwrap().1
    }

    /// Returns the branches that replicas have shown since `from`.
    fn since(&self, from: Instant) -> impl Iterator<Item = &[B256]> {
        let shown = self.shown.iter().flat_map(move |shown| {
            let first = shown.partition_point(|(at, _)| *at < from).saturating_sub(1);
            &shown[first..]
        });
        shown.map(|(_, branch)| &self.branches[*branch].1[..])
    }
}

// === impl Nodes ===

impl Nodes {
    pub fn new(finality: usize, rng: &mut Rng) -> Self {
        let config = Config {
            chain_id: 7777,
            slot_seconds: 1,
            finalized_distance: finality as u64,
            safe_distance: rng.u64(1..=finality as u64),
            keep_orphans: rng.bool(),
            ..Config::default()
        };
        let master = upstream::devchain().config(|it| *it = config).blocks(20, 1).chain();
        let replicas = (0..REPLICAS).map(|_| master.copy()).collect();
        let now = Instant::now();
        let history =
            History { branches: vec![(now, branch(&master))], shown: array::from_fn(|_| vec![(now, 0)]) };
        Self { master, replicas, finality, history: Mutex::new(history) }
    }

    /// Mines a block every 250 to 500 ms, or reorgs, and lets the replicas follow. Their lags change at random.
    pub async fn drive(&self, mut rng: Rng) {
        let any_lag = |rng: &mut Rng| match rng.u8(..3) {
            0 => Duration::ZERO,
            _ => MAX_LAG.mul_f64(rng.f64()),
        };
        let mut lags: [_; REPLICAS] = array::from_fn(|_| any_lag(&mut rng));
        let mut next = Instant::now();
        loop {
            if next <= Instant::now() {
                next = Instant::now() + Duration::from_millis(rng.u64(250..500));
                if rng.u8(..6) == 0 {
                    self.reorg(&mut rng);
                } else {
                    self.master.mine(rng.usize(..3));
                }
                self.history.lock().branches.push((Instant::now(), branch(&self.master)));
            }
            for (at, lag) in lags.iter_mut().enumerate() {
                if rng.u8(..100) == 0 {
                    *lag = any_lag(&mut rng);
                }
                self.follow(at, *lag);
            }
            time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Replaces one or two blocks by as many or one more, with the same transactions in other blocks. The finalized block
    /// is at least two blocks below the head.
    fn reorg(&self, rng: &mut Rng) {
        let depth = rng.usize(1..=2);
        let mut contents = vec![Vec::new(); depth + rng.usize(..2)];
        let old: Vec<_> = branch(&self.master).into_iter().rev().take(depth).collect();
        for hash in old.into_iter().flat_map(|block| self.master.transactions_of(block)) {
            contents[rng.usize(..depth)].push(self.master.transaction(hash).unwrap());
        }
        self.master.reorg_with(depth as u64, contents);
    }

    /// Lets a replica adopt the branch that the master had this long ago. A replica never goes back.
    fn follow(&self, at: usize, lag: Duration) {
        let history = &mut *self.history.lock();
        let due = history.branches.partition_point(|(since, _)| since.elapsed() >= lag).saturating_sub(1);
        if due > history.shown[at].last().unwrap().1 {
            history.shown[at].push((Instant::now(), due));
            self.replicas[at].adopt(&self.master, *history.branches[due].1.last().unwrap());
        }
    }

    /// Serves the replicas behind one URL, and returns it.
    pub async fn serve(self: &Arc<Self>, balance: Balance, mut rng: Rng) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let nodes = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (nodes, own, left) =
                    (nodes.clone(), rng.usize(..REPLICAS), AtomicU64::new(rng.u64(1..60)));
                let rng = Mutex::new(rng.fork());
                let service = service_fn(move |request| {
                    let at = match balance {
                        Balance::Connections => own,
                        Balance::Requests => rng.lock().usize(..REPLICAS),
                    };
                    answer(nodes.replicas[at].clone(), request, left.fetch_sub(1, Relaxed) == 1)
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        url
    }

    /// Returns number and hash of a recent block, orphaned or not.
    pub fn any_block(&self, rng: &mut Rng) -> (u64, B256) {
        let history = self.history.lock();
        let branches = &history.branches[history.branches.len().saturating_sub(8)..];
        let branch = &branches[rng.usize(..branches.len())].1;
        let number = branch.len() - 1 - rng.usize(..15);
        (number as u64, branch[number])
    }

    /// Returns whether `holds` is true for the final blocks, or for a branch that a replica has shown since shortly before
    /// `sent`.
    pub fn may_show(&self, sent: Instant, holds: impl Fn(&[B256]) -> bool) -> bool {
        let history = self.history.lock();
        let finals = &history.last()[..history.last().len() - self.finality];
        holds(finals) || history.since(sent.checked_sub(WINDOW).unwrap_or(sent)).any(holds)
    }

    /// Returns whether `lower` and `upper` were on one branch.
    pub fn are_on_one_branch(&self, lower: B256, upper: B256) -> bool {
        let history = self.history.lock();
        history.branches.iter().any(|(_, branch)| branch.contains(&lower) && branch.contains(&upper))
    }

    /// Returns whether a replica lacks the finalized block of the master, or shows an orphan at its number.
    pub fn is_contradicted(&self) -> bool {
        let history = self.history.lock();
        let finalized = history.last().len() - 1 - self.finality;
        let heads = history.shown.iter().map(|shown| shown.last().unwrap().1);
        heads.into_iter().any(|head| history.branches[head].1.get(finalized) != history.last().get(finalized))
    }
}

/// Returns the canonical branch.
fn branch(chain: &DevChain) -> Branch {
    (0..=chain.head().number).map(|number| chain.hash_at(number).unwrap()).collect()
}

/// Answers a request as this replica, and closes the connection after the last one.
async fn answer(
    replica: DevChain,
    request: Request<Incoming>,
    is_last: bool,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let NodeResponse::Reply { body, .. } = replica.serve(body).await else {
        unreachable!("there is no fault")
    };
    let response = Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, if is_last { "close" } else { "keep-alive" });
    Ok(response.body(Full::new(body)).unwrap())
}

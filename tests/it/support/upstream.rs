//! Development nodes behind the proxy.

use std::{io::ErrorKind, net::SocketAddr, ops::Deref, time::Duration};

use holdfast::devchain::{Config, DevChain, DevNode};
use tokio::time::Instant;

use super::{
    chains,
    one_node::{raw, tx_hash},
};

/// Address on which nodes listen. No other server uses it, so that a restarted node finds its port free.
pub const NODES: [u8; 4] = [127, 0, 0, 2];

/// Builder of a [`Node`] or its chain.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    config: Config,
    blocks: usize,
    transactions: usize,
}

/// A development chain on a loopback port. Dereferences to the chain.
pub struct Node {
    chain: DevChain,
    node: DevNode,
}

/// Returns a chain whose blocks are an hour apart, so that one answer makes a block below the finalized one final.
pub fn devchain() -> Builder {
    Builder::default().config(|config| config.slot_seconds = 3600)
}

// === impl Builder ===

impl Builder {
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Starts with `blocks` blocks of `transactions` transactions each.
    pub fn blocks(self, blocks: usize, transactions: usize) -> Self {
        Self { blocks, transactions, ..self }
    }

    pub fn chain(self) -> DevChain {
        chains::chain(&self.config, self.blocks, self.transactions)
    }

    pub async fn run(self) -> Node {
        self.run_on(SocketAddr::from((NODES, 0))).await
    }

    /// Starts the node on this address, for example that of a previous node.
    pub async fn run_on(self, address: SocketAddr) -> Node {
        let chain = self.chain();
        let patience = Instant::now() + Duration::from_secs(10);
        loop {
            match DevNode::start(chain.clone(), address).await {
                Ok(node) => return Node { chain, node },
                // The previous listener is still closing.
                Err(error) if error.source.kind() == ErrorKind::AddrInUse && Instant::now() < patience => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

// === impl Node ===

impl Node {
    pub fn url(&self) -> String {
        self.node.url()
    }

    pub fn ws_url(&self) -> String {
        self.node.ws_url()
    }

    /// Closes all WebSockets.
    pub fn cut_sockets(&self) {
        self.node.cut_sockets();
    }

    pub fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// Returns transactions that the node accepts next: as parameters of `eth_sendRawTransaction`, and their hashes.
    pub fn sendable(&self, count: usize) -> Vec<(String, String)> {
        self.generate(count).iter().map(|transaction| (raw(transaction), tx_hash(transaction))).collect()
    }
}

impl Deref for Node {
    type Target = DevChain;

    fn deref(&self) -> &DevChain {
        &self.chain
    }
}

//! Nodes to put behind the proxy.

use std::{io::ErrorKind, net::SocketAddr, ops::Deref, time::Duration};

use alloy_consensus::TxEnvelope;
use alloy_eips::Encodable2718;
use alloy_primitives::hex;
use holdfast::devchain::{Config, DevChain, DevNode};
use tokio::time::Instant;

/// Where nodes listen: not where everything else does, so that a node which comes back to its
/// port does not find a stranger there.
pub const NODES: [u8; 4] = [127, 0, 0, 2];

/// A development chain, to be started.
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

/// A chain whose blocks are an hour apart: below the finalized one, one answer is enough to be final.
pub fn devchain() -> Builder {
    Builder::default().config(|config| config.slot_seconds = 3600)
}

// === impl Builder ===

impl Builder {
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Starts with `blocks` blocks of `transactions` each.
    pub fn blocks(self, blocks: usize, transactions: usize) -> Self {
        Self { blocks, transactions, ..self }
    }

    pub fn chain(self) -> DevChain {
        let chain = DevChain::new(self.config);
        chain.mine_many(self.blocks, self.transactions);
        chain
    }

    pub async fn run(self) -> Node {
        self.run_on(SocketAddr::from((NODES, 0))).await
    }

    /// On an address that was used before, say.
    pub async fn run_on(self, address: SocketAddr) -> Node {
        let chain = self.chain();
        let patience = Instant::now() + Duration::from_secs(10);
        loop {
            match DevNode::start(chain.clone(), address).await {
                Ok(node) => return Node { chain, node },
                // Whoever listened there is still closing.
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

    /// Ends all WebSockets.
    pub fn cut_sockets(&self) {
        self.node.cut_sockets();
    }

    pub fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// Transactions that the node would take next: raw as `eth_sendRawTransaction` wants them, and their hashes.
    pub fn sendable(&self, count: usize) -> Vec<(String, String)> {
        let raw = |tx: &TxEnvelope| format!("0x{}", hex::encode(tx.encoded_2718()));
        self.generate(count).iter().map(|tx| (raw(tx), format!("{:#x}", tx.tx_hash()))).collect()
    }
}

impl Deref for Node {
    type Target = DevChain;

    fn deref(&self) -> &DevChain {
        &self.chain
    }
}

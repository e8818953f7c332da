//! Verifies upstream answers before they enter the cache.
//!
//! Only this module can create a [`Verified`] value, and the cache accepts nothing else. Verification copies the bytes
//! once, because a slice of a response would keep the whole response buffer alive.
//!
//! There are two kinds of checks. Structural checks test whether an answer has the expected shape and whether its parts
//! agree. The proofs of [`prove`] recompute Ethereum's hashes.
//!
//! # Proofs
//! | answer to | verified | proved by |
//! |---|---|---|
//! | `eth_getBlockByHash`, `eth_getBlockByNumber` | as a full block | the hash of its header; `transactionsRoot` and `withdrawalsRoot` in it; each transaction's hash and signer |
//! | `eth_getTransactionByBlock…AndIndex` | in a full block | the same |
//! | `eth_getTransactionByHash` | in a full block, or alone | the same; a single transaction by its own hash and signer, while its place is unverified |
//! | `eth_getBlockReceipts` | as all receipts of a full block | `receiptsRoot` in that block's header, and `logsBloom` there |
//! | `eth_getTransactionReceipt` | among all receipts of a full block | the same; a single receipt cannot be proved |
//! | a block with transaction hashes, fetched as such | alone | the hash of its header; its list of hashes is unverified unless it is empty |
//!
//! So the proof of a block by hash is a chain: the requested hash covers the header, the header contains the roots, and
//! the roots cover the content. For a block by number, the head tracker decides which hash is canonical.
//!
//! The verifier also recomputes the members that follow from the content: the signer (`from`), `v` against `yParity`,
//! the `gasPrice` of a transaction in a block, `blockTimestamp`; and for receipts `gasUsed`, `effectiveGasPrice`,
//! `from`, `to`, `contractAddress`, `type`, `logIndex`, `removed`, the place of each log, `blobGasUsed` and
//! `blobGasPrice`.
//!
//! # Not proved
//! - `totalDifficulty`, which is not in the header, and `size`, which depends on data that is not in the answer.
//! - The hashes in `uncles`, and whether there are one or two, because `sha3Uncles` is the hash of headers that are not
//!   in the answer. The proof shows only whether the list is empty. So Holdfast derives an uncle count from a block
//!   only if the list is empty.
//! - The fact that a pending transaction is pending, and its future `gasPrice`.
//! - Receipts of blocks before Byzantium that lack the state root after each transaction, which some nodes have pruned.
//!   Such receipts are unprovable. So are anvil's blocks with blobs (it computes `transactionsRoot` over the sidecars)
//!   and its genesis before Shanghai (it leaves out older members).
//! - Answers in which a member that nodes normally provide is absent or `null`. Such answers are unprovable. The code
//!   that reads each member decides whether it may be absent.
//! - Unknown members. Nodes add some, and Holdfast passes them on unchanged.
//! - Whether the `contractAddress` of a creation that failed, or from before Byzantium, is present or `null`, because
//!   nodes differ. If the address is present, it is proved.
//! - Under Prague and later, which of the known sets of blob constants `blobGasPrice` follows.

mod chain_rules;
mod check;
mod config;
mod content;
mod failure;
mod logs;
mod metrics;
mod provability;
pub mod prove;
mod restored;
mod structural;
mod verdict;
mod verified;
mod verifier;

#[cfg(test)]
pub(crate) use self::verdict::KnownReceipts;
pub use self::{
    chain_rules::{Anchor, InForce, Kind},
    check::Check,
    config::{Config, Demand, OnMismatch},
    content::Content,
    failure::{Failure, Part, Reason},
    metrics::Metrics,
    restored::{Doubt, TierVerifier},
    structural::{
        block, block_with_hashes, receipts, single_receipt, single_transaction, single_transaction_at,
    },
    verdict::{Known, Unproved, Verdict},
    verified::{Level, Origin, Verified},
    verifier::Verifier,
};

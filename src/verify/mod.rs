//! Checks what a node said before it may be kept.
//!
//! [`Verified`] can only be made here, and only what is verified can be put into the cache. The
//! bytes are copied once on the way: a slice of a response would keep its whole buffer alive.
//!
//! There are two kinds of checks. The structural ones, here, see whether an answer has the shape asked
//! for and whether its parts agree. Those of [`prove`] work out Ethereum's hashes again.
//!
//! # What is proved against what
//! | answer to | is a part of | by |
//! |---|---|---|
//! | `eth_getBlockByHash`, `eth_getBlockByNumber` | a full block | the hash of its header; `transactionsRoot` and `withdrawalsRoot` in it; each transaction's hash and signer |
//! | `eth_getTransactionByBlock…AndIndex` | a full block | the same |
//! | `eth_getTransactionByHash` | a full block; or alone | the same; alone, by its own hash and signer, and its place is taken on trust |
//! | `eth_getBlockReceipts` | all receipts of a full block | `receiptsRoot` in that block's header, and `logsBloom` there |
//! | `eth_getTransactionReceipt` | all receipts of a full block | the same; alone there is nothing to prove it by |
//! | a block asked for with hashes only, and not cut out of a full one | itself | the hash of its header; its list of hashes is taken on trust unless it is empty |
//!
//! So for a block by its hash: the hash asked for → the header → the roots → the content. By number,
//! which hash is right is the tracker's business.
//!
//! What follows from the content is worked out again: who signed (`from`), `v` against `yParity`, the
//! `gasPrice` of a transaction in a block, `blockTimestamp`; of receipts `gasUsed`, `effectiveGasPrice`,
//! `from`, `to`, `contractAddress`, `type`, `logIndex`, `removed`, where each log is, `blobGasUsed` and
//! `blobGasPrice`.
//!
//! # What is not
//! - `totalDifficulty`, of which the header knows nothing, and `size`, which depends on what is left out.
//! - The hashes in `uncles`, and whether there are one or two: the headers that `sha3Uncles` is the hash of are
//!   not in the answer. The list is empty exactly when it must be, and no other list makes a count.
//! - Of a transaction that is pending: that it is, and what its `gasPrice` will be.
//! - Of blocks from before Byzantium whose receipts come without the state after each transaction, as some
//!   nodes have forgotten it: the receipts. They are unprovable, and so is what anvil makes of blobs (it takes
//!   `transactionsRoot` over the sidecars) and of a genesis before Shanghai (it leaves out older members).
//! - Answers without a member that nodes give, or with a `null` in its place. They are unprovable; which members may be
//!   absent is decided where each is read.
//! - Members that nobody here knows. Nodes add some, and they are handed on as they are.
//! - Whether the `contractAddress` of a creation that failed, or that is from before Byzantium, is given
//!   or `null`: nodes differ. If it is given, it is right.
//! - Under Prague and later, which of the known sets of blob constants `blobGasPrice` follows.

mod chain_rules;
mod check;
mod config;
mod content;
mod failure;
mod metrics;
mod overdue;
mod proof_wait;
mod provability;
pub mod prove;
mod restored;
mod structural;
mod threads;
mod verdict;
mod verified;
mod verifier;

pub use self::{
    chain_rules::{Anchor, InForce, Kind},
    check::Check,
    config::{Config, Demand, OnMismatch},
    content::Content,
    failure::{Failure, Part, Reason},
    metrics::Metrics,
    overdue::Overdue,
    proof_wait::{Following, ProofWait},
    restored::Doubt,
    structural::{
        block, block_with_hashes, receipts, single_receipt, single_transaction, single_transaction_at,
    },
    threads::ProofLimits,
    verdict::{Known, Unproved, Verdict},
    verified::{Level, Origin, Verified},
    verifier::Verifier,
};

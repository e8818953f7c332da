//! Answers `eth_getLogs`.
//!
//! The receipts of a block contain all its logs, under `receiptsRoot`. So an answer that is cut out of proved receipts
//! is complete, and no node can leave out a log unnoticed. The bloom of a proved header shows for many other blocks
//! that no log matches. The rest of a range is *cold*. Holdfast fetches a few cold blocks with their receipts. If there are
//! more, the upstream searches the range: Holdfast checks the logs that it finds, but nothing shows that they are all.
//!
//! # Floors
//! ```text
//! reader   answers a call
//! plan     finds the logs of a range, block by block
//! cold     fetches or forwards the blocks of a range that are not cached
//! range    the canonical blocks of a range
//! search   finds logs in cached receipts
//! tools    the components that find logs
//! found    logs of blocks, and the limits of an answer
//! ```

mod cold;
mod found;
mod plan;
mod range;
mod reader;
mod search;
mod tools;

pub(super) use self::{reader::LogReader, tools::LogTools};

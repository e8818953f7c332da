//! Cached content: lookups and their upstream calls, proofs, byte equality, gzip.

mod block_receipts;
mod calls;
mod entity;
mod equal;
mod gzip;
mod logs;
mod logs_cold;
mod logs_equal;
mod memory;
mod mismatches;
mod prove;
mod raw;
mod single_flight;
mod stale;
mod verify;

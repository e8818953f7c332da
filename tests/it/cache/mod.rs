//! Cached content: lookups and their upstream calls, proofs, byte equality, gzip.

mod block_receipts;
mod calls;
mod entity;
mod equal;
mod gzip;
mod memory;
mod mismatches;
mod prove;
mod raw;
mod single_flight;
mod verify;

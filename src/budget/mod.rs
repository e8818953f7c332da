//! Limits the memory for request bodies and responses, in total and for each client.
//!
//! Each request body and each response has a size limit, but a thousand of them together would still exhaust memory. A
//! task that reads a body or a response takes a [`ByteLease`] and grows it with its buffer. A response that waits until
//! its client reads it has a lease too. If the budget is exhausted, growing a lease fails at once. It does not wait,
//! because tasks that wait for each other's bytes could deadlock.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! buffer      a buffer whose bytes a lease counts
//! bytes       the budget, and leases of it
//! clients     counts for each client
//! ```

mod buffer;
mod bytes;
mod clients;

pub use self::{
    buffer::LeasedBuffer,
    bytes::{ByteBudget, ByteLease, SMALL},
    clients::{ClientCounts, Exhausted},
};

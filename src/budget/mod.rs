//! Limits the bytes held for clients: one total budget, and a limit for each client.
//!
//! Each body and each response has a size limit, but a thousand of them together would still exhaust memory. A reader
//! takes a [`ByteLease`] and grows it with its buffer; a response that waits for its client holds one too. Growing
//! never waits: readers that wait for each other's bytes could deadlock.
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

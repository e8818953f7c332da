//! Limits the bytes that are held for clients: one budget for all, and a limit for each client.
//!
//! Bodies and answers each have a limit of their own; a thousand of them together would still be too much. A reader takes a
//! [`ByteLease`] and lets it grow with its buffer; an answer that waits for its client holds one, too. Growing never waits:
//! readers that wait for each other's bytes could wait for ever.
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

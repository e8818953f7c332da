//! One call: its request, its client, the packet that it came in, and its result.
//!
//! # Floors
//! ```text
//! result         result of a call, as metrics and logs name it
//! query_call     a call with its query
//! request        a call on its way through the layers
//! packet         state that the calls of a packet share
//! caller         the client of a call, and its permissions
//! read_call      a parsed call
//! policy         methods that a client may call
//! rate           rate limit of a client
//! waited         labels answers from the cache for which a call had to wait
//! outcome        an answer and its source
//! slice          cuts answers out of verified content
//! single_flight  shares one fetch among equal misses
//! client_limit   limits the concurrent fetches of one client
//! ```

pub(super) mod caller;
pub(super) mod client_limit;
pub(super) mod outcome;
pub(super) mod packet;
pub(super) mod policy;
pub(super) mod query_call;
pub(super) mod rate;
pub(super) mod read_call;
pub(super) mod request;
pub(super) mod result;
pub(super) mod single_flight;
pub(super) mod slice;
pub(super) mod waited;

//! The view of the canonical chain, and the components that refresh it.
//!
//! # Floors
//! ```text
//! canon       learns from answers which block is where
//! tracker     refreshes the blocks of latest, safe and finalized in the view
//! finality    follows the finalized block; raises an alarm if it changes
//! source      fetches headers
//! known       data that answers are checked against
//! since       whether the block of an answer may have left the chain
//! view        the canonical view; makes no upstream calls
//! events      changes of canonicity, for cache tiers
//! full_heads  decides whether the next head is fetched in full
//! stall       block interval, and stall detection
//! background  runs one background task at a time
//! ```

pub(super) mod background;
mod canon;
pub(super) mod events;
pub(super) mod finality;
mod full_heads;
pub(super) mod known;
pub(super) mod since;
pub(super) mod source;
mod stall;
pub(super) mod tracker;
pub(super) mod view;

pub(super) use self::{
    canon::Canon, full_heads::StoreHead, since::Since, tracker::HeadTracker, view::SharedView,
};

//! Cache tiers: the disk log, Redis, and finalized blocks across restarts and instances.

mod copy;
mod disk;
mod fleet;
mod forget;
mod full;
mod history;
mod logs;
mod redis;
mod restart;

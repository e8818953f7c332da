//! Which store should hold the disk tier? This measured the candidates (fjall, redb, foyer, and a log of our own) on the work
//! that it has; docs/tiers.md has what came of it.
//!
//! The tier keeps final blocks: a compressed body and its compressed receipts by hash, an index by number and one by
//! transaction (about 200 a block). It is written a block at a time, read at random, bounded in bytes, and must
//! be whole after `kill -9`.
//!
//! `store/segments.rs` is a prototype: it is the design that became `src/cache/disk`, not a copy of what is there now. It
//! stands here so that the comparison can be made again with another candidate or another version of one.
//!
//! ```text
//! cd benches/stores                               # a crate of its own: Holdfast is built without it
//! export HOLDFAST_BLOCKS=DIR                      # real blocks, see below
//! cargo run --release -- all DIR                  # everything, in turns: an hour
//! cargo run --release -- write redb DIR 10000     # one step, one store
//! TINY=1 cargo run --release -- write redb DIR    # without real blocks: what the indexes alone cost
//! ```
//!
//! - Each step runs in a process of its own, so memory, processor time and bytes written are its own.
//! - `write`: blocks a second, processor time and bytes written per block, bytes on disk, memory.
//! - `read`: a body by hash, and by transaction; checked, not decompressed. Cold means after `drop_caches` (as root).
//! - `kill`: kills a writer at a random moment, opens what it left and checks every value, again and again.
//! - `limit`: writes five times the limit. `full`: writes to a disk that is too small (give it one: a small tmpfs).
//!   `lock`: opens twice. `rot`: spoils some bytes of the files (ten).
//! - `zstd`: what compression costs, by level, with a dictionary of other blocks, and a transaction at a time.
//!
//! `HOLDFAST_BLOCKS` holds what a node answers to `eth_getBlockByNumber` (whole) and `eth_getBlockReceipts`, the results
//! alone: `mainnet-15573637.block.json` and `.receipts.json`, the same of 19433903, and for `zstd` the block 24476000.

mod compression;
mod data;
mod steps;
mod store;

use std::{path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let text = |nth: usize| args.get(nth).map_or("", String::as_str);
    let number =
        |nth: usize, default: u64| args.get(nth).map_or(default, |arg| arg.parse().expect("a number"));
    let (store, dir) = (text(1), PathBuf::from(text(2)));
    let done = match text(0) {
        "write" => steps::write(store, &dir, number(3, 10_000), number(4, u64::MAX >> 24)),
        "append" => steps::append(store, &dir, number(3, 0), number(4, u64::MAX >> 24)),
        "read" => steps::read(store, &dir, number(3, 10_000), number(4, 1), text(5)),
        "open" => steps::open(store, &dir, number(3, 0), number(4, u64::MAX >> 24)),
        "killed" => steps::killed(store, &dir, number(3, 1000)),
        "kill" => steps::kill(store, &dir, number(3, 20), number(4, 2000)),
        "limit" => steps::limit(store, &dir, number(3, 200), number(4, 1000)),
        "full" => steps::full(store, &dir),
        "lock" => steps::lock(store, &dir),
        "rot" => steps::rot(store, &dir, number(3, 1000), number(4, 10)),
        "all" => steps::all(std::path::Path::new(text(1))),
        "zstd" => compression::compare(),
        _ => {
            eprintln!(
                "all DIR | zstd | write | append | read | open | killed | kill | limit | full | lock | rot STORE DIR …"
            );
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{store} {}: error: {error} ({error:?})", text(0));
            ExitCode::FAILURE
        }
    }
}

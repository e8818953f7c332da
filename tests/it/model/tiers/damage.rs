//! Damage to the entries of tiers.

use std::{fs, path::Path};

use crate::support::redis::Redis;

/// Flips a bit of a random file.
pub fn damage_file(directory: &Path, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else {
            files.push(path);
        }
    }
    files.retain(|path| path.file_name().is_some_and(|name| name != "lock"));
    files.sort();
    if files.is_empty() {
        return;
    }
    let path = &files[random.usize(..files.len())];
    let Ok(mut bytes) = fs::read(path) else { return };
    if !bytes.is_empty() {
        let at = random.usize(..bytes.len());
        bytes[at] ^= 1 << random.u8(..8);
        let _ = fs::write(path, bytes);
    }
}

/// Flips a bit of a random value, or deletes the value.
pub async fn damage_value(redis: &Redis, seed: u64) {
    let mut raw = redis.raw().await;
    let mut random = fastrand::Rng::with_seed(seed);
    let keys = raw.keys().await;
    if keys.is_empty() {
        return;
    }
    let key = &keys[random.usize(..keys.len())];
    let mut value: Vec<u8> = raw.ask(&[b"GETRANGE", key, b"0", b"-1"]).await;
    if random.bool() {
        raw.ask::<()>(&[b"DEL", key]).await;
    } else if !value.is_empty() {
        let at = random.usize(..value.len());
        value[at] ^= 1 << random.u8(..8);
        raw.ask::<()>(&[b"SET", key, &value]).await;
    }
}

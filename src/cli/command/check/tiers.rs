//! Checks that the cache tiers can be used.

use tokio::time::Instant;

use super::lines::{fail, line};
use crate::{
    app::StartError,
    cache::{
        Config, Disk, DiskConfig,
        redis::{Redis, RedisConfig},
    },
    cli::failure::Failure,
    config::Problem,
};

/// Checks all tiers, even if one fails.
pub(super) async fn check(config: &Config) -> Result<(), Failure> {
    let disk = config.disk.as_ref().map_or(Ok(()), check_disk);
    let redis = match &config.redis {
        Some(config) => check_redis(config).await,
        None => Ok(()),
    };
    disk.and(redis)
}

/// Checks that the directory can be used. Does not open the cache in it, which a running instance may use.
fn check_disk(config: &DiskConfig) -> Result<(), Failure> {
    let path = config.path.display();
    match Disk::check(config) {
        Ok(()) if config.path.exists() => line("directory", format!("{path}")),
        Ok(()) => line("directory", format!("{path}, which will be created")),
        Err(error) => fail("directory", error.to_string()),
    }
}

async fn check_redis(config: &RedisConfig) -> Result<(), Failure> {
    let redis =
        Redis::try_new(config).map_err(|error| StartError::Config(Problem::new("cache.redis", error)))?;
    line("redis", redis.url().to_string())?;
    let begun = Instant::now();
    match redis.probe().await {
        Ok(()) => line("usable", format!("yes, in {:.1} ms", begun.elapsed().as_secs_f64() * 1000.0)),
        Err(error) => fail("usable", format!("no: {error}")),
    }
}
